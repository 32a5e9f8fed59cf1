package producer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// How the store is asked where nobody tells: a notification is a hint, the store is the truth.
const (
	sweepEvery   = 500 * time.Millisecond // between two rounds
	sweepMost    = 1000                   // waiters asked for in one round
	pollSlowest  = 20                     // rounds between two looks for the same waiter, at most
	pollTimeout  = 5 * time.Second
	notifyMinGap = 100 * time.Millisecond // between two attempts to open the stream
	notifyMaxGap = 5 * time.Second
)

// inbox holds the waiters of one result store, and resolves them from its notifications and by asking.
type inbox struct {
	producer *Producer
	store    resultstore.ResultStore
	replies  bool                 // records are had by notification alone
	gatherer resultstore.Gatherer // nil: none

	mu      sync.Mutex
	waiters map[task.ID]*waiter
	closed  bool
	opened  chan struct{}                   // closed when the stream of notifications is open, or will not be waited for; nil until the first waiter
	ready   func(ctx context.Context) error // of the open stream; nil for none
	losses  int                             // how often records were lost
	trouble error                           // why there is no stream
	stop    context.CancelFunc
	ended   sync.WaitGroup
}

func newInbox(p *Producer, store resultstore.ResultStore) *inbox {
	return &inbox{
		producer: p, store: store, replies: resultstore.RepliesOnly(store), waiters: make(map[task.ID]*waiter),
		gatherer: resultstore.GathererOf(p.cfg.Gatherer, p.cfg.Results),
	}
}

// register makes the waiter of a task that is about to be submitted. It waits within ctx for the stream of notifications, so
// that no result can come before somebody listens, and with reply queues for the queue. A second submission of an id shares
// the first one's waiter.
func (in *inbox) register(ctx context.Context, id task.ID, codec *wire.Codec) (*waiter, error) {
	for {
		losses, err := in.listening(ctx)
		if err != nil {
			return nil, err
		}
		in.mu.Lock()
		if in.closed {
			in.mu.Unlock()
			return nil, ErrClosed
		}
		if in.losses == losses {
			w := in.waiterLocked(id, codec)
			w.submitted = true
			in.mu.Unlock()
			return w, nil
		}
		in.mu.Unlock() // the queue was lost since it was looked at
	}
}

// listening waits until results would be heard of, and returns how often they were lost so far.
func (in *inbox) listening(ctx context.Context) (losses int, err error) {
	in.mu.Lock()
	if in.closed {
		in.mu.Unlock()
		return 0, ErrClosed
	}
	if in.opened == nil {
		in.startLocked()
	}
	opened, ready, losses := in.opened, in.ready, in.losses
	in.mu.Unlock()
	select {
	case <-opened:
	default:
		select {
		case <-opened:
		case <-ctx.Done():
			in.mu.Lock()
			err = in.trouble
			in.mu.Unlock()
			return 0, noQueue(errors.Join(err, context.Cause(ctx)))
		}
		return in.listening(ctx)
	}
	if ready != nil {
		if err := ready(ctx); err != nil {
			return 0, noQueue(err)
		}
	}
	return losses, nil
}

// noQueue is why nothing was submitted: nobody would hear of its end.
func noQueue(cause error) error {
	return fmt.Errorf("swarmiji: result store: no reply queue for the answer: %w: %w", broker.ErrUnavailable, cause)
}

// watch is register for a task submitted elsewhere: nobody notifies this producer of it, so the store is asked, and nothing
// has to be open before.
func (in *inbox) watch(id task.ID, codec *wire.Codec) (*waiter, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return nil, ErrClosed
	}
	return in.waiterLocked(id, codec), nil
}

// waiterLocked returns the waiter of a task with one hold more, and starts the goroutines with the first one.
func (in *inbox) waiterLocked(id task.ID, codec *wire.Codec) *waiter {
	w, ok := in.waiters[id]
	if !ok {
		w = &waiter{id: id, inbox: in, codec: codec, done: make(chan struct{})}
		in.waiters[id] = w
	}
	w.holds++
	if in.opened == nil {
		in.startLocked()
	}
	return w
}

// forget gives one hold on a waiter back; the last one removes it. A later waiter of the same id stays.
func (in *inbox) forget(w *waiter) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if w.holds--; w.holds <= 0 && in.waiters[w.id] == w {
		delete(in.waiters, w.id)
	}
}

// resolve hands a terminal record that was sent to this producer to its waiter.
func (in *inbox) resolve(r resultstore.Record) {
	if !in.resolveIfAwaited(r) {
		in.producer.cfg.Metrics.Rejected.Inc(1) // late, repeated, or of a task that is not ours
	}
}

func (in *inbox) resolveIfAwaited(r resultstore.Record) bool {
	in.mu.Lock()
	w, ok := in.waiters[r.ID]
	delete(in.waiters, r.ID)
	in.mu.Unlock()
	if !ok {
		return false
	}
	// One that is not sealed although it has to be, or cannot be opened, is an error that the future returns.
	err := in.producer.codec.OpenRecord(&r)
	if err != nil {
		in.producer.cfg.Metrics.Rejected.Inc(1)
		r = resultstore.Record{}
	}
	return w.resolve(r, err)
}

// startLocked starts the goroutines with the first waiter.
func (in *inbox) startLocked() {
	ctx, stop := context.WithCancel(context.Background())
	in.stop = stop
	in.opened = make(chan struct{})
	if subscribe := subscription(in.store); subscribe != nil {
		in.ended.Go(func() { in.listen(ctx, subscribe) })
	} else {
		close(in.opened)
	}
	if !in.replies || in.gatherer != nil {
		in.ended.Go(func() { in.sweep(ctx) })
	}
}

// A subscriber opens the stream of a submitter's records. ready waits until they have a place to go to; nil where they
// always have one.
type subscriber func(ctx context.Context, node string) (stream resultstore.Notifications, ready func(context.Context) error, err error)

// subscription returns how the stream of a store is opened, nil where it has none.
func subscription(store resultstore.ResultStore) subscriber {
	if r, ok := capability.As[resultstore.Replier](store); ok {
		return func(ctx context.Context, node string) (resultstore.Notifications, func(context.Context) error, error) {
			stream, err := r.Replies(ctx, node)
			if err != nil {
				return nil, nil, err
			}
			return stream, stream.Ready, nil
		}
	}
	if n, ok := capability.As[resultstore.Notifier](store); ok {
		return func(ctx context.Context, node string) (resultstore.Notifications, func(context.Context) error, error) {
			stream, err := n.Notify(ctx, node)
			return stream, nil, err
		}
	}
	return nil
}

// open lets submissions go on, which wait for ready.
func (in *inbox) open(ready func(context.Context) error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ready = ready
	select {
	case <-in.opened:
	default:
		close(in.opened)
	}
}

// interrupted has submissions wait for the next stream where nothing else tells of results, and ends the futures that waited for the last one.
func (in *inbox) interrupted(err error) {
	in.mu.Lock()
	in.ready, in.trouble = nil, err
	reopen := false
	if in.replies {
		select {
		case <-in.opened:
			in.opened, reopen = make(chan struct{}), true
		default:
		}
	}
	in.mu.Unlock()
	if reopen {
		in.lost(fmt.Errorf("%w: %w", resultstore.ErrLost, err))
	}
}

// lost ends all futures: what was sent for them may be gone.
func (in *inbox) lost(cause error) {
	in.mu.Lock()
	in.losses++
	open := in.waiters
	if !in.closed {
		in.waiters = make(map[task.ID]*waiter)
	}
	in.mu.Unlock()
	if len(open) == 0 {
		return
	}
	in.log().LogAttrs(context.Background(), slog.LevelError, "results were lost; the futures that waited for them end",
		slog.Int("futures", len(open)), slog.Any("error", cause))
	for _, w := range open {
		w.resolve(resultstore.Record{}, fmt.Errorf("%w: %w", task.ErrNoResult, cause))
	}
}

// listen resolves waiters from the store's notifications until ctx ends.
func (in *inbox) listen(ctx context.Context, subscribe subscriber) {
	gap := task.Backoff{Base: notifyMinGap, Max: notifyMaxGap}
	for attempt := 0; ctx.Err() == nil; attempt++ {
		err := in.receiveAll(ctx, subscribe)
		if ctx.Err() != nil {
			return
		}
		in.interrupted(err)
		if !in.replies {
			in.open(nil) // the records wait in the store, and sweep finds them
		}
		in.log().LogAttrs(ctx, slog.LevelWarn, "result notifications interrupted", slog.Any("error", err))
		wake.Sleep(ctx, gap.Interval(attempt))
	}
}

func (in *inbox) receiveAll(ctx context.Context, subscribe subscriber) error {
	stream, ready, err := subscribe(ctx, in.producer.cfg.Report.NodeID)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), pollTimeout)
		defer cancel()
		if err := stream.Close(closing); err != nil {
			in.log().LogAttrs(ctx, slog.LevelWarn, "closing result notifications", slog.Any("error", err))
		}
	}()
	in.open(ready)
	for {
		r, err := stream.Receive(ctx)
		switch {
		case errors.Is(err, resultstore.ErrLost):
			in.lost(err)
		case errors.Is(err, resultstore.ErrMalformed):
			in.producer.cfg.Metrics.Rejected.Inc(1)
		case err != nil:
			return err
		case r.State.Terminal():
			in.resolve(r)
		default:
			in.note(r)
		}
	}
}

// sweep asks the store for the waiters that nobody told of, each of them ever more rarely.
func (in *inbox) sweep(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for round := 0; ; round++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, w := range in.due(round) {
			if !in.ask(ctx, w) {
				break // the store is away: the next round tries again
			}
		}
	}
}

// due picks the waiters whose turn it is: the gap between two looks at the same one doubles, up to pollSlowest rounds.
func (in *inbox) due(round int) []*waiter {
	in.mu.Lock()
	defer in.mu.Unlock()
	var ws []*waiter
	for _, w := range in.waiters {
		if in.replies && len(w.groups) == 0 {
			continue
		}
		if gap := min(1<<min(w.polls, 8), pollSlowest); round%gap == 0 {
			if ws = append(ws, w); len(ws) == sweepMost {
				break
			}
		}
	}
	return ws
}

// ask looks for one record and reports whether the store answered.
func (in *inbox) ask(ctx context.Context, w *waiter) bool {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	forgotten := in.forgotten(ctx, w) // before the record, which may be there by now
	r, err := in.store.Load(ctx, w.id)
	in.mu.Lock()
	w.polls++
	in.mu.Unlock()
	switch {
	case errors.Is(err, resultstore.ErrUnavailable), errors.Is(err, resultstore.ErrClosed), ctx.Err() != nil:
		return false
	case errors.Is(err, resultstore.ErrNotFound) && forgotten != nil:
		in.fail(w, forgotten)
		return true
	case err != nil: // not there, or not readable: that says nothing of the others
		return true
	}
	if r.State.Terminal() {
		in.resolveIfAwaited(r)
	} else {
		w.note(r)
	}
	return true
}

func (in *inbox) log() *slog.Logger {
	return in.producer.cfg.Logger.With(middleware.LogNode, in.producer.cfg.Report.NodeID)
}

// close ends the goroutines and every waiter that is still open.
func (in *inbox) close(ctx context.Context) error {
	in.mu.Lock()
	in.closed = true
	open := in.waiters
	in.waiters = nil
	if in.stop != nil {
		in.stop()
	}
	in.mu.Unlock()
	for _, w := range open {
		w.resolve(resultstore.Record{}, ErrClosed)
	}
	ended := make(chan struct{})
	go func() {
		in.ended.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("swarmiji: producer: result stream still open: %w", context.Cause(ctx))
	}
}
