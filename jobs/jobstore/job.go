package jobstore

import (
	"encoding/json"
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
	MaxKey      = 512     // bytes of a Key or of a UniqueKey
	MaxWeight   = 1 << 40 // thousandths
	MaxPriority = 1 << 20 // and its negative the other way

	DefaultPriority = 100
)

// Job is what users see of a record. jobs.Service changes its fields; a [Store] keeps them as they are,
// in microseconds and in UTC, as a part of a [Row].
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
	// Repeat is how it repeats, as [when.ParseRepeat] reads it and as it was given. "": it does not.
	Repeat string
	// RetryAfter is after what time it is handed out again while it runs, as "+5 MINUTES". "": never.
	RetryAfter string
	// Parent is the job that this one is a child of. 0: none.
	Parent ID
	// SequenceKey: jobs of one key run one at a time, in the order of their ids. "": none.
	SequenceKey string
	// Mock: it is handed out only to who asks for such jobs, and never repeats.
	Mock bool
	// Reason is why it FAILED, or why its last attempt did. "": it has not, or nobody said.
	Reason string

	// Queue: jobs of a queue are handed out by the queue's runner alone, as far as its limit and its throttler let it, and never by Get. "": none.
	Queue string
	// Weight is how much of its queue's limit it takes while it runs, in thousandths: 1000 is one. 0: nothing.
	Weight int64
	// Window holds the times at which it may start, as [when.Windows] writes them. "": any time.
	Window string
	// Timeout is how long an attempt may take, its answer included; in microseconds, 0 for no end.
	Timeout time.Duration
	// Deadline is when its present attempt times out. Zero: it is in none, or that has no end.
	Deadline time.Time
	// Attempt is the number of the present attempt, or of the last one, since the job was made,
	// requeued or finished: 1 is the first. 0: none has begun. An attempt begins when the job is
	// handed out while QUEUED or RUNQUEUED. It goes on where a lease has ended or an answer has come.
	Attempt int64
	// UniqueKey: no other job of this name has it that is not over. "": none.
	UniqueKey string
	// Key is what an answer from outside names it by, together with its name: no other job of this name has it that is not over. "": none.
	Key string
	// Phase is how far its attempt is. "": what runs it is at it.
	Phase Phase
	// Answer is the answer from outside, any JSON value. nil: there is none, or it was a refusal, which Reason then tells.
	Answer []byte
	// Expires is when a job that is over is deleted. Zero: it is kept.
	Expires time.Time
}

// Phase is how far a job of state RUNNING is whose answer comes from outside.
type Phase string

// The phases.
const (
	Awaiting Phase = "AWAITING" // what runs it has sent a request, and is done with it until there is an answer: Due is its Deadline
	Answered Phase = "ANSWERED" // there is an answer, at which what runs it is to look
)

// Over reports whether a job of this state has come to its end.
func (s State) Over() bool { return s == Finished || s == Failed || s == Cancelled }

// CheckKey returns nil when key may be the Key or the UniqueKey of a job, or is empty. Else the error
// wraps [ErrBadJob].
func CheckKey(key string) error {
	if len(key) > MaxKey || !utf8.ValidString(key) || strings.IndexByte(key, 0) >= 0 {
		return fmt.Errorf("%w: a key is not at most %d bytes of text", ErrBadJob, MaxKey)
	}
	return nil
}

// CheckName returns nil when name may be the name of a job, else an error that wraps [ErrBadJob].
func CheckName(name string) error { return CheckText("name", name) }

// CheckText returns nil when s may be a name or a key of a job, else an error that wraps [ErrBadJob]
// and says what it is.
func CheckText(what, s string) error {
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
