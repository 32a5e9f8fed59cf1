package redisresults

import (
	"context"
	"slices"
	"sync"

	"github.com/swarmiji/swarmiji/internal/gopool"
	"github.com/swarmiji/swarmiji/resultstore"
)

// Limits of one batch. A script blocks the server while it runs.
const (
	maxBatch      = 256
	maxBatchBytes = 1 << 20 // a single larger record is sent alone
	maxBatches    = 2       // concurrent batches: while the server executes one, the next is sent
)

// save is one record that waits to be sent or answered.
type save struct {
	key     string
	drop    string // key of the checkpoints to delete; "": none
	value   []byte
	ttl     int64 // milliseconds
	channel string
	note    string

	call *call
	err  error // the outcome, set by sendBatch
	done bool  // it has its outcome; guarded by saver.mu
}

// call holds the saves for which one caller waits. Set saves only.
type call struct {
	saves   []*save
	counted bool // in saver.calls
	left    int  // saves without an outcome; guarded by saver.mu
	ended   chan struct{}
}

// batch holds saves that are sent to the server together.
type batch struct {
	saves  []*save
	wanted int // saves whose callers still wait; guarded by saver.mu
}

// saver sends concurrent saves in batches. Records that arrive while maxBatches batches are running
// form the next batch; no record waits for others to arrive. A batch is sent once. After a
// retryable error each caller repeats its own record within its own ctx, so that it does not delay
// others. Safe for concurrent use.
type saver struct {
	sendBatch func(saves []*save) // sends a batch once and sets the outcome of each save

	mu         sync.Mutex
	waiting    []*save
	batches    []*batch
	running    int // goroutines that send batches with at least one waiting caller
	closed     bool
	calls      sync.WaitGroup
	goroutines *gopool.Pool // runs these goroutines
}

// add adds the saves of c to the waiting ones and starts a goroutine if needed. Call wait then, and
// release after that. After close they get the outcome ErrClosed. It takes v.mu.
func (v *saver) add(c *call) {
	c.left, c.ended = len(c.saves), make(chan struct{})
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, s := range c.saves {
		s.call = c
		if v.closed {
			s.err = resultstore.ErrClosed
			v.finish(s)
		}
	}
	if v.closed {
		return
	}
	c.counted = true
	v.calls.Add(1)
	v.waiting = append(v.waiting, c.saves...)
	v.start()
}

// finish records that s has its outcome, and wakes its caller after the last one. Call it with v.mu
// held.
func (v *saver) finish(s *save) {
	s.done = true
	if s.call.left--; s.call.left == 0 {
		close(s.call.ended)
	}
}

// wait waits until all saves of c have an outcome, and returns the outcomes in their order. When
// ctx ends it abandons the others, which get ctx's error; these records may still be stored. It
// takes v.mu, but not while it waits.
func (v *saver) wait(ctx context.Context, c *call) []error {
	select {
	case <-c.ended:
	case <-ctx.Done():
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	errs := make([]error, len(c.saves))
	for i, s := range c.saves {
		if s.done {
			errs[i] = s.err
			continue
		}
		errs[i] = ctx.Err()
		v.abandon(s)
	}
	return errs
}

// start starts a goroutine that sends batches, if fewer than maxBatches run and saves wait. Call it
// with v.mu held.
func (v *saver) start() {
	if v.running < maxBatches && len(v.waiting) > 0 {
		v.running++
		v.goroutines.Go(v.run)
	}
}

// release ends c, for which close waits.
func (v *saver) release(c *call) {
	if c.counted {
		v.calls.Done()
	}
}

// abandon removes s from the waiting saves. If s was sent already and no caller waits for another
// save of its batch, that batch is not counted as running any more. A silent server therefore does
// not delay later saves. Call it with v.mu held.
func (v *saver) abandon(s *save) {
	if i := slices.Index(v.waiting, s); i >= 0 {
		v.waiting = slices.Delete(v.waiting, i, i+1)
		return
	}
	for _, t := range v.batches {
		if slices.Contains(t.saves, s) {
			if t.wanted--; t.wanted == 0 {
				v.running--
				v.start()
			}
			return
		}
	}
}

// run sends batches until no save waits, or until all callers of its last batch have abandoned it.
// It is the body of a sending goroutine and waits for the server.
func (v *saver) run() {
	for v.sendNext() {
	}
}

// sendNext sends one batch and waits for its outcomes. It returns false if no save waits or if all
// callers abandoned the batch; then this goroutine must end. The batch has no context, because
// each call with one costs a goroutine. The client's timeout or a closed connection ends it. It
// takes v.mu.
func (v *saver) sendNext() bool {
	t := v.take()
	if t == nil {
		return false
	}
	v.sendBatch(t.saves)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.batches = slices.DeleteFunc(v.batches, func(o *batch) bool { return o == t })
	for _, s := range t.saves {
		v.finish(s)
	}
	return t.wanted > 0
}

// take removes the next batch from the waiting saves, records it as running and returns it: at
// most maxBatch saves and about maxBatchBytes, but at least one. If no save waits it counts the
// goroutine as ended and returns nil. It takes v.mu.
func (v *saver) take() *batch {
	v.mu.Lock()
	defer v.mu.Unlock()
	n, size := 0, 0
	for n < len(v.waiting) && n < maxBatch {
		size += len(v.waiting[n].value)
		if n > 0 && size > maxBatchBytes {
			break
		}
		n++
	}
	if n == 0 {
		v.running--
		return nil
	}
	t := &batch{saves: slices.Clone(v.waiting[:n]), wanted: n}
	v.waiting = slices.Delete(v.waiting, 0, n)
	v.batches = append(v.batches, t)
	return t
}

// close refuses further saves and waits until all calls are released. Returns ctx's error if
// ctx ends first; a goroutine then continues to wait. It takes v.mu, but not while it waits.
func (v *saver) close(ctx context.Context) error {
	v.mu.Lock()
	v.closed = true
	v.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		v.calls.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-ended:
		return nil
	default:
		return ctx.Err()
	}
}
