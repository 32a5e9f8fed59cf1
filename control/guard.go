package control

import (
	"container/heap"
	"errors"
	"time"
)

// bucket is a token bucket. It gains rate tokens per second, up to burst. Not safe for concurrent
// use.
type bucket struct {
	rate, burst float64
	tokens      float64
	last        time.Time
}

// newBucket returns a full bucket, with burst tokens.
func newBucket(perSecond, burst int) bucket {
	return bucket{rate: float64(perSecond), burst: float64(burst), tokens: float64(burst)}
}

// take takes a token and returns true, or returns false if less than one token is left. It first
// adds the tokens gained since the last call.
func (b *bucket) take(now time.Time) bool {
	if !b.last.IsZero() {
		b.tokens = min(b.burst, b.tokens+max(now.Sub(b.last).Seconds(), 0)*b.rate)
	}
	b.last = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// MaxKept is the number of command ids that a node remembers to refuse repetitions. It refuses more
// commands within two Windows.
const MaxKept = 10000

var (
	errReplayed = errors.New("control: the command was received before")
	errStale    = errors.New("control: the time of the command is outside the window")
	errFlood    = errors.New("control: too many commands")
)

// seen holds the ids of received commands until the commands would be too old. Not safe for
// concurrent use.
type seen struct {
	ids   map[string]struct{}
	order expiries
}

// note remembers an id until the given time. It first forgets ids whose time has passed. Returns
// errReplayed if the id is known, and errFlood if MaxKept ids are remembered; the id is then not
// stored.
func (s *seen) note(id string, now, until time.Time) error {
	for len(s.order) > 0 && s.order[0].until.Before(now) {
		delete(s.ids, s.order[0].id)
		heap.Pop(&s.order)
	}
	if _, again := s.ids[id]; again {
		return errReplayed
	}
	if len(s.ids) >= MaxKept {
		return errFlood
	}
	if s.ids == nil {
		s.ids = make(map[string]struct{})
	}
	s.ids[id] = struct{}{}
	heap.Push(&s.order, expiry{id, until})
	return nil
}

type expiry struct {
	id    string
	until time.Time
}

// expiries is a heap with the earliest time at the top.
type expiries []expiry

func (e expiries) Len() int           { return len(e) }
func (e expiries) Less(i, j int) bool { return e[i].until.Before(e[j].until) }
func (e expiries) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }

// Push implements heap.Interface.
func (e *expiries) Push(x any) { *e = append(*e, x.(expiry)) }

// Pop implements heap.Interface.
func (e *expiries) Pop() any {
	old := *e
	last := old[len(old)-1]
	old[len(old)-1] = expiry{}
	*e = old[:len(old)-1]
	return last
}
