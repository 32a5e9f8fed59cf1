package jobstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// Row is a job as a [Store] keeps it. It adds what fences a run, names its task, and says when it
// is due.
type Row struct {
	Job
	// Run counts the runs: the times that the job was handed out while QUEUED. It is part of the id
	// of the run's task (jobs.TaskID).
	Run int64
	// Token is the fence: it grows each time that the job is handed out, and an older one ends
	// nothing.
	Token int64
	// Scheduled is the NextRun with which the present or last run began. Zero: it never ran.
	Scheduled time.Time
	// Due is when a store may hand the job out. It is the NextRun of one that is QUEUED or
	// RUNQUEUED, the end of the lease of one that is RUNNING, and its Deadline while it awaits its
	// answer. Zero: not at all.
	Due time.Time
	// Handouts counts how often a job with RetryAfter was handed out in its present run. 0 for other
	// jobs, and for those that are handed out without end.
	Handouts int32
	// HasChildren: the job has, or had, children.
	HasChildren bool
	// Respond: what runs the job looks at its answer, which else ends the job.
	Respond bool
	// Message is the task with conditions that the job was made of, a JSON object. Save writes that
	// of a new job. What reads jobs leaves it empty ([Finder.Messages] returns it). "": there is none.
	Message string
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

// checkQueued looks at what concerns queues and answers.
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
