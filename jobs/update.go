package jobs

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/task"
)

// Update describes a change of a job.
type Update struct {
	ID ID
	// Token is the fencing token of the attempt. 0: any token matches, and the job need not run.
	Token int64
	// Data replaces the job's data. It is required.
	Data []byte
	// Repeat, if set, replaces the repeat of the job, and its NextRun is computed again. SCHEDULED
	// counts from the time at which the current run, or the next one, was due. STARTED counts from the
	// last claim, FINISHED from now. "": the job no longer repeats, and NextRun stays.
	Repeat task.Opt[string]
	// Priority, if set, replaces the priority of the job.
	Priority task.Opt[int]
	// NextRun, if not zero, is the time of the next run, rounded up to microseconds. It overrides
	// Repeat. A RUNQUEUED job is claimed again at this time. A running job that repeats gets another
	// NextRun when its run ends.
	NextRun time.Time
}

// Update replaces the data of a job in any state, and the other fields that are set. Queries see
// the change at once, so a run can report its progress. A mock job ignores Repeat. The lease of a
// RUNNING job stays.
//
// NextRun becomes u.NextRun. If that is zero and Repeat is set, it is computed by the new Repeat,
// from Scheduled if the job runs, else from NextRun. It is then moved into the job's windows unless
// the job runs.
//
// Returns [ErrNotFound] if the job does not exist and a [FieldError] for a missing or invalid
// field. A Repeat for a job with a SequenceKey is invalid. Returns [ErrStale] if u.Token is not the
// token of the current attempt. Returns errors of the store; after [ErrUnavailable] the change may
// be stored. The call counts as [Stats].Updated, or as Stale after ErrStale.
func (s *Service) Update(ctx context.Context, u Update) error {
	if u.Data == nil {
		return &FieldError{Field: "data", Problem: rules.Missing}
	}
	data, err := rules.CheckGiven(u.Data)
	if err != nil {
		return err
	}
	text, repeat, err := s.checkRepeat(u.Repeat.Or(""))
	if err != nil {
		return err
	}
	if u.NextRun, err = rules.CheckTime("nextRun", u.NextRun); err != nil {
		return err
	}
	if err := rules.CheckPriority(u.Priority); err != nil {
		return err
	}
	var l txn.Locks
	err = s.txn.Do(ctx, &l, func(ctx context.Context, t *txn.Step) error {
		j, err := t.Tx.Get(ctx, u.ID)
		if err != nil {
			return err
		}
		if err := rules.CheckToken(&j, u.Token); err != nil {
			return err
		}
		j.Data = data
		j.Priority = u.Priority.Or(j.Priority)
		if u.Repeat.IsSet() && !j.Mock {
			if text != "" && j.SequenceKey != "" {
				return &FieldError{Field: "repeat", Problem: "not together with sequenceKey"}
			}
			j.Repeat = text
		}
		switch {
		case !u.NextRun.IsZero():
			j.NextRun = u.NextRun
		case repeat != nil && !j.Mock:
			scheduled := j.NextRun
			if j.State.Runs() {
				scheduled = j.Scheduled
			}
			if j.NextRun, err = s.repeatFrom(repeat, scheduled, j.LastRun, t.Now); err != nil {
				return rules.Refusal("repeat", err)
			}
		}
		if !j.State.Runs() {
			j.NextRun = s.windows.Place(&j, j.NextRun, t.Now)
		}
		return t.Save(ctx, &j)
	})
	return s.counted(&s.count.updated, err)
}
