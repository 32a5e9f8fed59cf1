package jobstore

import (
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// Deferral is a task that waits for an answer from outside while no broker has it. There is one for
// each task: it passes from an attempt of the task to the next.
type Deferral struct {
	Task task.ID
	// Queue is the broker's queue, and Name the task's name.
	Queue, Name string
	// Generation is that of the attempt. A deferral that is over is over for this attempt and those
	// before it.
	Generation int
	// AtMostOnce: no broker has the attempt's message, so that nobody repeats it.
	AtMostOnce bool
	// Key names the answer, together with Name. No other deferral that is open has both, nor has a
	// job that is not over.
	Key   string
	Phase DeferralPhase
	// Verdict is what has come in place of the answer, or the answer itself.
	Verdict Verdict
	// Answer is any JSON value, if Verdict is VerdictAnswer.
	Answer []byte
	// Refusal says why, if Verdict is VerdictRefusal.
	Refusal string
	// Claimed: a consumer has begun to settle it.
	Claimed bool
	// Fence counts its claims, and whatever else ends a claim. Who claimed it before changes it no
	// more.
	Fence int64
	// Deadline is until when the answer is awaited; of a DeferralReserved one, until when its
	// attempt must be heard of.
	Deadline time.Time
	// Due is when a consumer looks at it: its Deadline, the end of a claim, or at once. Zero if it
	// is over.
	Due time.Time
	// Expires is when it is deleted. Zero unless it is over.
	Expires time.Time
	// State is a JSON object that says how a consumer goes on with the task. Empty: nothing has to.
	State []byte
}

// DeferralPhase is how far a deferral is.
type DeferralPhase string

// The phases.
const (
	DeferralReserved DeferralPhase = "RESERVED" // its attempt runs, or is to begin
	DeferralAwaiting DeferralPhase = "AWAITING" // its attempt has ended, and waits for the answer
	DeferralDecided  DeferralPhase = "DECIDED"  // there is a verdict, by which a consumer settles the task
	DeferralOver     DeferralPhase = "OVER"     // its attempt is settled
)

// Verdict is what ends the waiting for an answer.
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

// Word is the word by which a store tells watchers that the deferral was saved; "": it tells
// nothing.
func (d *Deferral) Word(now time.Time) string {
	if d.Due.IsZero() || d.Due.After(now) {
		return ""
	}
	return DeferralWord(d.Queue)
}

// DeferralWord is the word by which a store tells watchers of deferrals of a broker's queue.
func DeferralWord(queue string) string { return noName + "\x1e" + queue }

// noName begins the words that are no names of jobs.
const noName = "\x1f"
