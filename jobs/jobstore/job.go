package jobstore

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// ID identifies a job. Ids are positive, begin with 1, and grow in the order in which jobs are
// created. No id is used twice. Ids are below 2^53, so that every JSON parser reads them exactly.
type ID int64

// State is the state of a job.
type State string

// The states. A job that is over is FINISHED, FAILED, CANCELLED or deleted. A FINISHED job is a
// child that its parent has not seen yet, or a job whose record stays for a time.
const (
	Queued    State = "QUEUED"    // runs at NextRun
	RunQueued State = "RUNQUEUED" // runs, and is claimed again at NextRun
	Running   State = "RUNNING"   // runs, or awaits its answer
	// a parent waits for its children, or a child waits until its parent pauses
	Paused    State = "PAUSED"
	Waiting   State = "WAITING" // waits for an earlier job of its sequence key
	Finished  State = "FINISHED"
	Failed    State = "FAILED"
	Cancelled State = "CANCELLED"
)

// Active reports whether a job in this state runs or may be claimed: QUEUED, RUNQUEUED or RUNNING.
func (s State) Active() bool { return s == Queued || s == RunQueued || s == Running }

// Runs reports whether a job in this state was claimed and its attempt has not ended: RUNNING or
// RUNQUEUED. A job that awaits its answer also runs.
func (s State) Runs() bool { return s == Running || s == RunQueued }

// Limits of a job.
const (
	MaxName     = 255     // bytes of a name or of a sequence key
	MaxData     = 1 << 20 // bytes of data
	MaxReason   = 4 << 10 // bytes of a reason; longer ones are cut
	MaxKey      = 512     // bytes of a Key or of a UniqueKey
	MaxWeight   = 1 << 40 // thousandths
	MaxPriority = 1 << 20 // priorities are from -MaxPriority to MaxPriority

	DefaultPriority = 100
)

// Job is the part of a record that programs read. jobs.Service changes its fields. A [Store]
// returns them as they were saved, as a part of a [Row]. Times are in UTC and in microseconds.
type Job struct {
	ID ID
	// Name is the kind of work: 1 to [MaxName] bytes of UTF-8 without a NUL. Workers claim jobs by
	// names or by a pattern.
	Name  string
	State State
	// Priority orders due jobs: a lower number comes first.
	Priority int
	// Data is a JSON object: the input of the job, and its progress.
	Data []byte
	// Created is the time of creation.
	Created time.Time
	// Changed is the time of the last change of any field.
	Changed time.Time
	// NextRun is the time at which the job may be claimed, or might have been.
	NextRun time.Time
	// LastRun is the time of the last claim. Zero: the job was never claimed.
	LastRun time.Time
	// Repeat is the rule by which the job repeats, as it was given ([when.ParseRepeat]). "": it does
	// not repeat.
	Repeat string
	// RetryAfter is the time after which the job is claimed again while it runs, such as "+5 MINUTES".
	// "": it is not claimed again.
	RetryAfter string
	// Parent is the id of the parent. 0: no parent.
	Parent ID
	// SequenceKey is the key of the job's sequence. Jobs of one key run one at a time, in the order of
	// their ids. "": no sequence.
	SequenceKey string
	// Mock limits the job to workers that ask for mock jobs. It then never repeats.
	Mock bool
	// Reason is the cause of FAILED, or of the last failed attempt. "": no failure, or no cause was
	// given.
	Reason string

	// Queue is the queue of the job. Only the runner of the queue claims it, as limit and throttler
	// admit it; Get never does. "": no queue.
	Queue string
	// Weight counts against the limit of the queue while the job runs, in thousandths: 1000 is one. 0:
	// it counts nothing.
	Weight int64
	// Window contains the times at which the job may start, as the text of [when.Windows]. "": any
	// time.
	Window string
	// Timeout limits each attempt, the wait for its answer included, in whole microseconds. 0: no
	// limit.
	Timeout time.Duration
	// Deadline is the time at which the current attempt times out. Zero: no attempt runs, or it has no
	// limit.
	Deadline time.Time
	// Attempt is the number of the current or last attempt since the job was created, requeued or
	// finished; 1 is the first. 0: no attempt has begun.
	//
	// A claim of a QUEUED or RUNQUEUED job begins an attempt. The attempt continues when a lease has
	// ended or an answer has come.
	Attempt int64
	// UniqueKey prevents a second open job with this name and this key. "": no such key.
	UniqueKey string
	// Key identifies the job for an answer from outside, together with the job's name. No other open
	// job with this name has it. "": no key.
	Key string
	// Phase is the phase of the attempt. "": a worker works on it.
	Phase Phase
	// Answer is the answer from outside, any JSON value. nil: no answer has come, or it was a refusal,
	// whose text is in Reason.
	Answer []byte
	// Expires is the time at which a job that is over is deleted. Zero: it is not deleted by time.
	Expires time.Time
}

// Phase is the phase of a RUNNING job whose answer comes from outside.
type Phase string

// The phases.
const (
	Awaiting Phase = "AWAITING" // its request is sent, and no worker has it; Due is its Deadline
	Answered Phase = "ANSWERED" // its answer has come, and a worker must handle it
)

// Over reports whether the state is FINISHED, FAILED or CANCELLED.
func (s State) Over() bool { return s == Finished || s == Failed || s == Cancelled }

// OpenStates returns the states of jobs that are not over: QUEUED, RUNQUEUED, RUNNING, PAUSED and
// WAITING.
func OpenStates() []State { return []State{Queued, RunQueued, Running, Paused, Waiting} }

// States returns all states: those of OpenStates, then FINISHED, FAILED and CANCELLED.
func States() []State { return append(OpenStates(), Finished, Failed, Cancelled) }

// CheckKey returns an error that wraps [ErrBadJob] unless key, as a Key or UniqueKey, has at most
// [MaxKey] bytes of UTF-8 without a NUL. "" is valid.
func CheckKey(key string) error {
	if len(key) > MaxKey || !utf8.ValidString(key) || strings.IndexByte(key, 0) >= 0 {
		return fmt.Errorf("%w: a key is not at most %d bytes of text", ErrBadJob, MaxKey)
	}
	return nil
}

// CheckName returns an error that wraps [ErrBadJob] if name is not 1 to MaxName bytes of UTF-8
// without a NUL.
func CheckName(name string) error { return CheckText("name", name) }

// CheckText is [CheckName] for any name or sequence key s: 1 to MaxName bytes of UTF-8 without a
// NUL. Otherwise it returns an error that wraps [ErrBadJob]. what names the text in the error.
func CheckText(what, s string) error {
	if s == "" || len(s) > MaxName || !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 {
		return fmt.Errorf("%w: the %s is not 1 to %d bytes of text", ErrBadJob, what, MaxName)
	}
	return nil
}

// CheckData returns an error that wraps [ErrBadJob] unless data are one JSON object of at most
// [MaxData] bytes in UTF-8, without white space before it.
func CheckData(data []byte) error {
	if len(data) > MaxData {
		return fmt.Errorf("%w: data of %d bytes, more than %d", ErrBadJob, len(data), MaxData)
	}
	if len(data) < 2 || data[0] != '{' || !json.Valid(data) || !utf8.Valid(data) {
		return fmt.Errorf("%w: the data are not a JSON object", ErrBadJob)
	}
	return nil
}
