package resultstore

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/task"
)

// Default retention of a group after its last arrival.
const (
	DefaultGatherTTL = task.DefaultResultTTL // a decided group
	DefaultGroupWait = 30 * 24 * time.Hour   // an undecided group
)

// MaxMembersPage is the largest number of records that one call of Members returns.
const MaxMembersPage = 1000

// Arrival reports the end of one member of a group to a [Gatherer].
type Arrival struct {
	Group task.ID
	Index int // Index is the position of the member in the group, from 0.
	// Size is the number of members of the group. 0: this arrival does not know it. Any member may
	// bring the size, also the last one.
	Size int
	// Decides reports that this arrival decides the outcome of the group, even while other members are
	// missing. It is set when the member failed and the group fails with its first failure.
	Decides bool
	// Record holds how the member ended. The store keeps ID, Name, State, ContentType, Result and
	// Error.
	Record Record
	// TTL is the retention of the whole group from this arrival on if the group is decided. An arrival
	// that the store knows already may leave the retention as it is. Default: [DefaultGatherTTL].
	TTL time.Duration
	// Wait is the retention of the whole group from this arrival on while the group is undecided.
	// Default: [DefaultGroupWait].
	Wait time.Duration
}

// Kept returns how long the store keeps the whole group from this arrival on. The argument decided
// reports whether the group is decided after the arrival.
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

// Gathered holds the known state of a group.
type Gathered struct {
	Size   int // number of members; 0: not known yet
	Done   int // number of members that have arrived
	Failed int // number of arrived members that did not succeed
	// Decider is the index of the member whose arrival decided the group. That arrival had Decides set
	// or completed the group. -1: the group is undecided. Decider never changes once it is set: if
	// that member's arrival is repeated, its consumer submits the successor again.
	Decider int
}

// Gatherer is a store that counts the ended members of groups. Chords need it; other features do
// not, so a store need not implement it. Each method is one atomic step and safe for concurrent
// use.
type Gatherer interface {
	// Arrive stores the end of a member and returns the state of its group after that. A second
	// arrival at the same index does not change the stored member, but its Size is used if the size
	// was unknown. Returns [ErrMalformed] if Size differs from the known size or Index is outside of
	// it.
	Arrive(ctx context.Context, a Arrival) (Gathered, error)
	// Group returns the state of a group. Returns [ErrNotFound] if no member has arrived or the group
	// has expired.
	Group(ctx context.Context, group task.ID) (Gathered, error)
	// Members returns the stored ends of members in order of their index, beginning at index from. It
	// returns at most limit and at most [MaxMembersPage] records, and stops before the first index
	// that has not arrived. An unknown or expired group has no members, which is not an error.
	Members(ctx context.Context, group task.ID, from, limit int) ([]Record, error)
	// Begin claims task id for the copy of the task that which names, for ttl. Call it before that
	// copy runs. It returns true for the copy that calls first, also when that copy calls again. It
	// returns false for every other copy, because the task runs or ran as the first one. Default ttl:
	// [DefaultGatherTTL].
	Begin(ctx context.Context, id task.ID, which string, ttl time.Duration) (bool, error)
}

// GathererOf returns explicit if it is not nil. Otherwise it returns the Gatherer that s is or
// wraps, or nil if s is not a Gatherer.
func GathererOf(explicit Gatherer, s ResultStore) Gatherer {
	if explicit != nil {
		return explicit
	}
	g, _ := capability.As[Gatherer](s)
	return g
}

// Check returns nil if a store may accept a. It returns [ErrMalformed] for an impossible Index or
// Size, and [task.ErrBadID] for a bad id of the group or of the member.
func (a *Arrival) Check() error {
	if err := a.Group.Check(); err != nil {
		return err
	}
	if a.Index < 0 || a.Size < 0 || a.Size > 0 && a.Index >= a.Size {
		return badPlace(a.Index, a.Size)
	}
	return a.Record.ID.Check()
}

// badPlace returns ErrMalformed for a member at index of a group of size members.
func badPlace(index, size int) error {
	return fmt.Errorf("%w: index %d does not fit a group of %d members", ErrMalformed, index, size)
}

// CheckPlace returns [ErrMalformed] if Index or Size of a does not fit a group of known members. 0:
// the size of the group is not known, so that every arrival fits.
func (a *Arrival) CheckPlace(known int) error {
	if known > 0 && (a.Index >= known || a.Size > 0 && a.Size != known) {
		return fmt.Errorf("%w: member %d of %d does not fit a group of %d members", ErrMalformed, a.Index, a.Size, known)
	}
	return nil
}
