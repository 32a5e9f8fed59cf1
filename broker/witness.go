package broker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/internal/keyset"
)

// Witness is a Broker that keeps notes of starts, so that a consumer can tell a task that ended its
// process from one that was only held by it. A consumer notes no start of a first delivery: healthy
// tasks cost nothing.
//
// A node is one consumer process, named by the consumer anew for each Run. All methods may be
// called from any goroutine.
type Witness interface {
	// NoteStart stores s and returns the notes of the same (ID, Generation) in queue that were
	// stored before it, oldest first, each with its latest verdict. Nil error means that every
	// later NoteStart of the pair returns s, for 24 h and across a restart of the broker; a broker
	// may keep no more than [MaxStarts] notes of a pair. s.Node is present from then on (see
	// NodeState), until Leave or Close. The same Nonce again is the same note. After an error s may
	// be stored or not.
	NoteStart(ctx context.Context, queue string, s Start) (earlier []Start, err error)
	// JudgeStart stores s.Verdict as the verdict of the note that has s's ID, Generation and Nonce.
	// A note that does not exist is no error.
	JudgeStart(ctx context.Context, queue string, s Start) error
	// NodeState tells whether a node shows signs of life now. It returns an error, and no state,
	// while this process itself could not see them, such as during a lost connection.
	NodeState(ctx context.Context, node string) (NodeState, error)
	// Leave says that node ends in order: from its return on NodeState is [NodeLeft], for 24 h.
	// Leave is for nodes that noted a start; for others it does nothing.
	Leave(ctx context.Context, node string) error
}

// Start is a note of one start of a handler.
type Start struct {
	ID         string // of the message
	Generation int
	Nonce      string    // names this start; visible ASCII, at most 64 bytes
	Node       string    // that started it; obeys the pattern of task.CheckName
	Alone      bool      // nothing else ran in its process
	At         time.Time // kept to the millisecond at least
	Verdict    StartVerdict
}

// maxNonce is the longest Nonce in bytes.
const maxNonce = 64

// Check returns [ErrMalformed] if the ID is empty, the Generation negative, or Nonce or Node not as
// their comments say.
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
	case !keyset.ValidName(s.Node):
		return fmt.Errorf("%w: node name %.140q", ErrMalformed, s.Node)
	}
	return nil
}

// MaxStarts is how many notes of one (ID, Generation) every broker keeps at least. Of more the
// oldest cleared one goes, and the oldest of all if none is cleared.
const MaxStarts = 64

// AddStart is for brokers that keep the notes of one (ID, Generation) together. It returns notes
// with s behind them, at most MaxStarts, and those that were there before s. A note with the Nonce
// of s is left as it is. AddStart changes the array of notes.
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
	// NodeAbsent: no sign of life for some seconds. A node that lost its connection is absent too:
	// only an absence that lasts tells that its process has ended.
	NodeAbsent  NodeState = iota
	NodePresent           // it gave a sign of life after it was asked for
	NodeLeft              // it ended in order
)

// AckChecker is a Delivery of a broker that can forget an acknowledgement, such as one whose node
// is killed right after it. For a task that runs at most once the consumer asks it before the start
// of a message that was handed out before.
type AckChecker interface {
	// AckedBefore reports whether an AckSync of this message, by any consumer, returned nil or may
	// have returned nil: then the task may have started. False is certain. An error means that this
	// cannot be told now.
	AckedBefore(ctx context.Context) (bool, error)
}
