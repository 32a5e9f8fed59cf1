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
	// together is how many events wait for their acknowledgements at once.
	together = 512
	// minAge is the shortest age that a server takes.
	minAge = 100 * time.Millisecond
	// maxWindow is the time in which a server looks for duplicates, of which there are none.
	maxWindow = time.Second
)

// keeper stores events in the stream, in a goroutine of its own that the first of them starts.
type keeper struct {
	bus      *Bus
	prefixes [][]byte // of kept types
	waiting  *ring.Stream[[]byte]
	lost     atomic.Uint64
	created  atomic.Pointer[time.Time] // when the stream was made; nil: it is not known to be there
	opening  chan struct{}             // held by who makes the stream

	start   sync.Once
	working context.Context // ends when no more events come
	finish  context.CancelFunc
	hurry   context.Context // ends when there is no more time
	abandon context.CancelFunc
	ended   chan struct{} // closed when the goroutine has returned

	failing bool // of the goroutine: the logger knows that events are not kept
}

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
	k.hurry, k.abandon = context.WithCancel(context.Background())
	return k
}

// add takes over the events that are kept. Only the batcher's goroutine calls it.
func (k *keeper) add(parts [][]byte) {
	for _, p := range parts {
		if k.keeps(p) {
			k.waiting.Put(&p)
			k.start.Do(func() { go k.run() })
		}
	}
}

func (k *keeper) keeps(event []byte) bool {
	if k.bus.cfg.Retain.Types == nil {
		return true
	}
	return slices.ContainsFunc(k.prefixes, func(p []byte) bool { return bytes.HasPrefix(event, p) })
}

func (k *keeper) dropped() uint64 { return k.waiting.Dropped() + k.lost.Load() }

// close stores what waits, within ctx. The batcher has ended. Further calls wait for the same end.
func (k *keeper) close(ctx context.Context) error {
	k.start.Do(func() { close(k.ended) })
	k.finish()
	defer k.abandon()
	select {
	case <-k.ended:
		return nil
	default:
	}
	select {
	case <-k.ended:
		return nil
	case <-ctx.Done():
		k.abandon()
		<-k.ended
		return ctx.Err()
	}
}

// run stores events until there are no more to come.
func (k *keeper) run() {
	defer close(k.ended)
	pubs := make([]natsconn.Pub, 0, together)
	for {
		first, err := k.waiting.Get(k.working)
		if err != nil {
			return
		}
		pubs = append(pubs[:0], k.pub(first))
		for len(pubs) < together && k.waiting.Len() > 0 {
			next, err := k.waiting.Get(k.working)
			if err != nil {
				break
			}
			pubs = append(pubs, k.pub(next))
		}
		err = k.store(pubs)
		clear(pubs) // what was stored does not stay in memory until the next events come
		if err != nil && k.working.Err() != nil {
			k.lost.Add(uint64(k.waiting.Len()))
			k.waiting.Close()
			return
		}
	}
}

func (k *keeper) pub(event []byte) natsconn.Pub {
	return natsconn.Pub{Msg: &nats.Msg{Subject: k.bus.names.kept, Data: event}}
}

// store stores events, and counts those that it could not, without another try. The error is of one of them.
func (k *keeper) store(pubs []natsconn.Pub) error {
	timeout := k.bus.cfg.Batch.SendTimeout
	if timeout <= 0 {
		timeout = events.DefaultSendTimeout
	}
	ctx, cancel := context.WithTimeout(k.hurry, timeout)
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
		k.created.Store(nil) // it was deleted: make it again for the next
	}
	k.report(err)
	return err
}

// report logs the beginning and the end of a time in which events are not kept.
func (k *keeper) report(err error) {
	log := k.bus.cfg.Logger
	switch {
	case err != nil && !k.failing:
		log.LogAttrs(k.hurry, slog.LevelWarn, "events are not kept", slog.String("stream", k.bus.names.stream), slog.Any("error", err))
	case err == nil && k.failing:
		log.LogAttrs(k.hurry, slog.LevelInfo, "events are kept again", slog.String("stream", k.bus.names.stream))
	}
	k.failing = err != nil
}

// open makes the stream if it is not known to be there.
func (k *keeper) open(ctx context.Context) error {
	if k.created.Load() != nil {
		return nil
	}
	_, err := k.look(ctx)
	return err
}

// look asks for the stream, and makes it if need be.
func (k *keeper) look(ctx context.Context) (*jetstream.StreamInfo, error) {
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
		Description: "events of tasks, for those who come late",
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
