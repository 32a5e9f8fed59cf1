package jobstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// Row is a job with the fields that only stores and workers use: counts, the fencing token, and the
// due time.
type Row struct {
	Job
	// Run counts the runs: the claims of the job while QUEUED. It is part of the id of the run's task
	// (jobs.TaskID).
	Run int64
	// Token is the fencing token. Each claim increases it. A worker with an older token cannot end the
	// attempt.
	Token int64
	// Scheduled is the NextRun for which the current or last run was due. Zero: the job never ran.
	Scheduled time.Time
	// Due is the time at which the job may be claimed. Zero: it may not. It is
	//
	//   - NextRun for a job that is QUEUED or RUNQUEUED;
	//   - the end of the lease for a RUNNING job;
	//   - Deadline for a job that awaits its answer.
	Due time.Time
	// Handouts counts the claims of a job with RetryAfter in its current run. 0 for other jobs, and
	// for jobs that are claimed again without limit.
	Handouts int32
	// HasChildren reports that the job has, or once had, children.
	HasChildren bool
	// Respond makes a worker handle the answer of the job. Off: the answer ends the job.
	Respond bool
	// Message is the message of the task with conditions that the job was created for, a JSON object.
	// "": no task. Save stores the Message of a new job. Reads leave it empty; [Finder.Messages]
	// returns it.
	Message string
}

// Simple reports whether the job has no Repeat, RetryAfter, Parent, children, SequenceKey, Queue or
// Key. A job that once had children is not simple. A simple job affects no other job and is deleted
// when it has ended.
func (j *Row) Simple() bool {
	return j.Repeat == "" && j.RetryAfter == "" && j.Parent == 0 && !j.HasChildren && j.SequenceKey == "" && j.Queue == "" && j.Key == ""
}

// Check returns all reasons why a store must not save j, joined, or nil. Each wraps [ErrBadJob]. It
// checks the form of each field: lengths, UTF-8, JSON, known states and phases, ranges of numbers,
// and years from 0000 to 9999. It does not check that fields fit together.
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

// checkQueued returns the errors of the fields for queues and answers, joined, or nil: Queue,
// Weight, Timeout, Attempt, Key, UniqueKey, Phase and Answer.
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
