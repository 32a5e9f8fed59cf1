package natsevents

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/natsconn"
	"github.com/swarmiji/swarmiji/internal/ring"
)

const (
	// maxPending is the number of events that wait for their acknowledgements at the same time.
	maxPending = 512
	// minAge is the shortest age that a server accepts.
	minAge = 100 * time.Millisecond
	// maxWindow limits the time in which a server looks for duplicates; the keeper sends none.
	maxWindow = time.Second
)

// keeper stores events in the stream. The first event starts its goroutine.
type keeper struct {
	bus      *Bus
	prefixes [][]byte // first bytes of events of each kept type
	waiting  *ring.Stream[[]byte]
	lost     atomic.Uint64
	created  atomic.Pointer[time.Time] // when the stream was made; nil: not known to exist
	opening  chan struct{}             // held by the call that makes the stream

	start        sync.Once
	working      context.Context // ends when no more events will be added
	finish       context.CancelFunc
	storeCtx     context.Context // parent context of all stores; ends when close stops waiting
	cancelStores context.CancelFunc
	ended        chan struct{} // closed when the goroutine has returned

	failing bool // the last store failed and was logged; only for the goroutine
}

// newKeeper makes the keeper of a bus. It starts no goroutine.
func newKeeper(b *Bus) *keeper {
	capacity := b.cfg.Batch.Capacity
	if capacity <= 0 {
		capacity = events.DefaultCapacity
	}
	k := &keeper{
		bus: b, waiting: ring.NewStream[[]byte](capacity, events.ErrClosed), opening: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	for _, t := range b.cfg.Retain.Types {
		if p := prefixOf(t); p != nil {
			k.prefixes = append(k.prefixes, p)
		}
	}
	k.working, k.finish = context.WithCancel(context.Background())
	k.storeCtx, k.cancelStores = context.WithCancel(context.Background())
	return k
}

// add queues the events of the kept types and starts the goroutine at the first one. If the queue
// is full it drops the oldest event, which dropped counts. It keeps the memory of parts. Only the
// batcher's goroutine calls it. It does not block.
func (k *keeper) add(parts [][]byte) {
	for _, p := range parts {
		if k.keeps(p) {
			k.waiting.Put(&p)
			k.start.Do(func() { go k.run() })
		}
	}
}

// keeps reports whether an event, given as JSON, is of a kept type.
func (k *keeper) keeps(event []byte) bool {
	if k.bus.cfg.Retain.Types == nil {
		return true
	}
	return slices.ContainsFunc(k.prefixes, func(p []byte) bool { return bytes.HasPrefix(event, p) })
}

// dropped returns the number of events of kept types that were not stored.
func (k *keeper) dropped() uint64 { return k.waiting.Dropped() + k.lost.Load() }

// close stores the waiting events and blocks until the goroutine has ended. Call it after the
// batcher was closed. If ctx ends first, the rest is dropped and counted, and close returns ctx's
// error. If the goroutine was never started, close returns at once, and it can no longer start.
// Further calls wait until the goroutine has ended.
func (k *keeper) close(ctx context.Context) error {
	k.start.Do(func() { close(k.ended) })
	k.finish()
	defer k.cancelStores()
	select {
	case <-k.ended:
		return nil
	default:
	}
	select {
	case <-k.ended:
		return nil
	case <-ctx.Done():
		k.cancelStores()
		<-k.ended
		return ctx.Err()
	}
}

// run stores the waiting events, up to maxPending at a time, until close was called and none is
// left. A failed batch is not repeated. After close it stops at the first failure, counts the rest
// as lost and closes the queue. At its end it closes k.ended.
func (k *keeper) run() {
	defer close(k.ended)
	pubs := make([]natsconn.Pub, 0, maxPending)
	for {
		first, err := k.waiting.Get(k.working)
		if err != nil {
			return
		}
		pubs = append(pubs[:0], k.pub(first))
		for len(pubs) < maxPending && k.waiting.Len() > 0 {
			next, err := k.waiting.Get(k.working)
			if err != nil {
				break
			}
			pubs = append(pubs, k.pub(next))
		}
		err = k.store(pubs)
		clear(pubs) // frees the memory of stored events before the next ones arrive
		if err != nil && k.working.Err() != nil {
			k.lost.Add(uint64(k.waiting.Len()))
			k.waiting.Close()
			return
		}
	}
}

// pub returns the message that stores an event, given as JSON.
func (k *keeper) pub(event []byte) natsconn.Pub {
	return natsconn.Pub{Msg: &nats.Msg{Subject: k.bus.names.kept, Data: event}}
}

// store stores events once, waits for the acknowledgements within Batch.SendTimeout, and counts the
// events that failed. It makes the stream if necessary; if the server reports that it is missing,
// the next call makes it again. It logs the first failure and the first success after it. It
// returns one of the errors.
func (k *keeper) store(pubs []natsconn.Pub) error {
	timeout := k.bus.cfg.Batch.SendTimeout
	if timeout <= 0 {
		timeout = events.DefaultSendTimeout
	}
	ctx, cancel := context.WithTimeout(k.storeCtx, timeout)
	defer cancel()
	err := k.open(ctx)
	if err != nil {
		k.lost.Add(uint64(len(pubs)))
	} else {
		k.bus.conn.PublishBatch(ctx, pubs)
		for i := range pubs {
			if pubs[i].Err != nil {
				k.lost.Add(1)
				err = pubs[i].Err
			}
		}
	}
	if errors.Is(err, natsconn.ErrNoStream) {
		k.created.Store(nil) // deleted: the next call makes it again
	}
	k.report(err)
	return err
}

// report logs the first failure of storing events, and the first success after failures. Only the
// keeper's goroutine calls it.
func (k *keeper) report(err error) {
	log := k.bus.cfg.Logger
	switch {
	case err != nil && !k.failing:
		log.LogAttrs(k.storeCtx, slog.LevelWarn, "cannot store events for late listeners; they are counted as dropped", slog.String("stream", k.bus.names.stream), slog.Any("error", err))
	case err == nil && k.failing:
		log.LogAttrs(k.storeCtx, slog.LevelInfo, "events for late listeners are stored again", slog.String("stream", k.bus.names.stream))
	}
	k.failing = err != nil
}

// open makes the stream if it is not known to exist. It waits for the server. Returns the errors
// of ensureStream.
func (k *keeper) open(ctx context.Context) error {
	if k.created.Load() != nil {
		return nil
	}
	_, err := k.ensureStream(ctx)
	return err
}

// ensureStream makes the stream, or gives an existing one the limits of Config.Retain, and returns
// its state. It stores the stream's creation time in k.created. One call runs at a time
// (k.opening). It waits for the server and tries again while the server cannot be reached or has no
// leader. It returns ErrUnavailable when ctx ends first, and other errors of EnsureStream at once.
func (k *keeper) ensureStream(ctx context.Context) (*jetstream.StreamInfo, error) {
	select {
	case k.opening <- struct{}{}:
		defer func() { <-k.opening }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", natsconn.ErrUnavailable, ctx.Err())
	}
	keep := k.bus.cfg.Retain
	limits := func(c *jetstream.StreamConfig) {
		c.MaxMsgs, c.MaxAge = int64(keep.Max), max(keep.Age, minAge)
		c.Duplicates = min(c.MaxAge, maxWindow)
	}
	want := jetstream.StreamConfig{
		Name:        k.bus.names.stream,
		Description: "events of tasks, for late listeners",
		Subjects:    []string{k.bus.names.kept},
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardOld,
		Storage:     jetstream.FileStorage,
		Replicas:    k.bus.cfg.Replicas,
	}
	limits(&want)
	info, err := k.bus.conn.EnsureStream(ctx, want, func(have jetstream.StreamConfig) (jetstream.StreamConfig, bool) {
		same := have.MaxMsgs == want.MaxMsgs && have.MaxAge == want.MaxAge
		limits(&have)
		return have, !same
	})
	if err == nil {
		k.created.Store(&info.Created)
	}
	return info, err
}
