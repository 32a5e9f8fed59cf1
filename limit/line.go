package limit

import (
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

const (
	// maxDelay is the longest delay of a refused task, unless its rate has no room for longer.
	maxDelay = 15 * time.Minute
	// maxGap is the longest time between two tasks of a line, in Delays.
	maxGap = 10
	// manyAdmitted is how many admissions are counted before the older half counts half.
	manyAdmitted = 64
	// sweepLines is how often lines that nobody stands in are forgotten.
	sweepLines = time.Minute
)

// lines are the tasks that this process has put back, by what they were refused. The zero value is ready.
type lines struct {
	mu    sync.Mutex
	lines map[string]*line
	swept time.Time
}

// line spreads the tasks that were refused the same permits. They come back about twice as often as tasks are admitted, however
// many they are: else each of them would ask once in every Delay, for one that is admitted.
type line struct {
	last     time.Time     // when a task last asked
	waited   time.Duration // counted time in which tasks asked
	admitted int           // in that time
	gap      time.Duration // between two tasks that are put back
	next     time.Time     // the first time that no task was given
}

// lineKey names the line of permits.
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

// admitted notes that a task was admitted.
func (ls *lines) admitted(key string, delay time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.lines[key]
	if l == nil { // nobody waits
		return
	}
	l.count(time.Now(), delay)
	if l.admitted++; l.admitted == manyAdmitted {
		l.admitted /= 2
		l.waited /= 2
	}
}

// count counts the time since a task last asked, but for a pause in which none did: it says nothing of how often tasks are
// admitted.
func (l *line) count(now time.Time, delay time.Duration) {
	l.waited += min(now.Sub(l.last), max(2*l.gap, delay/10))
	l.last = now
}

// refused returns for how long a task is put back that was refused: least, or more where others wait. Tasks that are refused
// together while the gap is not yet known get the same time; the caller spreads them.
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
	if last := now.Add(max(least, maxDelay/2+rand.N(maxDelay/2))); at.After(last) {
		return last.Sub(now)
	}
	l.next = at.Add(l.gap)
	return at.Sub(now)
}

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
