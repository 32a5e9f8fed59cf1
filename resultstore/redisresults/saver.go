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
	value   []byte
	ttl     int64 // milliseconds
	channel string
	note    string
	answer  chan error // receives exactly one answer
}

// batch holds saves that are sent to the server together.
type batch struct {
	saves   []*save
	callers int // callers that still wait for it; guarded by saver.mu
}

// saver sends concurrent saves in batches. Records that arrive while maxBatches batches are running
// form the next batch; no record waits for others to arrive. A batch is sent once. After a
// retryable error each caller repeats its own record within its own ctx, so that it does not delay
// others. Safe for concurrent use.
type saver struct {
	sendBatch func(saves []*save)                      // sends a batch once and answers each save
	sendOne   func(ctx context.Context, s *save) error // repeats one save until ctx ends
	retryable func(err error) bool                     // whether sendOne may repeat after err

	mu         sync.Mutex
	waiting    []*save
	batches    []*batch
	running    int // goroutines that send batches with at least one waiting caller
	closed     bool
	calls      sync.WaitGroup
	goroutines *gopool.Pool // runs these goroutines
}

// do adds s to the waiting saves and waits for its answer until ctx ends. After a retryable error
// it calls sendOne and returns that outcome. When ctx ends it abandons s and returns ctx's error;
// the record may still be stored. Returns ErrClosed after close. It takes v.mu, but not while it
// waits.
func (v *saver) do(ctx context.Context, s *save) error {
	if !v.enqueue(s) {
		return resultstore.ErrClosed
	}
	defer v.calls.Done()
	var err error
	select {
	case err = <-s.answer:
	case <-ctx.Done():
		v.abandon(s)
		select {
		case err = <-s.answer:
		default:
			return ctx.Err()
		}
	}
	if v.retryable(err) && ctx.Err() == nil {
		return v.sendOne(ctx, s)
	}
	return err
}

// enqueue adds s to the waiting saves and starts a goroutine if needed. It returns false after
// close. It takes v.mu.
func (v *saver) enqueue(s *save) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return false
	}
	v.calls.Add(1)
	v.waiting = append(v.waiting, s)
	v.start()
	return true
}

// start starts a goroutine that sends batches, if fewer than maxBatches run and saves wait. Call it
// with v.mu held.
func (v *saver) start() {
	if v.running < maxBatches && len(v.waiting) > 0 {
		v.running++
		v.goroutines.Go(v.run)
	}
}

// abandon removes s from the waiting saves. If s was sent already and no other caller waits for its
// batch, that batch is not counted as running any more. A silent server therefore does not delay
// later saves. It takes v.mu.
func (v *saver) abandon(s *save) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if i := slices.Index(v.waiting, s); i >= 0 {
		v.waiting = slices.Delete(v.waiting, i, i+1)
		return
	}
	for _, t := range v.batches {
		if slices.Contains(t.saves, s) {
			if t.callers--; t.callers == 0 {
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

// sendNext sends one batch and waits for its answers. It returns false if no save waits or if all
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
	return t.callers > 0
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
	t := &batch{saves: slices.Clone(v.waiting[:n]), callers: n}
	v.waiting = slices.Delete(v.waiting, 0, n)
	v.batches = append(v.batches, t)
	return t
}

// close refuses further saves and waits until all calls of do have returned. Returns ctx's error if
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
