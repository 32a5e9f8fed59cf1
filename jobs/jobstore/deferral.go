package jobstore

import (
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// Deferral is a task that waits for an answer from outside while no broker has its message. Each
// task has at most one: it passes from an attempt of the task to the next.
type Deferral struct {
	Task task.ID
	// Queue is the broker's queue, and Name the task's name.
	Queue, Name string
	// Generation is the number of the attempt. A deferral that is over is over for this attempt and
	// earlier ones.
	Generation int
	// AtMostOnce: no broker has the message of the attempt, so the attempt is never repeated.
	AtMostOnce bool
	// Key names the answer, together with Name. No other open deferral, and no job that is not
	// over, has both.
	Key   string
	Phase DeferralPhase
	// Verdict is the result of the wait: the answer, a refusal or a timeout.
	Verdict Verdict
	// Answer is any JSON value, if Verdict is VerdictAnswer.
	Answer []byte
	// Refusal is the reason, if Verdict is VerdictRefusal.
	Refusal string
	// Claimed: a consumer has begun to settle it.
	Claimed bool
	// Fence is the fencing token. Each claim adds one, and so does each end of a claim. A consumer
	// with an older token changes nothing.
	Fence int64
	// Deadline is when the wait for the answer ends. For DeferralReserved it is when the attempt
	// must have reported.
	Deadline time.Time
	// Due is when a consumer looks at it: its Deadline, the end of a claim, or at once. Zero: it is
	// over.
	Due time.Time
	// Expires is when it is deleted. Zero: it is not over.
	Expires time.Time
	// State is a JSON object from which a consumer goes on with the task. Empty: there is nothing
	// to go on with.
	State []byte
}

// DeferralPhase is the phase of a deferral.
type DeferralPhase string

// The phases.
const (
	DeferralReserved DeferralPhase = "RESERVED" // its attempt runs, or will begin
	DeferralAwaiting DeferralPhase = "AWAITING" // its attempt has ended, and waits for the answer
	DeferralDecided  DeferralPhase = "DECIDED"  // it has a verdict, and a consumer settles the task
	DeferralOver     DeferralPhase = "OVER"     // its attempt is settled
)

// Verdict is the result of a wait for an answer.
type Verdict string

// The verdicts.
const (
	NoVerdict      Verdict = ""
	VerdictAnswer  Verdict = "ANSWER"
	VerdictRefusal Verdict = "REFUSAL"
	VerdictTimeout Verdict = "TIMEOUT" // no answer came in time
)

// Open reports whether the deferral is not over.
func (d *Deferral) Open() bool { return d.Phase != DeferralOver }

// Answered reports whether an answer or a refusal was accepted.
func (d *Deferral) Answered() bool { return d.Verdict == VerdictAnswer || d.Verdict == VerdictRefusal }

// Word returns the word that a store sends to watchers when the deferral is saved. "": none.
func (d *Deferral) Word(now time.Time) string {
	if d.Due.IsZero() || d.Due.After(now) {
		return ""
	}
	return DeferralWord(d.Queue)
}

// DeferralWord returns the word for deferrals of a broker's queue.
func DeferralWord(queue string) string { return NoName + "\x1e" + queue }
