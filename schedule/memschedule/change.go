package memschedule

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/schedule"
)

// Change implements [schedule.Changer], in one step. It wakes the watchers after a change that
// applies, even if no entry changed. If c is invalid, it returns [schedule.ErrBadEntry]. Returns
// [schedule.ErrClosed] after Close, and the cause of an ended ctx. After an error nothing was
// changed.
func (s *Store) Change(ctx context.Context, c schedule.Change) (schedule.Changed, error) {
	if err := errors.Join(c.Check(), s.ready(ctx)); err != nil {
		return schedule.Changed{}, err
	}
	return s.table.change(&c), nil
}

// change executes a checked change as [schedule.Changer] describes. It takes t.mu, but not while it
// wakes the watchers.
func (t *table) change(c *schedule.Change) schedule.Changed {
	t.mu.Lock()
	now := t.clock()
	changed := t.plan(c, now)
	if c.DryRun || !changed.Applied(c) {
		t.mu.Unlock()
		return changed
	}
	if c.Group != "" {
		t.groups[c.Group] = c.Revision
	}
	for i, outcome := range changed.Outcomes {
		e := t.entries[c.Entries[i].ID]
		switch outcome {
		case schedule.EntryAdded:
			e = &entry{Entry: schedule.Entry{ID: c.Entries[i].ID, Group: c.Group}}
			t.entries[e.ID], t.ids = e, nil
			t.set(e, c.Entries[i].Payload, changed.Next[i])
		case schedule.EntryChanged:
			if e.next != nil && !e.next.at.After(now) {
				e.claims = append(e.claims, t.put(&dueItem{entry: e, at: e.next.at, due: e.next.at, owner: schedule.NoOwner}))
			}
			t.set(e, c.Entries[i].Payload, changed.Next[i])
		case schedule.EntryOver:
			if e != nil {
				t.delete(e)
			}
		default: // unchanged, but it may have lost its time
			t.repair(e, changed.Next[i])
		}
	}
	for i := range changed.Removed {
		t.delete(t.entries[changed.Removed[i].ID])
	}
	t.mu.Unlock()
	t.wake()
	return changed
}

// set replaces the payload of an entry by a copy of payload, and its due time by next; zero: none.
// Call it with t.mu held.
func (t *table) set(e *entry, payload []byte, next time.Time) {
	e.Payload = slices.Clone(payload)
	t.schedule(e, next)
}

// plan returns the answer of a change at the time now, without executing it. Call it with t.mu
// held.
func (t *table) plan(c *schedule.Change, now time.Time) schedule.Changed {
	changed := schedule.Changed{}
	if c.Group != "" {
		changed.Revision = c.Revision
		if stored, ok := t.groups[c.Group]; ok && stored > c.Revision {
			return schedule.Changed{Revision: stored}
		}
	}
	wanted := make(map[string]bool, len(c.Entries))
	for i := range c.Entries {
		var old *schedule.Entry
		claimed := false
		if e := t.entries[c.Entries[i].ID]; e != nil {
			old, claimed = &e.Entry, len(e.claims) > 0
		}
		outcome, next := c.Decide(i, old, claimed, now)
		changed.Outcomes, changed.Next = append(changed.Outcomes, outcome), append(changed.Next, next)
		wanted[c.Entries[i].ID] = true
	}
	if c.Group == "" {
		return changed
	}
	for _, e := range t.entries {
		if e.Group == c.Group && !wanted[e.ID] {
			changed.Removed = append(changed.Removed, e.clone())
		}
	}
	slices.SortFunc(changed.Removed, func(a, b schedule.Entry) int { return cmp.Compare(a.ID, b.ID) })
	return changed
}
