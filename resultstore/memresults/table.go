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

// table holds the records, checkpoints, groups and claims that all views of a store share.
type table struct {
	config Config
	start  time.Time

	mu          sync.Mutex
	views       int
	records     map[task.ID]*entry
	expiry      expiry
	gathering   gathering
	checkpoints checkpointing
	// nodes holds the streams of each node. A slice is replaced, never changed, so that save may
	// return one for reading without the lock.
	nodes map[string][]*stream
	timer *time.Timer   // nil until the first record
	wakes time.Duration // when timer fires; meaningful while armed
	armed bool
}

// save stores a copy of r for the view from, if checkToken allows it, and drops the checkpoints of
// the task if r says so. The copy has no TTL, and times in whole milliseconds. If MaxRecords is
// exceeded it removes the record that expires first. It returns the streams that must receive the
// copy, and the copy: both nil if r is not terminal, has no ReplyTo, or is stored already. Returns
// ErrStale or ErrClosed. It takes t.mu.
func (t *table) save(from *Store, r *resultstore.Record) ([]*stream, *entry, error) {
	e := &entry{rec: *r}
	e.rec.Result, e.rec.Children = bytes.Clone(r.Result), slices.Clone(r.Children)
	e.rec.TTL, e.rec.DropCheckpoints = 0, false
	e.rec.StartedAt, e.rec.FinishedAt = millis(r.StartedAt), millis(r.FinishedAt)
	e.rec.Progress.At = millis(r.Progress.At)

	t.mu.Lock()
	defer t.mu.Unlock()
	if from.closed {
		return nil, nil, resultstore.ErrClosed
	}
	now := t.now()
	e.expires = deadline(now, positive(r.TTL, t.config.TTL))
	old := t.records[r.ID]
	if old != nil && old.expires > now {
		again, err := checkToken(&old.rec, r)
		if again && r.DropCheckpoints {
			delete(t.checkpoints.tasks, r.ID)
		}
		if again || err != nil {
			return nil, nil, err
		}
	}
	if r.DropCheckpoints {
		delete(t.checkpoints.tasks, r.ID)
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

// checkToken decides whether r may replace the stored record old. It returns false and nil if it
// may. It returns ErrStale if r is older, or if old is final, differs from r, and r does not
// reopen it. The result again is true if r equals the final record old, so that there is nothing
// to store.
func checkToken(old, r *resultstore.Record) (again bool, err error) {
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

// find returns the entry of id, or nil if no record exists. It removes an expired entry. Call it
// with t.mu held.
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

// forget removes a record from t.records and t.expiry. Call it with t.mu held.
func (t *table) forget(e *entry) {
	delete(t.records, e.rec.ID)
	t.expiry.remove(e)
}

// now returns the time since the start of the store, on the monotonic clock.
func (t *table) now() time.Duration { return time.Since(t.start) }

// deadline returns now plus ttl, or the largest duration if the sum would overflow.
func deadline(now, ttl time.Duration) time.Duration {
	if ttl > math.MaxInt64-now {
		return math.MaxInt64
	}
	return now + ttl
}

// Readers ignore expired records, so the timer may fire up to sweepEvery late. It then removes many
// records at once.
const (
	sweepEvery = time.Second
	sweepChunk = 1024 // records removed per hold of the lock
)

// arm sets the timer to sweepEvery after the first record expires. It does nothing if the timer
// fires earlier or no record exists. Call it with t.mu held.
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

// sweep removes all expired records in chunks. It runs on the goroutine of the timer and takes t.mu
// for each chunk.
func (t *table) sweep() {
	for t.sweepSome() {
	}
}

// sweepSome removes up to sweepChunk expired records and arms the timer for the next one. It
// reports whether more may have expired. It takes t.mu.
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

// attach adds a stream to its node. Call it with t.mu held.
func (t *table) attach(n *stream) {
	t.nodes[n.node] = append(slices.Clone(t.nodes[n.node]), n)
}

// detach removes a stream from its node. Call it with t.mu held.
func (t *table) detach(n *stream) {
	rest := slices.DeleteFunc(slices.Clone(t.nodes[n.node]), func(o *stream) bool { return o == n })
	if len(rest) == 0 {
		delete(t.nodes, n.node)
		return
	}
	t.nodes[n.node] = rest
}

// clear removes all records, checkpoints, groups and claims and stops the timer. Call it with t.mu
// held.
func (t *table) clear() {
	if t.timer != nil {
		t.timer.Stop()
	}
	t.armed = false
	clear(t.records)
	t.expiry = nil
	t.gathering, t.checkpoints = gathering{}, checkpointing{}
}

// millis returns at in UTC, cut to the whole milliseconds that stores keep. The zero time stays the
// zero time.
func millis(at time.Time) time.Time {
	if at.IsZero() {
		return time.Time{}
	}
	return time.UnixMilli(at.UnixMilli()).UTC()
}
