package schedule

import (
	"context"
	"errors"
	"time"

	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// Run is one of the last runs of an entry.
type Run struct {
	// Due is the instant of the run's tick, and Task the id of its task.
	Due  time.Time
	Task task.ID
	// Record is the result of the run. nil: the Schedule has no result store, or the store has no
	// record of the task.
	Record *resultstore.Record
}

// Runs returns the last runs of an entry, at most [KeptRuns], the newest first. They include runs
// that have not ended yet. Run.Record is read from Config.Results, where the consumer of the task,
// or a listener that runs it in place, stores the result. Runs changes nothing.
//
// Only runs of entries with a name ([WithName]) or with [OverlapSkip] are kept; for other entries
// it returns none. Returns [ErrNotFound] if the entry does not exist, and [ErrUnsupported] if the
// store is not a [Lister]. It also returns errors of the schedule's store and of the result store.
func (s *Schedule) Runs(ctx context.Context, id string) ([]Run, error) {
	it, err := s.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	runs := make([]Run, len(it.Runs))
	for i, due := range it.Runs {
		if runs[i], err = s.run(ctx, id, due); err != nil {
			return nil, err
		}
	}
	return runs, nil
}

// LastRun returns the last run of an entry that [Schedule.List] or [Schedule.Get] returned, as Runs
// does. It returns false if the entry has no run, and after an error of the result store.
func (s *Schedule) LastRun(ctx context.Context, it *Item) (Run, bool, error) {
	if len(it.Runs) == 0 {
		return Run{}, false, nil
	}
	run, err := s.run(ctx, it.ID, it.Runs[0])
	return run, err == nil, err
}

// run returns the run of an entry at the instant due, with its record. Without a result store or a
// record, Run.Record is nil. Returns other errors of the result store.
func (s *Schedule) run(ctx context.Context, id string, due time.Time) (Run, error) {
	run := Run{Due: due, Task: TickID(s.name, id, due)}
	if s.c.Results == nil {
		return run, nil
	}
	record, err := s.c.Results.Load(ctx, run.Task)
	switch {
	case errors.Is(err, resultstore.ErrNotFound):
		return run, nil
	case err != nil:
		return run, err
	}
	run.Record = &record
	return run, nil
}
