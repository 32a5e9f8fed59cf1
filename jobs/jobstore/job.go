package jobstore

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// ID identifies a job. Ids are positive, begin with 1, and grow in the order in which jobs are
// created. No id is used twice. Ids stay below 2^53, so that every JSON parser reads them exactly.
type ID int64

// State is the state of a job.
type State string

// The states. A job that is over is deleted, FINISHED, FAILED or CANCELLED. FINISHED is a child
// that its parent has not seen yet, or a job that is kept for a time.
const (
	Queued    State = "QUEUED"    // runs at NextRun
	RunQueued State = "RUNQUEUED" // runs, and is claimed again at NextRun
	Running   State = "RUNNING"   // runs
	Paused    State = "PAUSED"    // a parent waits for its children, or a child for its parent to pause
	Waiting   State = "WAITING"   // waits for an earlier job of its sequence key
	Finished  State = "FINISHED"
	Failed    State = "FAILED"
	Cancelled State = "CANCELLED"
)

// Active reports whether a job of this state runs or may be claimed.
func (s State) Active() bool { return s == Queued || s == RunQueued || s == Running }

// Runs reports whether a job of this state was claimed and has not ended.
func (s State) Runs() bool { return s == Running || s == RunQueued }

// Limits of a job.
const (
	MaxName     = 255     // bytes of a name or of a sequence key
	MaxData     = 1 << 20 // bytes of data
	MaxReason   = 4 << 10 // bytes of a reason; longer ones are cut
	MaxKey      = 512     // bytes of a Key or of a UniqueKey
	MaxWeight   = 1 << 40 // thousandths
	MaxPriority = 1 << 20 // and its negative the other way

	DefaultPriority = 100
)

// Job is the part of a record that users see. jobs.Service changes its fields. A [Store] keeps them
// unchanged, times in microseconds and in UTC, as a part of a [Row].
type Job struct {
	ID ID
	// Name is the kind of work: 1 to [MaxName] bytes of UTF-8 without a NUL. Workers ask for names
	// by pattern.
	Name  string
	State State
	// Priority: lower goes first.
	Priority int
	// Data is a JSON object: the input of the job, and its progress.
	Data []byte
	// Created is when the job was created.
	Created time.Time
	// Changed is when any field was changed last.
	Changed time.Time
	// NextRun is when the job is, or was, to be claimed.
	NextRun time.Time
	// LastRun is when it was claimed last. Zero: never.
	LastRun time.Time
	// Repeat is the rule by which it repeats, as it was given ([when.ParseRepeat]). "": it does not
	// repeat.
	Repeat string
	// RetryAfter is the time after which it is claimed again while it runs, such as "+5 MINUTES".
	// "": never.
	RetryAfter string
	// Parent is the parent of this child. 0: none.
	Parent ID
	// SequenceKey: jobs of one key run one at a time, in the order of their ids. "": none.
	SequenceKey string
	// Mock: only workers that ask for such jobs claim it, and it never repeats.
	Mock bool
	// Reason is why it FAILED, or why its last attempt failed. "": neither, or no reason was given.
	Reason string

	// Queue: only the runner of a queue claims its jobs, as its limit and its throttler let it. Get
	// never does. "": no queue.
	Queue string
	// Weight counts against the limit of its queue while it runs. In thousandths: 1000 is one. 0:
	// nothing.
	Weight int64
	// Window holds the times at which it may start, as text of [when.Windows]. "": any time.
	Window string
	// Timeout is the most time of an attempt, the wait for its answer included, in whole
	// microseconds. 0: no limit.
	Timeout time.Duration
	// Deadline is when the present attempt times out. Zero: no attempt, or no limit.
	Deadline time.Time
	// Attempt numbers the present or last attempt since the job was created, requeued or finished:
	// 1 is the first. 0: none has begun.
	//
	// An attempt begins when the job is claimed while QUEUED or RUNQUEUED. It goes on when a lease
	// has ended or an answer has come.
	Attempt int64
	// UniqueKey: no other job of this name that is not over has it. "": none.
	UniqueKey string
	// Key names the job for an answer from outside, together with the job's name. No other job of
	// this name that is not over has it. "": none.
	Key string
	// Phase is the phase of its attempt. "": its worker works on it.
	Phase Phase
	// Answer is the answer from outside, any JSON value. nil: there is none, or it was a refusal,
	// whose text is in Reason.
	Answer []byte
	// Expires is when a job that is over is deleted. Zero: never.
	Expires time.Time
}

// Phase is the phase of a RUNNING job whose answer comes from outside.
type Phase string

// The phases.
const (
	Awaiting Phase = "AWAITING" // its request is sent; no worker has it; Due is its Deadline
	Answered Phase = "ANSWERED" // its answer has come, and its worker has to look at it
)

// Over reports whether a job of this state has ended.
func (s State) Over() bool { return s == Finished || s == Failed || s == Cancelled }

// OpenStates returns the states of jobs that are not over.
func OpenStates() []State { return []State{Queued, RunQueued, Running, Paused, Waiting} }

// CheckKey checks a key, which may be empty. Returns an error that wraps [ErrBadJob] if it is no
// Key or UniqueKey.
func CheckKey(key string) error {
	if len(key) > MaxKey || !utf8.ValidString(key) || strings.IndexByte(key, 0) >= 0 {
		return fmt.Errorf("%w: a key is not at most %d bytes of text", ErrBadJob, MaxKey)
	}
	return nil
}

// CheckName checks the name of a job. Returns an error that wraps [ErrBadJob] if it is none.
func CheckName(name string) error { return CheckText("name", name) }

// CheckText checks a name or a sequence key. Returns an error that wraps [ErrBadJob] and says what
// it is, if it is none.
func CheckText(what, s string) error {
	if s == "" || len(s) > MaxName || !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 {
		return fmt.Errorf("%w: the %s is not 1 to %d bytes of text", ErrBadJob, what, MaxName)
	}
	return nil
}

// CheckData checks the data of a job: one JSON object of at most [MaxData] bytes in UTF-8. Returns
// an error that wraps [ErrBadJob] otherwise.
func CheckData(data []byte) error {
	if len(data) > MaxData {
		return fmt.Errorf("%w: data of %d bytes, more than %d", ErrBadJob, len(data), MaxData)
	}
	if len(data) < 2 || data[0] != '{' || !json.Valid(data) || !utf8.Valid(data) {
		return fmt.Errorf("%w: the data are no JSON object", ErrBadJob)
	}
	return nil
}
