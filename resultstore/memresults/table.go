package memresults

import (
	"bytes"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// table is what the views share.
type table struct {
	config Config
	start  time.Time

	mu        sync.Mutex
	views     int
	records   map[task.ID]*entry
	expiry    expiry
	gathering gathering
	nodes     map[string][]*stream // slices are replaced, never changed, so that save may read one without the lock
	timer     *time.Timer          // nil until the first record
	wakes     time.Duration        // when timer fires; meaningful while armed
	armed     bool
}

// save keeps r if the token allows it, and returns the streams that have to hear of it.
func (t *table) save(from *Store, r *resultstore.Record) ([]*stream, *entry, error) {
	e := &entry{rec: *r}
	e.rec.Result = bytes.Clone(r.Result)
	e.rec.TTL = 0
	e.rec.StartedAt, e.rec.FinishedAt = millis(r.StartedAt), millis(r.FinishedAt)

	t.mu.Lock()
	defer t.mu.Unlock()
	if from.closed {
		return nil, nil, resultstore.ErrClosed
	}
	now := t.now()
	e.expires = deadline(now, positive(r.TTL, t.config.TTL))
	old := t.records[r.ID]
	if old != nil && old.expires > now {
		if again, err := judge(&old.rec, r); again || err != nil {
			return nil, nil, err
		}
	}
	t.records[r.ID] = e
	if old != nil {
		t.expiry.replace(old, e)
	} else {
		t.expiry.push(e)
		if limit := t.config.MaxRecords; limit > 0 && len(t.records) > limit {
			t.forget(t.expiry[0])
		}
	}
	t.arm(now)
	if !r.State.Terminal() || r.ReplyTo == "" {
		return nil, nil, nil
	}
	return t.nodes[r.ReplyTo], e, nil
}

// judge decides what becomes of r where old is kept: err refuses it, again means that it is there already.
func judge(old, r *resultstore.Record) (again bool, err error) {
	switch {
	case r.Older(old):
		return false, resultstore.ErrStale
	case !old.State.Terminal(), r.Reopens(old):
		return false, nil
	case old.Older(r) || old.State != r.State:
		return false, resultstore.ErrStale
	default:
		return true, nil
	}
}

// find returns the entry of id unless its time is over.
func (t *table) find(id task.ID) *entry {
	e := t.records[id]
	if e == nil {
		return nil
	}
	if e.expires <= t.now() {
		t.forget(e)
		return nil
	}
	return e
}

func (t *table) forget(e *entry) {
	delete(t.records, e.rec.ID)
	t.expiry.remove(e)
}

func (t *table) now() time.Duration { return time.Since(t.start) }

func deadline(now, ttl time.Duration) time.Duration {
	if ttl > math.MaxInt64-now {
		return math.MaxInt64
	}
	return now + ttl
}

// Expired records are not found anyway, so the timer may be late by sweepEvery: it then takes away many at once.
const (
	sweepEvery = time.Second
	sweepChunk = 1024 // records per hold of the lock
)

// arm sets the timer for the record that expires first, unless it fires before that already.
func (t *table) arm(now time.Duration) {
	if len(t.expiry) == 0 {
		return
	}
	at := t.expiry[0].expires
	if at > math.MaxInt64-sweepEvery {
		return
	}
	at += sweepEvery
	if t.armed && t.wakes <= at {
		return
	}
	t.armed, t.wakes = true, at
	if wait := at - now; t.timer == nil {
		t.timer = time.AfterFunc(wait, t.sweep)
	} else {
		t.timer.Reset(wait)
	}
}

// sweep takes away what has expired. It runs on the timer's goroutine.
func (t *table) sweep() {
	for t.sweepSome() {
	}
}

func (t *table) sweepSome() (more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	for range sweepChunk {
		if len(t.expiry) == 0 || t.expiry[0].expires > now {
			t.armed = false
			t.arm(now)
			return false
		}
		t.forget(t.expiry[0])
	}
	return true
}

func (t *table) attach(n *stream) {
	t.nodes[n.node] = append(slices.Clone(t.nodes[n.node]), n)
}

func (t *table) detach(n *stream) {
	rest := slices.DeleteFunc(slices.Clone(t.nodes[n.node]), func(o *stream) bool { return o == n })
	if len(rest) == 0 {
		delete(t.nodes, n.node)
		return
	}
	t.nodes[n.node] = rest
}

func (t *table) clear() {
	if t.timer != nil {
		t.timer.Stop()
	}
	t.armed = false
	clear(t.records)
	t.expiry = nil
	t.gathering = gathering{}
}

// millis rounds down to what stores keep: milliseconds, UTC, the zero time itself.
func millis(at time.Time) time.Time {
	if at.IsZero() {
		return time.Time{}
	}
	return time.UnixMilli(at.UnixMilli()).UTC()
}
