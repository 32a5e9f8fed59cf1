package redisschedule

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/schedule"
)

// outcomes are the outcomes in the answer of change.lua. 'n' is unchanged, without a due time.
var outcomes = map[byte]schedule.Outcome{
	'a': schedule.EntryAdded, 'c': schedule.EntryChanged, 'u': schedule.EntryUnchanged, 'n': schedule.EntryUnchanged,
	'o': schedule.EntryOver, 'l': schedule.Late, 't': schedule.Taken,
}

// Change implements [schedule.Changer], in one script. New entries go to the keys that listeners of
// other programs do not see.
//
// An unchanged entry that has lost its due time gets it back in further calls to the server. If c
// is invalid, it returns [schedule.ErrBadEntry]. Other errors are wrapped by wrap; the change may
// have been made then.
func (s *Store) Change(ctx context.Context, c schedule.Change) (schedule.Changed, error) {
	if err := c.Check(); err != nil {
		return schedule.Changed{}, err
	}
	args := []any{s.now(), c.Group, c.Revision, flag(c.DryRun), lastLease()}
	for i := range c.Entries {
		e := &c.Entries[i]
		next := ""
		if !e.Next.IsZero() {
			next = strconv.FormatInt(e.Next.UnixMilli(), 10)
		}
		args = append(args, e.ID, e.Payload, member(e.ID), next)
	}
	v, err := s.eval(ctx, "change", s.scripts.change, s.all(), args...)
	if err != nil {
		return schedule.Changed{}, err
	}
	changed, lost, err := readChanged(v, &c)
	if err != nil {
		return schedule.Changed{}, fmt.Errorf("redisschedule change: %w: %w", schedule.ErrUnavailable, err)
	}
	if len(lost) == 0 || c.DryRun || !changed.Applied(&c) {
		return changed, nil
	}
	ids := make(map[string]bool, len(lost))
	for _, i := range lost {
		ids[c.Entries[i].ID] = true
	}
	if err := s.deleteClaimed(ctx, &s.published, ids); err != nil {
		return schedule.Changed{}, err
	}
	if err := s.repairLost(ctx, &s.own, c.Entries, lost, ids); err != nil {
		return schedule.Changed{}, err
	}
	for _, i := range lost {
		if ids[c.Entries[i].ID] {
			changed.Next[i] = c.Entries[i].Next
		}
	}
	return changed, nil
}

// readChanged decodes v, the answer of change.lua to c. lost holds the indexes of unchanged entries
// that have neither a due time nor a pause and that c gives a due time. If the group has a higher
// revision than c, only changed.Revision is set. Returns an error for an answer of another form.
func readChanged(v any, c *schedule.Change) (changed schedule.Changed, lost []int, err error) {
	list, ok := v.([]any)
	if !ok || len(list) == 0 {
		return changed, nil, fmt.Errorf("the answer is a %T of %d", v, len(list))
	}
	if c.Group != "" {
		if changed.Revision, err = strconv.ParseInt(text(list[0]), 10, 64); err != nil || changed.Revision > c.Revision {
			return changed, nil, err
		}
	}
	n := len(c.Entries)
	if len(list) < 2+n || len(text(list[1])) != n || (len(list)-n)%2 != 0 {
		return changed, nil, fmt.Errorf("the answer has %d values for %d entries", len(list), n)
	}
	for i := range n {
		code := text(list[1])[i]
		next := time.Time{}
		if at := text(list[2+i]); at != "" {
			if next, err = instant(at); err != nil {
				return changed, nil, err
			}
		}
		// An entry that is over must not get a time.
		if code == 'n' && !c.Entries[i].Next.IsZero() {
			lost = append(lost, i)
		}
		changed.Outcomes, changed.Next = append(changed.Outcomes, outcomes[code]), append(changed.Next, next)
	}
	for row := list[2+n:]; len(row) > 0; row = row[2:] {
		changed.Removed = append(changed.Removed, schedule.Entry{ID: text(row[0]), Payload: []byte(text(row[1])), Group: c.Group})
	}
	slices.SortFunc(changed.Removed, func(a, b schedule.Entry) int { return cmp.Compare(a.ID, b.ID) })
	return changed, lost, nil
}
