package schedule

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/when"
)

// Misfire says what becomes of runs whose time has passed, because no listener was there.
type Misfire string

// The policies of misfires; [MisfireAll] makes the third.
const (
	// MisfireOnce runs the oldest of the missed runs, however late, and leaves the others out. It is the default.
	MisfireOnce Misfire = ""
	// MisfireSkip leaves out every run that is more than a minute late, also that of a one-shot, which is then over.
	MisfireSkip Misfire = "skip"
)

const (
	// tooLate is when MisfireSkip leaves a run out.
	tooLate = time.Minute
	// maxMisfires is the most that MisfireAll makes up for.
	maxMisfires = 1000
	allPrefix   = "all "
)

// MisfireAll makes up for missed runs, the newest n of them, one after the other in the order of time. n is 1 to 1,000.
func MisfireAll(n int) Misfire { return Misfire(allPrefix + strconv.Itoa(n)) }

// limit is how many missed runs are made up for; false: the policy is another one.
func (m Misfire) limit() (int, bool) {
	text, ok := strings.CutPrefix(string(m), allPrefix)
	n, err := strconv.Atoi(text)
	return n, ok && err == nil && n >= 1 && n <= maxMisfires
}

func (m Misfire) check() error {
	if _, all := m.limit(); all || m == MisfireOnce || m == MisfireSkip {
		return nil
	}
	return fmt.Errorf(`%w: misfire policy %q is not "skip" or "all N" with N from 1 to %d`, ErrBadEntry, string(m), maxMisfires)
}

// Overlap says what becomes of a run when the last one has not ended.
type Overlap string

// The policies of overlaps.
const (
	// OverlapAllow runs it all the same. It is the default.
	OverlapAllow Overlap = ""
	// OverlapSkip leaves it out while the last run is queued or running. What is known of that is in a result store, which Schedule
	// and Listener need for it; a task that keeps no result cannot have this policy. A run of which nothing is recorded counts as
	// queued until records are forgotten anyway, after the task's ResultTTL.
	OverlapSkip Overlap = "skip"
)

func (o Overlap) check() error {
	if o == OverlapAllow || o == OverlapSkip {
		return nil
	}
	return fmt.Errorf(`%w: overlap policy %q is not "skip"`, ErrBadEntry, string(o))
}

// plan is when an entry goes on after a tick, and whether the tick is run.
type plan struct {
	next time.Time // zero: never
	late bool      // leave the tick out
}

// plan says what becomes of a tick that is due at the time now.
func (m Misfire) plan(spec when.Spec, due, now time.Time) plan {
	n, all := m.limit()
	if r, ok := spec.(*when.Repeat); ok && r.Base() == when.Scheduled {
		return m.planSteps(r, due, now, max(n, 1))
	}
	if !all {
		return plan{next: after(spec, later(due, now)), late: m == MisfireSkip && now.Sub(due) > tooLate}
	}
	from := newest(spec, due, now, n)
	if from.Equal(due.Add(-1)) { // the tick is one of them
		return plan{next: after(spec, due)}
	}
	return plan{next: after(spec, from), late: true}
}

// planSteps is plan for a repeat that counts from when runs were due: it steps from one to the
// next, so that a run that is late does not move those after it.
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

// maxMissed is how many steps are taken at most from a run that was missed; then the repeat counts
// from now.
const maxMissed = 100_000

// missed returns the newest n of the runs from due on that are not after now, or due alone if that
// is.
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

// newest returns the earliest moment, not before due, after which at most n runs come until now. A moment right before due says that the
// run of due itself is one of them. It halves the time in between, so that it looks at few runs however many were missed.
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

// after is the first run after t, zero if there is none.
func after(spec when.Spec, t time.Time) time.Time {
	next, ok := spec.Next(t)
	if !ok || !next.After(t) {
		return time.Time{}
	}
	return next
}

// from is the first run at t or later, where the second that has begun counts; zero if there is
// none. A repeat counts from t.
func from(spec when.Spec, t time.Time) time.Time {
	if r, ok := spec.(*when.Repeat); ok {
		return after(r, t)
	}
	return after(spec, t.Truncate(time.Second).Add(-1))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
