package limit

import (
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

const (
	// maxDelay is the maximum delay of a refused task, also if its rate requires more: the limit may
	// be raised or removed meanwhile.
	maxDelay = 15 * time.Minute
	// maxGap is the maximum time between two tasks of a line, in Delays.
	maxGap = 10
	// manyAdmitted is the number of admissions after which the counts are halved, so that older ones
	// count less.
	manyAdmitted = 64
	// sweepLines is the interval for removing unused lines.
	sweepLines = time.Minute
)

// lines holds the delayed tasks of this process, by the permits that they need. The zero value is
// ready to use. Safe for concurrent use.
type lines struct {
	mu    sync.Mutex
	lines map[string]*line
	swept time.Time
}

// line spreads tasks that were refused the same permits. They retry about twice as often as tasks
// are admitted, regardless of their number. Otherwise each of them would retry once in every Delay,
// for a single admitted task.
type line struct {
	last     time.Time     // when a task last asked
	waited   time.Duration // total time in which tasks asked
	admitted int           // admissions in that time
	gap      time.Duration // time between two delayed tasks
	next     time.Time     // first time without a task
}

// lineKey returns the key of the line for permits: the keys of the permits, in their order.
func lineKey(ps []Permit) string {
	if len(ps) == 1 {
		return ps[0].Key
	}
	var b strings.Builder
	for _, p := range ps {
		b.WriteString(p.Key)
		b.WriteByte(0)
	}
	return b.String()
}

// admitted counts an admission of the line's tasks at the current time. At manyAdmitted admissions
// it halves the counts. delay is Config.Delay. If no task was refused before, there is no line, and
// it does nothing. It takes ls.mu.
func (ls *lines) admitted(key string, delay time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.lines[key]
	if l == nil { // no task waits
		return
	}
	l.count(time.Now(), delay)
	if l.admitted++; l.admitted == manyAdmitted {
		l.admitted /= 2
		l.waited /= 2
	}
}

// count adds the time since a task last asked to l.waited, and sets l.last to now. Of a long pause
// without tasks it adds only a part, because the pause says nothing about the frequency of
// admissions. Call it with lines.mu held.
func (l *line) count(now time.Time, delay time.Duration) {
	l.waited += min(now.Sub(l.last), max(2*l.gap, delay/10))
	l.last = now
}

// refused returns the delay of a refused task: at least least, and more if other tasks wait, but at
// most a random time from 7.5 to 15 minutes. It adds the task to its line, which it makes if
// necessary; a task at the limit is not added. delay is Config.Delay.
// While the gap is unknown, tasks refused together get the same delay; the caller spreads them. It
// takes ls.mu.
func (ls *lines) refused(key string, least, delay time.Duration) time.Duration {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := time.Now()
	ls.sweep(now)
	l := ls.lines[key]
	if l == nil {
		if ls.lines == nil {
			ls.lines = make(map[string]*line)
		}
		l = &line{last: now}
		ls.lines[key] = l
	}
	l.count(now, delay)
	l.gap = min(l.waited/time.Duration(l.admitted+1)/2, maxGap*delay)
	at := now.Add(least)
	if l.next.After(at) {
		at = l.next
	}
	if last := now.Add(maxDelay/2 + rand.N(maxDelay/2)); at.After(last) {
		return last.Sub(now)
	}
	l.next = at.Add(l.gap)
	return at.Sub(now)
}

// sweep removes lines in which no task has waited for sweepLines. It does so at most once in
// sweepLines. Call it with ls.mu held.
func (ls *lines) sweep(now time.Time) {
	if now.Sub(ls.swept) < sweepLines {
		return
	}
	ls.swept = now
	for key, l := range ls.lines {
		if now.Sub(l.next) > sweepLines {
			delete(ls.lines, key)
		}
	}
}
