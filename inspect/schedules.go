package inspect

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/when"
)

// minPrefix is the least length of the beginning of an id.
const minPrefix = 4

// utc returns t in UTC, and the zero time unchanged.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

// theSchedule returns the schedule.
func (l *Local) theSchedule() (*schedule.Schedule, error) {
	if l.cfg.Schedule == nil {
		return nil, missing("schedules", needSchedule)
	}
	return l.cfg.Schedule, nil
}

// entries returns all entries, those that run next first.
func entries(ctx context.Context, s *schedule.Schedule) ([]schedule.Item, error) {
	var all []schedule.Item
	seen := make(map[string]bool)
	for item, err := range s.List(ctx) {
		if err != nil {
			return nil, err
		}
		if !seen[item.ID] {
			seen[item.ID] = true
			all = append(all, item)
		}
	}
	slices.SortFunc(all, func(a, b schedule.Item) int {
		if a.Next.IsZero() != b.Next.IsZero() {
			if b.Next.IsZero() {
				return -1
			}
			return 1
		}
		return cmp.Or(a.Next.Compare(b.Next), cmp.Compare(a.ID, b.ID))
	})
	return all, nil
}

// entry finds an entry by its id, its name or the beginning of its id.
func (l *Local) entry(ctx context.Context, id string) (*schedule.Schedule, schedule.Item, error) {
	s, err := l.theSchedule()
	if err != nil {
		return nil, schedule.Item{}, err
	}
	got, err := s.Get(ctx, id)
	if errors.Is(err, schedule.ErrNotFound) {
		got, err = s.Get(ctx, schedule.NameID(id))
	}
	if CodeOf(err) != CodeNotFound || len(id) < minPrefix {
		return s, got, wrapped(err)
	}
	found := make(map[string]bool)
	for one, lerr := range s.List(ctx) {
		if lerr != nil {
			return s, got, wrapped(lerr)
		}
		if len(one.ID) > len(id) && one.ID[:len(id)] == id {
			found[one.ID], got = true, one
		}
	}
	switch len(found) {
	case 0:
		return s, got, wrapped(err)
	case 1:
		return s, got, nil
	}
	return s, got, errorf(CodeInvalid, "%d entries begin with %s; give more of the id", len(found), id)
}

// entryOf describes an entry. args adds the arguments.
func entryOf(i *schedule.Item, args bool) Schedule {
	s := Schedule{ID: i.ID, Group: i.Group, Next: utc(i.Next), Last: utc(i.Last), Paused: i.Paused, Carries: len(i.State) > 0}
	if i.Problem != nil {
		s.Problem = i.Problem.Error()
	}
	if c := i.Content; c != nil {
		s.Name, s.Task, s.When, s.Misfire, s.Overlap, s.Nonce, s.Headers = c.Name, c.Job, c.When, string(c.Misfire), string(c.Overlap), c.Nonce, c.Headers
		if args {
			s.Args = c.Args
		}
	}
	if i.Spec != nil {
		s.Means = when.Describe(i.Spec)
	}
	return s
}

// runOf describes a run.
func runOf(r *schedule.Run) ScheduleRun {
	run := ScheduleRun{Due: r.Due.UTC(), Task: r.Task}
	if r.Record != nil {
		run.State = r.Record.State
		if r.Record.Error != nil {
			run.Error = r.Record.Error.Error()
		}
	}
	return run
}

// ListSchedules implements [Schedules].
func (l *Local) ListSchedules(ctx context.Context, q ScheduleQuery) (SchedulePage, error) {
	page := SchedulePage{Schedules: []Schedule{}}
	n, err := pageLimit(q.Limit)
	if err != nil {
		return page, err
	}
	skip, err := position(q.Cursor)
	if err != nil {
		return page, err
	}
	s, err := l.theSchedule()
	if err != nil {
		return page, err
	}
	all, err := entries(ctx, s)
	if err != nil {
		return page, wrapped(err)
	}
	for i := min(skip, len(all)); i < min(skip+n, len(all)); i++ {
		e := entryOf(&all[i], false)
		last, ok, err := s.LastRun(ctx, &all[i])
		if err != nil {
			return page, wrapped(err)
		}
		if ok {
			run := runOf(&last)
			e.LastRun = &run
		}
		page.Schedules = append(page.Schedules, e)
	}
	if skip+n < len(all) {
		page.Next = strconv.Itoa(skip + n)
	}
	return page, nil
}

// GetSchedule implements [Schedules].
func (l *Local) GetSchedule(ctx context.Context, k ScheduleKey) (Schedule, error) {
	if k.Runs < 0 || k.Runs > MaxLimit {
		return Schedule{}, errorf(CodeInvalid, "the number of runs is %d, want 0 to %d", k.Runs, MaxLimit)
	}
	s, item, err := l.entry(ctx, k.ID)
	if err != nil {
		return Schedule{}, err
	}
	e := entryOf(&item, k.Args)
	ran, err := s.Runs(ctx, item.ID)
	if err != nil {
		return e, wrapped(err)
	}
	for i := range ran {
		e.Ran = append(e.Ran, runOf(&ran[i]))
	}
	if len(e.Ran) > 0 {
		e.LastRun = &e.Ran[0]
	}
	if k.Runs == 0 || item.Problem != nil {
		return e, nil
	}
	runs, err := s.Next(ctx, item.ID, k.Runs)
	for _, t := range runs {
		e.Runs = append(e.Runs, t.UTC())
	}
	return e, wrapped(err)
}

// changeEntry finds an entry and calls do, which changes it.
func (l *Local) changeEntry(ctx context.Context, what Do, id string, do func(c *Change, s *schedule.Schedule, id string) error) (Change, error) {
	s, item, err := l.entry(ctx, id)
	if err != nil {
		return Change{Do: what, Target: id}, err
	}
	return l.change(ctx, Change{Do: what, Target: item.ID}, nil, func(c *Change) error {
		err := do(c, s, item.ID)
		if err == nil {
			c.Done = 1
		}
		return err
	})
}

// RunSchedule implements [Schedules].
func (l *Local) RunSchedule(ctx context.Context, r EntryRun) (Change, error) {
	c := Change{Do: DoRunSchedule, Target: r.ID}
	return l.once(ctx, c, r.Key, "", func(ctx context.Context, _ task.ID) (Change, error) {
		return l.changeEntry(ctx, DoRunSchedule, r.ID, func(c *Change, s *schedule.Schedule, id string) error {
			added, err := s.RunNow(ctx, id)
			c.Copy, c.At = added.ID, utc(added.Next)
			return err
		})
	})
}

// PauseSchedule implements [Schedules].
func (l *Local) PauseSchedule(ctx context.Context, id string) (Change, error) {
	return l.changeEntry(ctx, DoPauseSchedule, id, func(_ *Change, s *schedule.Schedule, id string) error { return s.Pause(ctx, id) })
}

// ResumeSchedule implements [Schedules].
func (l *Local) ResumeSchedule(ctx context.Context, id string) (Change, error) {
	return l.changeEntry(ctx, DoResumeSchedule, id, func(c *Change, s *schedule.Schedule, id string) error {
		next, err := s.Resume(ctx, id)
		c.At = utc(next)
		return err
	})
}

// RemoveSchedule implements [Schedules].
func (l *Local) RemoveSchedule(ctx context.Context, id string) (Change, error) {
	return l.changeEntry(ctx, DoRemoveSchedule, id, func(_ *Change, s *schedule.Schedule, id string) error {
		was, err := s.Remove(ctx, id)
		if err == nil && !was {
			err = errorf(CodeNotFound, "entry %s: not found", id)
		}
		return err
	})
}
