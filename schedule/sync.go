package schedule

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/when"
)

// WithName names an entry. The name is then its identity: an entry with another time, task,
// argument or policy under the same name is the same entry, changed in one step of the store.
//
//   - Its carried state ([SetState]), its last runs and its pause stay.
//   - A tick that is already claimed ends as it was claimed. A tick that is due but not yet claimed
//     runs with the new task and arguments. All later ticks are by the new times.
//   - Equal content changes nothing.
//   - The last Add counts. If old and new versions of a program start in any order, use
//     [Schedule.Sync], whose revision decides.
//
// A name is 1 to 255 bytes of UTF-8 without control characters. The first run of a new or changed
// entry lies after the call: [Now] is refused with an error that wraps [when.ErrBadSpec]. In Redis
// listeners of other programs do not see entries with a name.
//
// Add returns [ErrTaken] if Sync added the entry, and [ErrUnsupported] if the store is not a
// [Changer].
func WithName(name string) Option { return func(c *Content) { c.Name = name } }

// nameIn returns the name that opts give to an entry, or "".
func nameIn(opts []Option) string {
	var c Content
	for _, o := range opts {
		o(&c)
	}
	return c.Name
}

// Definition defines an entry for [Schedule.Sync]. Name, At and Call are required.
type Definition struct {
	Name string // see [WithName]
	At   When
	Call task.Call
	// Options are those of [Schedule.Add].
	Options []Option
}

// SyncOptions holds the options of [Schedule.Sync].
type SyncOptions struct {
	// DryRun changes nothing. The result is that of the change.
	DryRun bool
}

// Synced is the result of [Schedule.Sync].
type Synced struct {
	// Revision is the revision of the group in the store.
	Revision int64
	// Outdated reports that this revision is higher than the given one. Then nothing was changed, and
	// Entries is empty.
	Outdated bool
	// Entries has an element for each Definition, in their order, and then one for each removed entry.
	Entries []SyncedEntry
}

// SyncedEntry is the result of [Schedule.Sync] for one entry.
type SyncedEntry struct {
	ID, Name string
	// Outcome is EntryAdded, EntryChanged, EntryUnchanged, EntryRemoved or EntryOver.
	Outcome Outcome
	// Next is the due time of the entry after the call. Zero: it is paused, removed or over, or its
	// last run has not ended.
	Next time.Time
	// Spec holds the times of the entry, and Echo describes them in English. Both are empty if the
	// entry was removed.
	Spec when.Spec
	Echo string
}

// Sync makes want the entries of a group: it adds new ones, changes those with other content as
// [WithName] describes, and removes all others of the group. Entries of other groups and entries
// without a group are never touched.
//
// revision is the version of want, such as the number of a build. Sync with a lower revision than
// that of the last Sync of the group changes nothing: Synced.Outdated is true, without an error.
// So processes of old and new versions may start in any order. An equal revision is applied: all
// processes of one revision must have the same want. To go back to older entries, give them a
// higher revision.
//
// A definition without a further run is allowed: its outcome is EntryOver. A phrase for a moment
// that has passed is an error, so use [AtTime] for a fixed moment. Times that are relative
// to the call, as those of [In], change the entry with each Sync. At most [MaxChange] definitions
// are possible. An empty want removes all entries of the group.
//
// Sync is one atomic step of the store. In NATS it is one step for each entry, after a first step
// that stores the revision; call Sync again after an error, as each start of a program does.
//
// It changes nothing if it returns [ErrTaken]: an entry with the name of a definition was added by
// Add or by another group. Remove it there first. The same holds for the errors that Add names as
// storing nothing, and for [ErrBadEntry] if two definitions have one name. After [ErrUnavailable]
// the change may have been made. Returns [ErrUnsupported] if the store is not a [Changer].
func (s *Schedule) Sync(ctx context.Context, group string, revision int64, want []Definition, o SyncOptions) (Synced, error) {
	if err := checkText("name of a group", group, 255); err != nil {
		return Synced{}, err
	}
	c := Change{Group: group, Revision: revision, DryRun: o.DryRun}
	entries, changed, err := s.change(ctx, c, want, false)
	if err != nil {
		return Synced{}, err
	}
	if changed.Revision > revision {
		return Synced{Revision: changed.Revision, Outdated: true}, nil
	}
	for _, e := range changed.Removed {
		gone := SyncedEntry{ID: e.ID, Outcome: EntryRemoved}
		if content, err := Decode(e.Payload); err == nil {
			gone.Name = content.Name
		}
		entries = append(entries, gone)
	}
	return Synced{Revision: changed.Revision, Entries: entries}, nil
}

// addNamed is Add for an entry with a name.
func (s *Schedule) addNamed(ctx context.Context, d Definition) (Added, error) {
	entries, _, err := s.change(ctx, Change{}, []Definition{d}, true)
	if err != nil {
		return Added{}, err
	}
	e := &entries[0]
	return Added{ID: e.ID, New: e.Outcome == EntryAdded, Changed: e.Outcome == EntryChanged, Next: e.Next, Spec: e.Spec, Echo: e.Echo}, nil
}

// change executes c in the store, with the entries of the definitions want. It returns the result
// of each definition, in order, and the answer of the store. If runs is true, a
// definition without a further run is an error.
//
// If the store's clock has reached a due time meanwhile, the store refuses the change ([Late]).
// Then change calculates the due times again, with a longer margin each time, until the store
// accepts them. So a slow store may skip runs of new or changed entries, but never repeats one.
//
// Returns [ErrUnsupported] if the store is not a [Changer], errors of invalid definitions, and
// [ErrBadEntry] if a name is missing or comes twice; these change nothing. Returns [ErrTaken] if an
// entry belongs to another group; then nothing has changed in a store with transactions. It also
// returns the errors of the store; after [ErrUnavailable] the change may have been made.
func (s *Schedule) change(ctx context.Context, c Change, want []Definition, runs bool) ([]SyncedEntry, Changed, error) {
	store, err := feature[Changer](s.c.Store, "change entries by name")
	if err != nil {
		return nil, Changed{}, err
	}
	for margin := time.Duration(0); ; {
		began := time.Now()
		now, err := s.now(ctx)
		if err != nil {
			return nil, Changed{}, err
		}
		c.Entries = nil
		results := make([]SyncedEntry, len(want))
		var errs []error
		for i := range want {
			e, err := s.define(&want[i], now.In(s.c.Location), margin, &results[i])
			if err == nil && runs && e.Next.IsZero() {
				err = errOver(results[i].Spec, now)
			}
			if err != nil && !runs {
				err = fmt.Errorf("entry %q: %w", want[i].Name, err)
			}
			c.Entries, errs = append(c.Entries, e), append(errs, err)
		}
		if err := errors.Join(append(errs, checkNames(want))...); err != nil {
			return nil, Changed{}, err
		}
		changed, err := store.Change(ctx, c)
		if err != nil {
			return nil, changed, err
		}
		var taken []string
		late := false
		for i, outcome := range changed.Outcomes {
			results[i].Outcome, results[i].Next = outcome, changed.Next[i]
			late = late || outcome == Late
			if outcome == Taken {
				taken = append(taken, fmt.Sprintf("%q", want[i].Name))
			}
		}
		if len(taken) > 0 {
			return nil, changed, fmt.Errorf("%w: %s; remove it there first, or use another name", ErrTaken, strings.Join(taken, ", "))
		}
		if !late {
			return results, changed, nil
		}
		margin = max(2*margin, time.Since(began))
	}
}

// checkNames returns an error that wraps [ErrBadEntry] if a name is missing or comes twice.
func checkNames(want []Definition) error {
	seen := make(map[string]bool, len(want))
	var twice []string
	for i := range want {
		name := want[i].Name
		if name == "" {
			return fmt.Errorf("%w: definition %d has no name", ErrBadEntry, i+1)
		}
		if seen[name] {
			twice = append(twice, fmt.Sprintf("%q", name))
		}
		seen[name] = true
	}
	if len(twice) > 0 {
		return fmt.Errorf("%w: several definitions have the name %s", ErrBadEntry, strings.Join(twice, ", "))
	}
	return nil
}

// define returns the entry of a definition, and sets the fields of r that do not depend on the
// store. Next of the entry is the first run after now and margin; zero: there is no such run.
// Returns an error if the definition is invalid.
func (s *Schedule) define(d *Definition, now time.Time, margin time.Duration, r *SyncedEntry) (Entry, error) {
	spec, said, err := d.At.parse(now)
	if err != nil {
		return Entry{}, err
	}
	opts := append(d.Options[:len(d.Options):len(d.Options)], WithName(d.Name))
	content, err := s.content(&d.Call, spec, opts)
	if err != nil {
		return Entry{}, err
	}
	payload, err := encode(content, spec, s.c.EscapeSlashes)
	if err != nil {
		return Entry{}, err
	}
	next := after(spec, now.Add(margin))
	if said == "" {
		said = when.Describe(spec)
		if !next.IsZero() {
			said = echo(spec, next, now)
		}
	}
	*r = SyncedEntry{ID: NameID(d.Name), Name: d.Name, Spec: spec, Echo: said}
	return Entry{ID: r.ID, Payload: payload, Next: next}, nil
}
