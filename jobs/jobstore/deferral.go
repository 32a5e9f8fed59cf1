package jobstore

import (
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// Deferral is a task that waits for an answer from outside while no broker has its message. A task
// has at most one deferral, which passes from one attempt of the task to the next.
type Deferral struct {
	Task task.ID
	// Queue is the broker's queue, and Name the name of the task.
	Queue, Name string
	// Generation is the number of the attempt. A deferral that is over is over for this attempt and
	// all earlier ones.
	Generation int
	// AtMostOnce reports that no broker has the message of the attempt. The attempt is then never
	// repeated.
	AtMostOnce bool
	// Key identifies the answer, together with Name. No other open deferral, and no open job, has the
	// same Name and Key.
	Key   string
	Phase DeferralPhase
	// Verdict is the result of the wait: an answer, a refusal or a timeout.
	Verdict Verdict
	// Answer is any JSON value. It is set if Verdict is VerdictAnswer.
	Answer []byte
	// Refusal is the reason of a refusal. It is set if Verdict is VerdictRefusal.
	Refusal string
	// Claimed reports that a consumer has begun to settle the deferral.
	Claimed bool
	// Fence is the fencing token. Each claim, and each end of a claim, adds one. A consumer with an
	// older token changes nothing.
	Fence int64
	// Deadline is the time at which the wait for the answer ends. In phase DeferralReserved it is the
	// time by which the attempt must have reported.
	Deadline time.Time
	// Due is the time at which a consumer handles the deferral: its Deadline, the end of a claim, or
	// at once. Zero: it is over.
	Due time.Time
	// Expires is the time at which the deferral is deleted. Zero: it is not over.
	Expires time.Time
	// State is a JSON object with which a consumer continues the task. Empty: the task cannot be
	// continued.
	State []byte
}

// DeferralPhase is the phase of a deferral.
type DeferralPhase string

// The phases.
const (
	DeferralReserved DeferralPhase = "RESERVED" // its attempt runs or is about to begin
	DeferralAwaiting DeferralPhase = "AWAITING" // its attempt has ended and waits for the answer
	// it has a verdict, and a consumer must settle the task
	DeferralDecided DeferralPhase = "DECIDED"
	DeferralOver    DeferralPhase = "OVER" // its attempt is settled
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

// Answered reports whether an answer or a refusal was accepted. It is false after a timeout.
func (d *Deferral) Answered() bool { return d.Verdict == VerdictAnswer || d.Verdict == VerdictRefusal }

// Word returns the text that a store sends to watchers ([Store].Watch) when the deferral is saved.
// It is [DeferralWord] of its queue if the deferral is due at now, else "", which means that
// nothing is sent.
func (d *Deferral) Word(now time.Time) string {
	if d.Due.IsZero() || d.Due.After(now) {
		return ""
	}
	return DeferralWord(d.Queue)
}

// DeferralWord returns the watch text for deferrals of a broker's queue.
func DeferralWord(queue string) string { return NoName + "\x1e" + queue }
