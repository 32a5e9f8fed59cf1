package sqlschedule

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/schedule"
)

var (
	// errUndone rolls a transaction back that changes nothing.
	errUndone = errors.New("sqlschedule: nothing was changed")
	// errRaced rolls a transaction back that another one has overtaken.
	errRaced = errors.New("sqlschedule: another transaction added an entry")
)

// Change implements [schedule.Changer] in one transaction, which locks the group's row and then the
// entries. It notifies the watchers after a change that applies, even if no entry changed. If c is
// invalid, it returns [schedule.ErrBadEntry]. Errors are wrapped by wrap; after
// [schedule.ErrUnavailable] the change may be committed.
func (s *Store) Change(ctx context.Context, c schedule.Change) (schedule.Changed, error) {
	if err := c.Check(); err != nil {
		return schedule.Changed{}, err
	}
	for {
		var changed schedule.Changed
		err := s.update(ctx, "change", func(ctx context.Context, tx *sqlconn.Tx) (err error) {
			changed, err = s.change(ctx, tx, &c)
			return err
		})
		switch {
		case errors.Is(err, errRaced):
		case err != nil && !errors.Is(err, errUndone):
			return schedule.Changed{}, err
		default:
			return changed, nil
		}
	}
}

// change executes a checked change in a transaction and returns its answer. Returns errUndone if
// the transaction must be rolled back although the answer is right: with DryRun, or if the change
// does not apply. Returns errRaced if it must be repeated, and errors of the database.
func (s *Store) change(ctx context.Context, tx *sqlconn.Tx, c *schedule.Change) (schedule.Changed, error) {
	var changed schedule.Changed
	if c.Group != "" {
		// The row stays locked, so that no other revision is applied meanwhile.
		if err := tx.Row(ctx, s.text.revise, s.name, c.Group, c.Revision).Scan(&changed.Revision); err != nil {
			return changed, err
		}
		if changed.Revision > c.Revision {
			return changed, errUndone
		}
	}
	w := &work{store: s, entries: make(map[string]*entry)}
	stored, err := w.loadGroup(ctx, tx, c)
	if err != nil {
		return changed, err
	}
	var added, altered [][]any
	for i := range c.Entries {
		e := &c.Entries[i]
		old, at := stored[e.ID], w.entries[e.ID]
		outcome, next := c.Decide(i, old, at != nil && len(at.claims) > 0, time.UnixMilli(w.now))
		changed.Outcomes, changed.Next = append(changed.Outcomes, outcome), append(changed.Next, next)
		switch {
		case outcome == schedule.EntryAdded:
			added = append(added, []any{e.ID, hex.EncodeToString(e.Payload), next.UnixMilli(), c.Group, w.now})
		case outcome == schedule.EntryChanged:
			altered = append(altered, []any{e.ID, hex.EncodeToString(e.Payload), millis(next)})
			if at.next != nil && *at.next <= w.now {
				at.claims = append(at.claims, &claim{due: *at.next, owner: schedule.NoOwner, until: *at.next, changed: true})
			}
		case outcome == schedule.EntryOver && at != nil:
			at.remove()
		case outcome == schedule.EntryUnchanged && old.Next.IsZero() && !next.IsZero():
			at.schedule(next) // it had lost its time
		}
		delete(stored, e.ID)
	}
	for id, old := range stored {
		w.entries[id].remove()
		changed.Removed = append(changed.Removed, *old)
	}
	slices.SortFunc(changed.Removed, func(a, b schedule.Entry) int { return cmp.Compare(a.ID, b.ID) })
	if c.DryRun || !changed.Applied(c) {
		return changed, errUndone
	}
	tx.Notify(s.topic)
	if err := w.save(ctx, tx); err != nil {
		return changed, err
	}
	return changed, s.write(ctx, tx, added, altered)
}

// loadGroup locks the entries of c and of its group, and reads them and their claims into w. It
// returns the entries by their ids, and the first error of the database.
func (w *work) loadGroup(ctx context.Context, tx *sqlconn.Tx, c *schedule.Change) (map[string]*schedule.Entry, error) {
	ids := [][]any{}
	for i := range c.Entries {
		ids = append(ids, []any{c.Entries[i].ID})
	}
	members, err := column1(ctx, tx, w.store.text.members, w.store.name, c.Group)
	if err != nil {
		return nil, err
	}
	for _, id := range members {
		ids = append(ids, []any{id})
	}
	list := asJSON(ids)
	if err := w.load(ctx, tx, list); err != nil {
		return nil, err
	}
	found, err := read(ctx, tx, w.store.text.whole, w.store.name, list)
	stored := make(map[string]*schedule.Entry, len(found))
	for i := range found {
		if w.entries[found[i].ID] != nil { // otherwise it was added after the locks
			stored[found[i].ID] = &found[i]
		}
	}
	return stored, err
}

// write adds and changes entries. added and altered are rows for the statements put and alter.
// Returns errRaced if another transaction added one of the entries, and errors of the database.
func (s *Store) write(ctx context.Context, tx *sqlconn.Tx, added, altered [][]any) error {
	if len(altered) > 0 {
		if _, err := tx.Exec(ctx, s.text.alter, s.name, asJSON(altered)); err != nil {
			return err
		}
	}
	if len(added) == 0 {
		return nil
	}
	ids, err := column1(ctx, tx, s.text.put, s.name, asJSON(added))
	if err == nil && len(ids) < len(added) {
		return errRaced
	}
	return err
}

// column1 runs a query and returns the texts in the only column of its rows.
func column1(ctx context.Context, tx *sqlconn.Tx, query string, args ...any) ([]string, error) {
	rows, err := tx.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	var found []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		found = append(found, text)
	}
	return found, errors.Join(rows.Err(), rows.Close())
}

// remove marks an entry and its claims as deleted; save deletes them.
func (e *entry) remove() {
	e.gone = true
	for _, c := range e.claims {
		c.gone = true
	}
}

// refOf returns the Tick.Ref of an entry with this version. An entry that Add added has the version
// 0 and no Ref. One that Change added begins with the time, so that it differs from a removed one.
func refOf(version int64) string {
	if version == 0 {
		return ""
	}
	return strconv.FormatInt(version, 10)
}

// writeRuns returns the instants as a text, in milliseconds with blanks between them.
func writeRuns(runs []time.Time) string {
	parts := make([]string, len(runs))
	for i, t := range runs {
		parts[i] = strconv.FormatInt(t.UnixMilli(), 10)
	}
	return strings.Join(parts, " ")
}

// readRuns reads the text of writeRuns. It leaves out parts that are not numbers.
func readRuns(text string) []time.Time {
	var runs []time.Time
	for _, part := range strings.Fields(text) {
		if ms, err := strconv.ParseInt(part, 10, 64); err == nil {
			runs = append(runs, time.UnixMilli(ms).UTC())
		}
	}
	return runs
}
