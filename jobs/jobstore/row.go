package jobstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// Row is a job as a [Store] keeps it. It adds fencing tokens, the number that names its task, and
// its due time.
type Row struct {
	Job
	// Run counts the runs: the times that the job was handed out while QUEUED. It is part of the id
	// of the run's task (jobs.TaskID).
	Run int64
	// Token is the fencing token. Each claim makes it grow. A worker with an older one ends
	// nothing.
	Token int64
	// Scheduled is the NextRun of the present or last run. Zero: it never ran.
	Scheduled time.Time
	// Due is when a store may let the job be claimed. Zero: never. It is
	//
	//   - the NextRun of a job that is QUEUED or RUNQUEUED;
	//   - the end of the lease of a RUNNING job;
	//   - the Deadline of a job that awaits its answer.
	Due time.Time
	// Handouts counts the claims of a job with RetryAfter in its present run. 0 for other jobs, and
	// for jobs that are claimed without end.
	Handouts int32
	// HasChildren: the job has, or had, children.
	HasChildren bool
	// Respond: the worker of the job looks at its answer. Off: the answer ends the job.
	Respond bool
	// Message is the task with conditions that the job was made of, a JSON object. "": none. Save
	// stores the Message of a new job. Reads leave it empty; [Finder.Messages] returns it.
	Message string
}

// Simple reports whether the job concerns nothing else: no other job, no rule of time, no queue and
// no key. It is not kept when it has ended.
func (j *Row) Simple() bool {
	return j.Repeat == "" && j.RetryAfter == "" && j.Parent == 0 && !j.HasChildren && j.SequenceKey == "" && j.Queue == "" && j.Key == ""
}

// Check returns all reasons why a store must not keep j, joined, or nil. Each wraps [ErrBadJob].
func (j *Row) Check() error {
	errs := []error{CheckName(j.Name)}
	if j.SequenceKey != "" {
		errs = append(errs, CheckText("sequence key", j.SequenceKey))
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
	if j.Message != "" {
		errs = append(errs, CheckData([]byte(j.Message)))
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

// checkQueued checks the fields of queues and answers.
func (j *Row) checkQueued() error {
	var errs []error
	if j.Queue != "" {
		errs = append(errs, CheckText("queue", j.Queue))
	}
	if j.Weight < 0 || j.Weight > MaxWeight {
		errs = append(errs, fmt.Errorf("%w: the weight %d, not 0 to %d", ErrBadJob, j.Weight, int64(MaxWeight)))
	}
	if j.Timeout < 0 || j.Attempt < 0 {
		errs = append(errs, fmt.Errorf("%w: a timeout or a number of attempts below 0", ErrBadJob))
	}
	for _, key := range []string{j.Key, j.UniqueKey} {
		if err := CheckKey(key); err != nil {
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
