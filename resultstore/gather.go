package resultstore

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/task"
)

// How long a group is kept after the last arrival.
const (
	DefaultGatherTTL = task.DefaultResultTTL // one that is decided, unless a task's ResultTTL is longer
	DefaultGroupWait = 30 * 24 * time.Hour   // one that is not
)

// MaxMembersPage is the most that Members reads at once.
const MaxMembersPage = 1000

// Arrival is the end of one member of a group.
type Arrival struct {
	Group task.ID
	Index int // of the member, from 0
	// Size is how many members the group has; 0: this member does not know. One that does may come at any time, also last.
	Size int
	// Decides says that this member's end decides what becomes of the group, whether the others have come or not: it failed,
	// and the group fails with the first failure.
	Decides bool
	// Record is how the member ended: ID, Name, State, ContentType, Result and Error are kept.
	Record Record
	TTL    time.Duration // how long all of a decided group is kept from now on; 0: DefaultGatherTTL
	Wait   time.Duration // how long all of one that is not decided is; 0: DefaultGroupWait
}

// Kept returns how long all of the group is kept from a's arrival on, given what is known after it.
func (a *Arrival) Kept(decided bool) time.Duration {
	switch {
	case !decided && a.Wait > 0:
		return a.Wait
	case !decided:
		return DefaultGroupWait
	case a.TTL > 0:
		return a.TTL
	}
	return DefaultGatherTTL
}

// Gathered is what is known of a group.
type Gathered struct {
	Size   int // 0: not known yet
	Done   int // members that have arrived
	Failed int // of those, the ones that did not succeed
	// Decider is the index of the member whose arrival decided the group, because it was the last one that was missing or
	// because it said so; -1: it is not decided. It never changes: who repeats that member's end sends what follows.
	Decider int
}

// Gatherer is a store that can tell when all members of a group have ended, for chords. It is optional for a store; what has
// to know more than one member's end needs one. All methods may be called from any goroutine, and each is one atomic step.
type Gatherer interface {
	// Arrive notes the end of a member and returns what is then known of its group. What arrives again at the same index
	// changes nothing that was kept of it, whatever it is now; its Size counts if none was known. Another Size than the
	// known one, and an Index outside of it, are [ErrMalformed].
	Arrive(ctx context.Context, a Arrival) (Gathered, error)
	// Group returns what is known of a group. Returns [ErrNotFound] if nothing has arrived, or its
	// time is over.
	Group(ctx context.Context, group task.ID) (Gathered, error)
	// Members returns what arrived at the indices from from up, in order, up to limit and [MaxMembersPage] of them. It ends
	// before the first index at which nothing has arrived; a group that is not known, or forgotten, has none.
	Members(ctx context.Context, group task.ID, from, limit int) ([]Record, error)
	// Begin says that a copy of a task is about to be run. It is true for the first copy that asks, and for that one as often
	// as it asks; for any other copy it is false: the task runs, or ran, elsewhere. It is remembered for ttl, 0:
	// DefaultGatherTTL.
	Begin(ctx context.Context, id task.ID, which string, ttl time.Duration) (bool, error)
}

// GathererOf returns explicit where it is set, else the Gatherer that s is or wraps, else nil.
func GathererOf(explicit Gatherer, s ResultStore) Gatherer {
	if explicit != nil {
		return explicit
	}
	g, _ := capability.As[Gatherer](s)
	return g
}

// Check returns the first reason why a store must not take a, or nil.
func (a *Arrival) Check() error {
	if err := a.Group.Check(); err != nil {
		return err
	}
	if a.Index < 0 || a.Size < 0 || a.Size > 0 && a.Index >= a.Size {
		return badPlace(a.Index, a.Size)
	}
	return a.Record.ID.Check()
}

func badPlace(index, size int) error {
	return fmt.Errorf("%w: member %d of %d", ErrMalformed, index, size)
}

// CheckPlace refuses what does not fit the size that is known of a group.
func (a *Arrival) CheckPlace(known int) error {
	if known > 0 && (a.Index >= known || a.Size > 0 && a.Size != known) {
		return fmt.Errorf("%w: member %d of %d in a group of %d", ErrMalformed, a.Index, a.Size, known)
	}
	return nil
}
