package schedule

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrTaken: an entry belongs to another group than the one that would change it. An entry that was
// added by its name alone belongs to no group.
var ErrTaken = errors.New("schedule: the entry belongs to another group, or to no group")

// NoOwner is the owner of claims that no listener holds. Such claims are on postponed ticks until
// their leases end, and on ticks that were due when their entries were changed.
const NoOwner = "-"

// Limits of one [Change].
const (
	MaxChange      = 1000    // entries
	MaxChangeBytes = 8 << 20 // bytes of all payloads together
	// KeptRuns is the number of instants in [Entry.Runs].
	KeptRuns = 5
)

// Changer is a Store that can change entries in place, and keep groups of entries.
type Changer interface {
	// Change makes the entries of c the entries of their group. Without a group it adds or changes
	// them. [Change.Decide] says for each entry what happens, by the store's clock:
	//
	//   - An entry that does not exist is added to the group.
	//   - An entry with another payload gets the new payload and due time. Its State, Last, Runs and
	//     pause stay. Claims on its ticks stay, and end as usual.
	//   - If such an entry is overdue, its tick becomes a claim of [NoOwner] whose lease has ended at
	//     the tick's instant. So the tick runs, with the new payload, and the entry has its new due
	//     time.
	//   - An entry of the group that c does not have is removed, as Remove does.
	//   - Entries of other groups, and entries without a group, do not change.
	//
	// Nothing changes if the group has a higher revision than c: then Changed has that revision and
	// nothing else. Nothing changes either if an outcome is [Late] or [Taken], or with DryRun. After a
	// change the group has the revision of c, also if no entry changed.
	//
	// A change is one atomic step. A store without transactions may take several: it first stores the
	// revision, which makes the steps of lower revisions fail. Then each entry is one step. If such a
	// call ends early, or the outcome of an entry is Late, a repetition completes it.
	//
	// Returns [ErrBadEntry] if c is invalid; then nothing changed.
	Change(ctx context.Context, c Change) (Changed, error)
}

// Change is a request to change entries, see [Changer].
type Change struct {
	// Entries must have different ids. Next is the due time that an entry gets if it is added or
	// changed. Zero: it has no further run. AtOnce, Group and the fields that Add ignores are ignored.
	Entries []Entry
	// Group is the name of the group, 1 to 255 bytes. "": the entries belong to no group; nothing is
	// removed, and Revision is ignored.
	Group    string
	Revision int64
	// DryRun changes nothing. The answer is that of the change.
	DryRun bool
}

// Changed is the answer of [Changer.Change].
type Changed struct {
	// Outcomes has the outcome of each entry of the Change, and Next has its due time after the
	// change. Both are nil if Revision is higher than that of the Change.
	Outcomes []Outcome
	Next     []time.Time
	// Removed are the entries of the group that were removed, in the order of their ids. With the
	// outcome [Late] or [Taken] of another entry it may be incomplete.
	Removed []Entry
	// Revision is the revision of the group after the call. Without a group it is 0.
	Revision int64
}

// Outcome is the effect of a [Change] on an entry.
type Outcome string

// Outcomes of a change.
const (
	EntryAdded     Outcome = "added"
	EntryChanged   Outcome = "changed"
	EntryUnchanged Outcome = "unchanged"
	EntryRemoved   Outcome = "removed" // only in [Synced]
	// EntryOver: the entry has no further run. It is not in the store, or was removed from it.
	EntryOver Outcome = "over"
	// Late: the store's clock has reached Next. Calculate it again and repeat the change.
	Late Outcome = "late"
	// Taken: the entry belongs to another group.
	Taken Outcome = "taken"
)

// Check returns nil if a store can execute c. Otherwise the error joins all problems and wraps
// [ErrBadEntry].
func (c *Change) Check() error {
	var errs []error
	if c.Group != "" {
		errs = append(errs, checkText("name of a group", c.Group, 255))
	}
	seen, size := make(map[string]bool, len(c.Entries)), 0
	for i := range c.Entries {
		e := c.Entries[i]
		if seen[e.ID] {
			errs = append(errs, fmt.Errorf("%w: the id %q comes twice", ErrBadEntry, e.ID))
		}
		seen[e.ID] = true
		size += len(e.Payload)
		errs = append(errs, e.checkContent())
	}
	if len(c.Entries) > MaxChange || size > MaxChangeBytes {
		errs = append(errs, fmt.Errorf("%w: a change has %d entries with %d bytes, more than %d or %d", ErrBadEntry, len(c.Entries), size, MaxChange, MaxChangeBytes))
	}
	return errors.Join(errs...)
}

// Decide returns the outcome of entry i, and the due time that the entry has after the change;
// zero: none. It is for authors of stores. old is the entry in the store, or nil. claimed reports
// that a tick of the entry has a claim, valid or expired. now is the time of the store's clock.
//
//   - With EntryChanged, if old.Next is set and not after now, the store keeps that tick as a claim
//     of [NoOwner].
//   - With EntryUnchanged the due time differs from old.Next only if the entry had lost it.
//   - With EntryOver the store removes old, if it is not nil.
func (c *Change) Decide(i int, old *Entry, claimed bool, now time.Time) (Outcome, time.Time) {
	e := &c.Entries[i]
	switch {
	case old == nil && e.Next.IsZero():
		return EntryOver, time.Time{}
	case old != nil && old.Group != c.Group:
		return Taken, old.Next
	case old != nil && bytes.Equal(old.Payload, e.Payload):
		if old.Next.IsZero() && !claimed && !old.Paused {
			return EntryUnchanged, e.Next
		}
		return EntryUnchanged, old.Next
	case old != nil && e.Next.IsZero():
		return EntryOver, time.Time{}
	case old != nil && old.Paused:
		return EntryChanged, time.Time{}
	case !e.Next.After(now):
		return Late, time.Time{}
	case old == nil:
		return EntryAdded, e.Next
	}
	return EntryChanged, e.Next
}

// Applied reports whether the store carried out the change c, or would have done so without its
// DryRun.
func (d *Changed) Applied(c *Change) bool {
	return (c.Group == "" || d.Revision <= c.Revision) && !slices.Contains(d.Outcomes, Late) && !slices.Contains(d.Outcomes, Taken)
}

// AddRun returns the instants of an entry's last runs with the instant due: at most [KeptRuns]
// different ones, the newest first. It is for authors of stores and does not change runs.
func AddRun(runs []time.Time, due time.Time) []time.Time {
	all := append(slices.Clone(runs), due)
	slices.SortFunc(all, func(a, b time.Time) int { return b.Compare(a) })
	all = slices.CompactFunc(all, time.Time.Equal)
	return all[:min(len(all), KeptRuns)]
}
