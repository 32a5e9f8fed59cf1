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
	"github.com/swarmiji/swarmiji/internal/reach"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// Limits for asking the store. Notifications are only hints; the store decides.
const (
	pollEvery = 500 * time.Millisecond // between two rounds
	pollMost  = 1000                   // waiters that one round asks for
	// largest number of rounds between two reads for the same waiter
	pollMaxGap   = 20
	pollTimeout  = 5 * time.Second
	notifyMinGap = 100 * time.Millisecond // shortest pause between two attempts to open the stream
	notifyMaxGap = 5 * time.Second
)

// inbox holds the waiters of one result store. It resolves them by the store's notifications and by
// asking the store.
type inbox struct {
	producer *Producer
	store    resultstore.ResultStore
	replies  bool                 // the store keeps no records and only sends them
	gatherer resultstore.Gatherer // nil: no gatherer
	fresh    chan struct{}        // capacity 1: notifies poll of a new waiter

	mu      sync.Mutex
	waiters map[task.ID]*waiter
	closed  bool
	// closed when the stream of notifications is open or not waited for; nil until the first waiter
	opened  chan struct{}
	ready   func(ctx context.Context) error // of the open stream; may be nil
	losses  int                             // how often records were lost
	trouble error                           // why the stream is not open
	stop    context.CancelFunc
	ended   sync.WaitGroup
}

// newInbox returns an inbox without waiters. It starts nothing; the first waiter does.
func newInbox(p *Producer, store resultstore.ResultStore) *inbox {
	return &inbox{
		producer: p, store: store, replies: resultstore.RepliesOnly(store), waiters: make(map[task.ID]*waiter),
		gatherer: resultstore.GathererOf(p.cfg.Gatherer, p.cfg.Results), fresh: make(chan struct{}, 1),
	}
}

// register returns a waiter for a task that is about to be submitted. It blocks within ctx until
// the stream of notifications is open, and with reply queues until the queue exists. So no result
// can come before the producer listens. Submissions with the same id share one waiter; release it
// as often as it was registered.
//
// For a task of Config.Outbox it does not wait: the outbox keeps the task while the servers of the
// broker and of the results are away.
//
// Returns [ErrClosed] after Close, and an error that wraps [broker.ErrUnavailable] if ctx ends
// first. It takes in.mu, but not while it waits.
func (in *inbox) register(ctx context.Context, id task.ID, codec *wire.Codec, how submission) (*waiter, error) {
	if how == transactional && in.producer.cfg.Outbox != nil {
		return in.watch(id, codec, how)
	}
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
			w.submitted = max(w.submitted, how)
			in.mu.Unlock()
			return w, nil
		}
		in.mu.Unlock() // the queue was lost since the check
	}
}

// listening blocks until the producer would receive results, and returns how often they were lost
// so far. If no goroutine runs yet, it starts them. Returns [ErrClosed] after Close, and an error
// that wraps [broker.ErrUnavailable] if ctx ends first or the reply queue cannot be used. It takes
// in.mu, but not while it waits.
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
			end := context.Cause(ctx)
			if err != nil {
				end = fmt.Errorf("%w (%w)", err, end)
			}
			return 0, noReplyQueue(end)
		}
		return in.listening(ctx)
	}
	if ready != nil {
		if err := ready(ctx); err != nil {
			return 0, noReplyQueue(err)
		}
	}
	return losses, nil
}

// noReplyQueue returns the error of a submission that was not sent because its result could not be
// received. It wraps [broker.ErrUnavailable] and cause, and names a next step.
func noReplyQueue(cause error) error {
	text := "swarmiji: the task was not sent: the reply queue for the result is not ready: %w: %w"
	if _, ok := errors.AsType[*reach.Error](cause); !ok { // which names the next step itself
		text += "; check the server of the result store, or submit with task.WithIgnoreResult"
	}
	return fmt.Errorf(text, broker.ErrUnavailable, cause)
}

// watch returns a waiter without a wait for the stream of notifications. The store is asked, so
// none needs to come. Returns [ErrClosed] after Close. It does not block, and takes in.mu.
func (in *inbox) watch(id task.ID, codec *wire.Codec, how submission) (*waiter, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return nil, ErrClosed
	}
	w := in.waiterLocked(id, codec)
	w.submitted = max(w.submitted, how)
	return w, nil
}

// waiterLocked returns the waiter of a task with one reference more. It makes the waiter, notifies
// poll of it, and starts the goroutines if necessary. Call it with in.mu held.
func (in *inbox) waiterLocked(id task.ID, codec *wire.Codec) *waiter {
	w, ok := in.waiters[id]
	if !ok {
		w = &waiter{id: id, inbox: in, codec: codec, done: make(chan struct{})}
		in.waiters[id] = w
		select {
		case in.fresh <- struct{}{}:
		default:
		}
	}
	w.refs++
	if in.opened == nil {
		in.startLocked()
	}
	return w
}

// release drops one reference to a waiter. The last one removes it from the inbox, so that it never
// ends. It takes in.mu.
func (in *inbox) release(w *waiter) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if w.refs--; w.refs <= 0 && in.waiters[w.id] == w {
		delete(in.waiters, w.id)
	}
}

// resolve passes a terminal record that was sent to this producer to its waiter, see
// resolveIfAwaited. It counts a record without a waiter as rejected.
func (in *inbox) resolve(r resultstore.Record) {
	if !in.resolveIfAwaited(r) {
		in.producer.cfg.Metrics.Rejected.Inc(1) // late, repeated, or of a foreign task
	}
}

// resolveIfAwaited passes a terminal record to the waiter of its task and removes the waiter. It
// returns false if there is no waiter or it has an outcome already. If the record is not sealed as
// required or cannot be opened, the waiter gets that error, and the record counts as rejected. It
// takes in.mu.
func (in *inbox) resolveIfAwaited(r resultstore.Record) bool {
	in.mu.Lock()
	w, ok := in.waiters[r.ID]
	delete(in.waiters, r.ID)
	in.mu.Unlock()
	if !ok {
		return false
	}
	// If the record is not sealed as required, or cannot be opened, the future returns that error.
	err := in.producer.codec.OpenRecord(&r)
	if err != nil {
		in.producer.cfg.Metrics.Rejected.Inc(1)
		r = resultstore.Record{}
	}
	return w.resolve(r, err)
}

// startLocked starts the goroutines that receive notifications and poll the store, as far as the
// store needs them. A store without notifications counts as open at once. close ends the
// goroutines. Call it once, with in.mu held.
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
		in.ended.Go(func() { in.poll(ctx) })
	}
}

// subscriber opens the stream of the records for a submitter. ready waits until records can reach
// the stream; nil: they always can.
type subscriber func(ctx context.Context, node string) (stream resultstore.Notifications, ready func(context.Context) error, err error)

// subscription returns the function that opens the stream of a store, or nil if the store has no
// notifications. A [resultstore.Replier] is preferred to a [resultstore.Notifier].
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

// open sets in.ready and wakes the submissions that wait for the stream. A nil ready means that
// records can always come. It takes in.mu.
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

// interrupted handles the end of a stream with err. With a store that only sends records, new
// submissions wait for the next stream, and all futures end with an error, see lost. With other
// stores nothing is lost, since the records stay there. It takes in.mu.
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

// lost ends all futures with an error that wraps [task.ErrNoResult] and cause, since records for
// them may be lost. It removes their waiters, counts the loss, and logs it if there are futures.
// Submissions that register meanwhile check again whether the producer listens. It takes in.mu.
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
	in.log().LogAttrs(context.Background(), slog.LevelError, "results were lost; their futures end with an error",
		slog.Int("futures", len(open)), slog.Any("error", cause))
	for _, w := range open {
		w.resolve(resultstore.Record{}, fmt.Errorf("%w: %w", task.ErrNoResult, cause))
	}
}

// listen receives the store's notifications and resolves waiters by them. It blocks until ctx ends.
// After an error it logs that, handles it as interrupted does, waits, and opens a new stream.
// Meanwhile submissions do not wait if the store keeps records.
func (in *inbox) listen(ctx context.Context, subscribe subscriber) {
	gap := task.Backoff{Base: notifyMinGap, Max: notifyMaxGap}
	for attempt := 0; ctx.Err() == nil; attempt++ {
		err := in.receiveAll(ctx, subscribe)
		if ctx.Err() != nil {
			return
		}
		in.interrupted(err)
		if !in.replies {
			in.open(nil) // the records stay in the store, and polling finds them
		}
		in.log().LogAttrs(ctx, slog.LevelWarn, "the stream of result notifications failed; it is opened again", slog.Any("error", err))
		wake.Sleep(ctx, gap.Interval(attempt))
	}
}

// receiveAll opens a stream, wakes the submissions that wait for that, and passes its records to
// the waiters. It blocks until the stream fails or ctx ends, closes the stream and returns the
// error. A loss that the stream reports ends all futures, see lost, but not the stream. Malformed
// records are counted as rejected. An error of closing is logged.
func (in *inbox) receiveAll(ctx context.Context, subscribe subscriber) error {
	stream, ready, err := subscribe(ctx, in.producer.cfg.Report.NodeID)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), pollTimeout)
		defer cancel()
		if err := stream.Close(closing); err != nil {
			in.log().LogAttrs(ctx, slog.LevelWarn, "closing the stream of result notifications failed", slog.Any("error", err))
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
			in.noteOpen(r)
		}
	}
}

// poll asks the store for waiters that got no notification. It blocks until ctx ends. The pauses
// between two reads for the same waiter grow, up to pollMaxGap rounds of pollEvery. If the store
// fails, the rest of the round is left out. It sleeps through rounds without a waiter to ask for.
func (in *inbox) poll(ctx context.Context) {
	next := time.NewTimer(pollEvery)
	defer next.Stop()
	for round, rest := 0, 1; ; {
		select {
		case <-ctx.Done():
			return
		case <-in.fresh: // the next round asks for it
			if rest != 1 {
				rest = 1
				next.Reset(pollEvery)
			}
			continue
		case <-next.C:
			round += rest
		}
		for _, w := range in.due(round) {
			if !in.pollOne(ctx, w) {
				break // the store failed: try again in the next round
			}
		}
		if rest = in.rest(round); rest > 0 {
			next.Reset(time.Duration(rest) * pollEvery)
		}
	}
}

// rest returns the number of rounds from this one to the next one with a waiter to ask for. It
// returns 0 if no waiter exists, else 1 with reply queues. It takes in.mu.
func (in *inbox) rest(round int) (rest int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, w := range in.waiters {
		if in.replies {
			return 1
		}
		gap := w.gap()
		if left := gap - round%gap; rest == 0 || left < rest {
			rest = left
		}
		if rest == 1 {
			break
		}
	}
	return rest
}

// gap returns the number of rounds between two reads for w. It doubles with each read, up to
// pollMaxGap.
func (w *waiter) gap() int { return min(1<<min(w.polls, 8), pollMaxGap) }

// due returns the waiters to ask for in this round, at most pollMost. With reply queues these are
// only the waiters behind groups. It takes in.mu.
func (in *inbox) due(round int) []*waiter {
	in.mu.Lock()
	defer in.mu.Unlock()
	var ws []*waiter
	for _, w := range in.waiters {
		if in.replies && len(w.groups) == 0 {
			continue
		}
		if round%w.gap() == 0 {
			if ws = append(ws, w); len(ws) == pollMost {
				break
			}
		}
	}
	return ws
}

// pollOne reads one record, resolves the waiter if the task has ended, and else tells it the state.
// If there is no record and a group before the task was forgotten, the waiter ends with that error.
// Returns false if the store did not answer within pollTimeout. A record that cannot be read
// changes nothing; the result is true. It counts the read in w.polls. It takes in.mu.
func (in *inbox) pollOne(ctx context.Context, w *waiter) bool {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	forgotten := in.forgottenGroup(ctx, w) // first: the record may be stored in between
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
	case err != nil: // no readable record; that says nothing about other tasks
		return true
	}
	if r.State.Terminal() {
		in.resolveIfAwaited(r)
	} else {
		w.setOpen(r)
	}
	return true
}

// log returns the logger with the name of this producer.
func (in *inbox) log() *slog.Logger {
	return in.producer.cfg.Logger.With(middleware.LogNode, in.producer.cfg.Report.NodeID)
}

// close ends the goroutines and resolves every open waiter with [ErrClosed]. Later registrations
// are refused. It waits for the goroutines; if ctx ends first, it returns an error. It takes in.mu.
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
		return fmt.Errorf("swarmiji: producer: the stream of results is still open: %w", context.Cause(ctx))
	}
}
