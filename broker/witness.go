package broker

import (
	"context"
	"time"
)

// Witness is a Broker that keeps notes of starts, so that a consumer can tell a task that ended its process from one that
// was only held by it. A consumer notes a start only when the message was handed out before: the first start costs nothing.
//
// A node is one consumer process, named by the consumer anew for each Run. All methods may be called from any goroutine.
type Witness interface {
	// NoteStart stores s and returns the notes of the same (ID, Generation) in queue that were stored before it, oldest first,
	// each with its latest verdict. Nil error means that every later NoteStart of the pair returns s, for 24 h and across a
	// restart of the broker. s.Node is present from then on (see NodeState), until Leave or Close. The same Nonce again is
	// the same note. After an error s may be stored or not.
	NoteStart(ctx context.Context, queue string, s Start) (earlier []Start, err error)
	// JudgeStart stores s.Verdict as the verdict of the note that has s's ID, Generation and Nonce. A note that does not exist is
	// no error.
	JudgeStart(ctx context.Context, queue string, s Start) error
	// NodeState tells whether a node shows signs of life now. It returns an error, and no state, while this process itself could
	// not see them, such as during a lost connection.
	NodeState(ctx context.Context, node string) (NodeState, error)
	// Leave says that node ends in order: from its return on NodeState is [NodeLeft], for 24 h. Leave is for nodes that noted a
	// start; for others it does nothing.
	Leave(ctx context.Context, node string) error
}

// Start is a note of one start of a handler.
type Start struct {
	ID         string // of the message
	Generation int
	Nonce      string // names this start; visible ASCII, at most 64 bytes
	Node       string // that started it; obeys the pattern of task.CheckName
	Alone      bool   // nothing else ran in its process
	At         time.Time
	Verdict    StartVerdict
}

// StartVerdict is what became of a start. The zero value is StartOpen.
type StartVerdict int

// The verdicts on a start. Their numbers are part of what brokers store.
const (
	StartOpen    StartVerdict = 0 // nobody has judged it
	StartCleared StartVerdict = 1 // it did not end its process, or did not happen
	StartDied    StartVerdict = 2 // its process ended during the start
)

// NodeState is what a broker knows of a node.
type NodeState int

// The states of a node.
const (
	// NodeAbsent: no sign of life for some seconds. A node that lost its connection is absent too: only an absence that lasts
	// tells that its process has ended.
	NodeAbsent NodeState = iota
	NodePresent
	NodeLeft // it ended in order
)

// AckChecker is a Delivery of a broker that can forget an acknowledgement, such as one whose node is killed right after it.
// For a task that runs at most once the consumer asks it before the start of a message that was handed out before.
type AckChecker interface {
	// AckedBefore reports whether an AckSync of this message, by any consumer, returned nil or may have returned nil: then the
	// task may have started. False is certain. An error means that this cannot be told now.
	AckedBefore(ctx context.Context) (bool, error)
}
