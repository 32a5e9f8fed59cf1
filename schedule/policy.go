package schedule

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/when"
)

// Misfire is the policy for missed runs: runs whose time passed while no listener ran.
type Misfire string

// Policies for missed runs. [MisfireAll] returns a third one.
const (
	// MisfireOnce runs the oldest missed run, however late, and leaves out the others. It is the
	// default.
	MisfireOnce Misfire = ""
	// MisfireSkip leaves out each run that is more than a minute late. A one-shot entry is then over
	// without a run.
	MisfireSkip Misfire = "skip"
)

const (
	// tooLate is the lateness from which MisfireSkip leaves a run out.
	tooLate = time.Minute
	// maxMisfires is the largest n of MisfireAll.
	maxMisfires = 1000
	allPrefix   = "all "
)

// MisfireAll runs the newest n missed runs, one after the other in ascending order of time. n is 1
// to 1,000.
func MisfireAll(n int) Misfire { return Misfire(allPrefix + strconv.Itoa(n)) }

// limit returns the n of MisfireAll. It returns false if m is another policy, or if n is not 1 to
// maxMisfires.
func (m Misfire) limit() (int, bool) {
	text, ok := strings.CutPrefix(string(m), allPrefix)
	n, err := strconv.Atoi(text)
	return n, ok && err == nil && n >= 1 && n <= maxMisfires
}

// check returns an error that wraps [ErrBadEntry] if m is not a policy.
func (m Misfire) check() error {
	if _, all := m.limit(); all || m == MisfireOnce || m == MisfireSkip {
		return nil
	}
	return fmt.Errorf(`%w: misfire policy %q is not "skip" or "all N" with N from 1 to %d`, ErrBadEntry, string(m), maxMisfires)
}

// Overlap is the policy for a run whose predecessor has not ended.
type Overlap string

// Policies for overlapping runs.
const (
	// OverlapAllow starts the run, although the last one has not ended. It is the default.
	OverlapAllow Overlap = ""
	// OverlapSkip leaves the run out while the last run is queued or running. Schedule and Listener
	// need a result store for it, and the task must not ignore its result.
	//
	// If the result store has no record of the last run, the run counts as queued until the task's
	// ResultTTL has passed.
	OverlapSkip Overlap = "skip"
)

// check returns an error that wraps [ErrBadEntry] if o is not a policy.
func (o Overlap) check() error {
	if o == OverlapAllow || o == OverlapSkip {
		return nil
	}
	return fmt.Errorf(`%w: overlap policy %q is not "skip"`, ErrBadEntry, string(o))
}

// plan holds what Misfire.plan decides about one tick.
type plan struct {
	next time.Time // the entry's next due time; zero: none
	late bool      // leave the tick out
}

// plan decides about the tick that was due at due and is seen at the time now. It has no side
// effects. plan.late reports that the tick must be left out; plan.next is the entry's next due
// time, or zero if spec has no further run.
//
//   - MisfireOnce never leaves the tick out. next is the first run after both due and now.
//   - MisfireSkip leaves the tick out if it is more than tooLate late. next is as with MisfireOnce.
//   - MisfireAll leaves the tick out if at least n newer runs are missed. next is the oldest of the
//     newest n. Otherwise next is the first run after due.
func (m Misfire) plan(spec when.Spec, due, now time.Time) plan {
	n, all := m.limit()
	if r, ok := spec.(*when.Repeat); ok && r.Base() == when.Scheduled {
		return m.planSteps(r, due, now, max(n, 1))
	}
	if !all {
		return plan{next: after(spec, later(due, now)), late: m == MisfireSkip && now.Sub(due) > tooLate}
	}
	from := newest(spec, due, now, n)
	if from.Equal(due.Add(-1)) { // the tick is one of the newest n
		return plan{next: after(spec, due)}
	}
	return plan{next: after(spec, from), late: true}
}

// planSteps decides as plan does, for a repeat that counts from its scheduled times. There each run
// time follows from the one before it, so a late run does not move the later ones. n is the number
// of missed runs that m runs, at least 1; 1 if m is not MisfireAll.
//
//   - MisfireAll: if the tick is one of the newest n runs, next is the first run after due.
//     Otherwise it is left out (late), and next is the oldest of the newest n.
//   - Other policies: next is the first run after both due and now. late is true for MisfireSkip
//     and a tick that is more than tooLate late.
//
// If more than maxMissed runs were missed, the repeat counts from now, see missed.
func (m Misfire) planSteps(r *when.Repeat, due, now time.Time, n int) plan {
	runs := missed(r, due, now, n)
	switch _, all := m.limit(); {
	case !all:
		return plan{next: after(r, runs[len(runs)-1]), late: m == MisfireSkip && now.Sub(due) > tooLate}
	case runs[0].Equal(due):
		return plan{next: after(r, due)}
	default:
		return plan{next: runs[0], late: true}
	}
}

// maxMissed limits how many run times are calculated after a missed run. With more of them, the
// repeat counts from now.
const maxMissed = 100_000

// missed returns the newest n run times from due to now, in ascending order. If due lies in the
// future, it returns only due. If more than maxMissed runs must be calculated, it returns only now.
// With a constant interval it skips most of them without calculating.
func missed(r *when.Repeat, due, now time.Time, n int) []time.Time {
	t := due
	if d := r.Interval(); d > 0 {
		if skip := int64(now.Sub(t)/d) - int64(n); skip > 0 {
			t = t.Add(time.Duration(skip * int64(d)))
		}
	}
	runs := []time.Time{t}
	for range maxMissed {
		if t = after(r, t); t.IsZero() || t.After(now) {
			return runs
		}
		if runs = append(runs, t); len(runs) > n {
			runs = runs[1:]
		}
	}
	return []time.Time{now}
}

// newest returns the earliest time t for which at most n runs lie after t and not after now, to the
// second. So the newest n missed runs are the runs after t. If the run at due is one of them, it
// returns the nanosecond before due, and never an earlier time.
//
// It uses binary search, so it calculates few runs even if very many were missed.
func newest(spec when.Spec, due, now time.Time, n int) time.Time {
	few := func(from time.Time) bool {
		for range n {
			next, ok := spec.Next(from)
			if !ok || next.After(now) {
				return true
			}
			from = next
		}
		next, ok := spec.Next(from)
		return !ok || next.After(now)
	}
	low := due.Add(-1)
	if !now.After(due) || few(low) {
		return low
	}
	high := now
	for high.Sub(low) > time.Second {
		middle := low.Add(high.Sub(low) / 2)
		if few(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return high
}

// after returns the first run of spec after t, or zero if spec has no later run.
func after(spec when.Spec, t time.Time) time.Time {
	next, ok := spec.Next(t)
	if !ok || !next.After(t) {
		return time.Time{}
	}
	return next
}

// from returns the first run in the second of t or later, or zero if spec has no such run. So a run
// at the start of that second counts, although t is later. For a repeat it returns the first run
// after t, counted from t.
func from(spec when.Spec, t time.Time) time.Time {
	if r, ok := spec.(*when.Repeat); ok {
		return after(r, t)
	}
	return after(spec, t.Truncate(time.Second).Add(-1))
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
