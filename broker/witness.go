package broker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/internal/naming"
)

// Witness is a Broker that stores notes of handler starts. With the notes a consumer can tell a
// task that crashed its process from a task that merely was in the process. A consumer notes no
// start of a first delivery, so healthy tasks cost nothing.
//
// A node is one consumer process. The consumer chooses a new node name for each Run. All methods
// may be called from any goroutine.
type Witness interface {
	// NoteStart stores s. It returns the notes of the same (ID, Generation) in queue that were stored
	// before s, oldest first, each with its latest verdict.
	//
	//   - A nil error means that every later NoteStart of the pair returns s. This lasts 24 h and
	//     survives a restart of the broker. A broker may limit the notes of a pair to [MaxStarts].
	//   - s.Node is present from then on (see NodeState), until Leave or Close.
	//   - A second call with the same Nonce adds no second note.
	//   - After an error s may or may not be stored.
	NoteStart(ctx context.Context, queue string, s Start) (earlier []Start, err error)
	// JudgeStart stores s.Verdict as the verdict of the note that has the ID, Generation and Nonce of
	// s. If the note does not exist it returns nil.
	JudgeStart(ctx context.Context, queue string, s Start) error
	// NodeState returns whether a node shows signs of life now. It returns an error, and no state,
	// while this process itself could not see them, for example during a lost connection.
	NodeState(ctx context.Context, node string) (NodeState, error)
	// Leave records that node ended in order. After it returns, NodeState is [NodeLeft] for 24 h.
	// Leave does nothing for nodes that noted no start.
	Leave(ctx context.Context, node string) error
}

// Start is a note of one start of a handler.
type Start struct {
	ID         string // the message's id
	Generation int
	Nonce      string    // the unique name of this start; visible ASCII, at most 64 bytes
	Node       string    // the node that started the handler; matches the pattern of task.CheckName
	Alone      bool      // no other task ran in its process
	At         time.Time // stored with a precision of 1 ms or better
	Verdict    StartVerdict
}

// maxNonce limits the length of a Nonce, in bytes.
const maxNonce = 64

// Check returns [ErrMalformed] if the ID is empty, if the Generation is negative, or if Nonce or
// Node break the rules of their comments.
func (s *Start) Check() error {
	visible := s.Nonce != "" && len(s.Nonce) <= maxNonce
	for i := range len(s.Nonce) {
		visible = visible && s.Nonce[i] > ' ' && s.Nonce[i] <= '~'
	}
	switch {
	case s.ID == "":
		return fmt.Errorf("%w: a start without an id", ErrMalformed)
	case s.Generation < 0:
		return fmt.Errorf("%w: a start of generation %d", ErrMalformed, s.Generation)
	case !visible:
		return fmt.Errorf("%w: the nonce of a start is not 1 to %d visible ASCII characters", ErrMalformed, maxNonce)
	case !naming.ValidName(s.Node):
		return fmt.Errorf("%w: node name %.140q", ErrMalformed, s.Node)
	}
	return nil
}

// MaxStarts is the number of notes of one (ID, Generation) that every broker keeps at least. If
// there are more, the broker drops the oldest note with the verdict [StartCleared], or the oldest
// of all if no note has it.
const MaxStarts = 64

// AddStart appends s to notes, the stored notes of one (ID, Generation). It returns all notes, at
// most [MaxStarts], and a copy of the notes before s. If there are too many it drops one, which
// [MaxStarts] describes. If a note has the Nonce of s, AddStart adds nothing, and earlier holds the
// notes before that note. It may change the array of notes.
func AddStart(notes []Start, s Start) (all, earlier []Start) {
	if i := slices.IndexFunc(notes, func(n Start) bool { return n.Nonce == s.Nonce }); i >= 0 {
		return notes, slices.Clone(notes[:i])
	}
	if len(notes) >= MaxStarts {
		i := max(0, slices.IndexFunc(notes, func(n Start) bool { return n.Verdict == StartCleared }))
		notes = slices.Delete(notes, i, i+1)
	}
	return append(notes, s), slices.Clone(notes)
}

// StartVerdict is the judged outcome of a start. The zero value is StartOpen.
type StartVerdict int

// The verdicts on a start. Brokers store these numbers.
const (
	StartOpen    StartVerdict = 0 // not judged yet
	StartCleared StartVerdict = 1 // the start did not end its process, or did not happen
	StartDied    StartVerdict = 2 // its process ended during the start
)

// NodeState says whether a node is alive.
type NodeState int

// The states of a node.
const (
	// NodeAbsent: the node gave no sign of life for some seconds. A node that lost its connection is
	// absent too. Only an absence that lasts proves that its process has ended.
	NodeAbsent  NodeState = iota
	NodePresent           // it gave a sign of life after NodeState asked for one
	NodeLeft              // it ended in order
)

// AckChecker is a Delivery of a broker that can forget an acknowledgement, for example because a
// node is killed right after it. Before a consumer starts a task that runs at most once and whose
// message was delivered before, it calls AckedBefore.
type AckChecker interface {
	// AckedBefore reports whether an AckSync of this message, by any consumer, returned nil or may
	// have returned nil. If so the task may have started. False is certain. An error means that this
	// is not known now.
	AckedBefore(ctx context.Context) (bool, error)
}
