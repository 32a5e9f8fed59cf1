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
	// Token is the fencing token of the attempt. 0: any caller may, whether the job runs or not.
	Token int64
	// Data replaces the job's data, and is required.
	Data []byte
	// Repeat, if set, replaces the job's, and its NextRun is computed anew. SCHEDULED counts from
	// the time at which its run, or the next one, was due. STARTED counts from its last run,
	// FINISHED from now. "": it no longer repeats, and NextRun stays.
	Repeat task.Opt[string]
	// Priority, if set, replaces the job's.
	Priority task.Opt[int]
	// NextRun, if not zero, is the next run, rounded up to a microsecond; it goes before Repeat. A
	// RUNQUEUED job is claimed again then. A running job that repeats gets another one when its run
	// ends.
	NextRun time.Time
}

// Update replaces the data of a job in any state, and the other set fields. Queries show it at
// once: a run reports its progress by it.
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
