package jobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// ID names a job. Ids are positive, begin with 1, grow in the order in which jobs are made, are never used again, and stay below
// 2^53, so that every JSON parser reads them as they are.
type ID int64

// State is where a job stands.
type State string

// The states. A job that is over is deleted, FINISHED (a child, which its parent still wants to see), FAILED or CANCELLED.
const (
	Queued    State = "QUEUED"    // runs when its time has come
	RunQueued State = "RUNQUEUED" // runs, and is handed out again at NextRun if it has not ended by then
	Running   State = "RUNNING"   // runs
	Paused    State = "PAUSED"    // a parent that waits for its children, or a child that waits for its parent to pause
	Waiting   State = "WAITING"   // waits for the job before it that has the same sequence key
	Finished  State = "FINISHED"
	Failed    State = "FAILED"
	Cancelled State = "CANCELLED"
)

// Active reports whether a job of this state runs or may be handed out.
func (s State) Active() bool { return s == Queued || s == RunQueued || s == Running }

// Runs reports whether a job of this state was handed out and has not ended.
func (s State) Runs() bool { return s == Running || s == RunQueued }

// Limits of a job.
const (
	MaxName     = 255     // bytes of a name or of a sequence key
	MaxData     = 1 << 20 // bytes of data
	MaxReason   = 4 << 10 // bytes of a reason; longer ones are cut
	MaxPriority = 1 << 20 // and its negative the other way

	DefaultPriority = 100
)

// Job is one record. Which of its fields change, and when, is the business of [Service]; a [Store] keeps them as they are, in
// microseconds and in UTC.
type Job struct {
	ID ID
	// Name says what is to be done: 1 to [MaxName] bytes of UTF-8 without a NUL. Workers ask for names by pattern.
	Name  string
	State State
	// Priority: lower goes first.
	Priority int
	// Data is a JSON object: what the job is about, and what it has reached so far.
	Data []byte
	// Created is when it was made.
	Created time.Time
	// Changed is when anything of it was changed last.
	Changed time.Time
	// NextRun is when it is, or was, to be handed out.
	NextRun time.Time
	// LastRun is when it was handed out last. Zero: never.
	LastRun time.Time
	// Scheduled is the NextRun that it had when its present or last run was handed out for the first time. Zero: never.
	Scheduled time.Time
	// Due is when a store may hand it out: NextRun of one that is QUEUED or RUNQUEUED, the end of the lease of one that is RUNNING under
	// one. Zero: not at all.
	Due time.Time
	// Repeat is how it repeats, as [schedule.ParseRepeat] reads it and as it was given. "": it does not.
	Repeat string
	// RetryAfter is after what time it is handed out again while it runs, as "+5 MINUTES". "": never.
	RetryAfter string
	// Parent is the job that this one is a child of. 0: none.
	Parent ID
	// HasChildren: there was a child of it at some time.
	HasChildren bool
	// SequenceKey: jobs of one key run one at a time, in the order of their ids. "": none.
	SequenceKey string
	// Mock: it is handed out only to who asks for such jobs, and never repeats.
	Mock bool
	// Run counts its runs: how often it was handed out while QUEUED.
	Run int64
	// Token counts how often it was handed out at all, after the end of a lease too. It is the fence: who ran it before cannot end it.
	Token int64
	// Reason is why it FAILED. "": it has not, or nobody said.
	Reason string
}

// Simple reports whether the job stands for itself: to hand it out or to end it needs no look at others, nor at a rule of time.
func (j *Job) Simple() bool {
	return j.Repeat == "" && j.RetryAfter == "" && j.Parent == 0 && !j.HasChildren && j.SequenceKey == ""
}

// Check returns every reason why a store must not keep j, joined, or nil. Each wraps [ErrBadJob].
func (j *Job) Check() error {
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
	errs = append(errs, CheckData(j.Data))
	for _, t := range []time.Time{j.Created, j.Changed, j.NextRun, j.LastRun, j.Scheduled, j.Due} {
		if t.IsZero() {
			continue
		}
		if y := t.UTC().Year(); y < 0 || y > 9999 {
			errs = append(errs, fmt.Errorf("%w: a time in the year %d", ErrBadJob, y))
		}
	}
	return errors.Join(errs...)
}

// CheckName returns nil when name may be the name of a job, else an error that wraps [ErrBadJob].
func CheckName(name string) error { return checkText("name", name) }

func checkText(what, s string) error {
	if s == "" || len(s) > MaxName || !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 {
		return fmt.Errorf("%w: the %s is not 1 to %d bytes of text", ErrBadJob, what, MaxName)
	}
	return nil
}

// CheckData returns nil when data may be the data of a job: one JSON object of at most [MaxData] bytes in UTF-8. Else the error
// wraps [ErrBadJob].
func CheckData(data []byte) error {
	if len(data) > MaxData {
		return fmt.Errorf("%w: data of %d bytes, more than %d", ErrBadJob, len(data), MaxData)
	}
	if len(data) < 2 || data[0] != '{' || !json.Valid(data) || !utf8.Valid(data) {
		return fmt.Errorf("%w: the data are no JSON object", ErrBadJob)
	}
	return nil
}
