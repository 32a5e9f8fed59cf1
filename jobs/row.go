package jobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// Row is a job as a [Store] keeps it: what fences a run, what names its task, and when it is due come on top.
type Row struct {
	Job
	// Run counts its runs: how often it was handed out while QUEUED. It is part of the id of the run's task ([TaskID]).
	Run int64
	// Token counts how often it was handed out at all, after the end of a lease too. It is the fence: what ran it before cannot end it.
	Token int64
	// Handouts counts how often a job with RetryAfter was handed out in its present run. 0 for others, and for those that are handed out without end.
	Handouts int64
	// Scheduled is the NextRun that it had when its present or last run was handed out for the first time. Zero: never.
	Scheduled time.Time
	// Due is when a store may hand it out: NextRun of one that is QUEUED or RUNQUEUED, the end of the lease of one that is RUNNING under
	// one, its Deadline while it awaits its answer. Zero: not at all.
	Due time.Time
	// HasChildren: there was a child of it at some time.
	HasChildren bool
	// Respond: what runs it looks at the answer, which else ends the job.
	Respond bool
	// Message is that of the task with conditions that the job was made of, a JSON object. It is written with a new job, and stays what it is; what reads jobs leaves it
	// nil ([Tx.Messages] returns it). nil: the job is of no task.
	Message []byte
}

// Simple reports whether the job stands for itself: to hand it out or to end it needs no look at others, nor at a rule of time, and it is not kept
// when it has ended.
func (j *Row) Simple() bool {
	return j.Repeat == "" && j.RetryAfter == "" && j.Parent == 0 && !j.HasChildren && j.SequenceKey == "" && j.Queue == "" && j.Key == ""
}

// Check returns every reason why a store must not keep j, joined, or nil. Each wraps [ErrBadJob].
func (j *Row) Check() error {
	errs := []error{CheckName(j.Name)}
	if j.SequenceKey != "" {
		errs = append(errs, checkText("sequence key", j.SequenceKey))
	}
	switch j.State {
	case Queued, RunQueued, Running, Paused, Waiting, Finished, Failed, Cancelled:
	default:
		errs = append(errs, fmt.Errorf("%w: the state %.20q", ErrBadJob, j.State))
	}
	if j.Priority < -MaxPriority || j.Priority > MaxPriority {
		errs = append(errs, fmt.Errorf("%w: the priority %d, not -%d to %d", ErrBadJob, j.Priority, MaxPriority, MaxPriority))
	}
	errs = append(errs, CheckData(j.Data), j.checkQueued())
	if j.Message != nil {
		errs = append(errs, CheckData(j.Message))
	}
	for _, t := range []time.Time{j.Created, j.Changed, j.NextRun, j.LastRun, j.Scheduled, j.Due, j.Deadline, j.Expires} {
		if t.IsZero() {
			continue
		}
		if y := t.UTC().Year(); y < 0 || y > 9999 {
			errs = append(errs, fmt.Errorf("%w: a time in the year %d", ErrBadJob, y))
		}
	}
	return errors.Join(errs...)
}

// checkQueued looks at what concerns queues and answers.
func (j *Row) checkQueued() error {
	var errs []error
	if j.Queue != "" {
		errs = append(errs, checkText("queue", j.Queue))
	}
	if j.Weight < 0 || j.Weight > MaxWeight {
		errs = append(errs, fmt.Errorf("%w: the weight %d, not 0 to %d", ErrBadJob, j.Weight, int64(MaxWeight)))
	}
	if j.Timeout < 0 || j.Attempt < 0 {
		errs = append(errs, fmt.Errorf("%w: a timeout or a number of attempts below 0", ErrBadJob))
	}
	for _, key := range []string{j.Key, j.UniqueKey} {
		if err := checkKey(key); err != nil {
			errs = append(errs, err)
		}
	}
	switch j.Phase {
	case "", Awaiting, Answered:
	default:
		errs = append(errs, fmt.Errorf("%w: the phase %.20q", ErrBadJob, j.Phase))
	}
	if len(j.Answer) > MaxData || j.Answer != nil && (!json.Valid(j.Answer) || !utf8.Valid(j.Answer)) {
		errs = append(errs, fmt.Errorf("%w: the answer is not at most %d bytes of JSON", ErrBadJob, MaxData))
	}
	return errors.Join(errs...)
}
