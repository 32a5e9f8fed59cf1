package redisbroker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/redisconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

// Broker is a [broker.Broker] over Redis. Create it with [New].
type Broker struct {
	cfg      Config
	conn     *redisconn.Conn
	scripts  *scripts
	listener *redisconn.Listener // subscribes to the channels of owners
	queues   sync.Map            // name -> *queue
	nodes    nodes               // nodes that noted starts through this Broker

	ctx            context.Context // ends with the Broker
	cancel         context.CancelFunc
	publishCtx     context.Context // ends when Close begins: publishing stops
	stopPublishing context.CancelFunc
	settings       sync.Once // starts the check of the server's settings
	tending        sync.Once // starts pollLoop

	mu        sync.Mutex
	closed    bool // Close has begun
	ended     bool // no further goroutine is started
	subs      map[*subscription]struct{}
	owners    map[string]*subscription // by channel
	work      sync.WaitGroup
	closeDone chan struct{} // closed when Close is done
}

var (
	_ broker.Broker         = (*Broker)(nil)
	_ broker.Delayer        = (*Broker)(nil)
	_ broker.BatchPublisher = (*Broker)(nil)
	_ broker.Retrier        = (*Broker)(nil)
	_ broker.Declarer       = (*Broker)(nil)
	_ broker.Inspector      = (*Broker)(nil)
	_ broker.Auditor        = (*Broker)(nil)
	_ broker.DeadLetterer   = (*Broker)(nil)
	_ broker.Finder         = (*Broker)(nil)
	_ broker.QueueLister    = (*Broker)(nil)
	_ broker.Lister         = (*Broker)(nil)
	_ broker.KeyLister      = (*Broker)(nil)
	_ broker.Watcher        = (*Broker)(nil)
	_ broker.Witness        = (*Broker)(nil)
)

// New checks the configuration, sets its defaults and returns a Broker. It returns all problems as
// one joined error and no Broker. It does not connect: the first call that needs the server does.
func New(cfg Config) (*Broker, error) {
	err := cfg.check()
	conn, connErr := redisconn.New(cfg.conn())
	scripts, scriptErr := loadScripts()
	if err := errors.Join(err, connErr, scriptErr); err != nil {
		if conn != nil {
			_ = conn.Close(context.Background())
		}
		return nil, err
	}
	b := &Broker{
		cfg: cfg, conn: conn, scripts: scripts,
		subs:      make(map[*subscription]struct{}),
		owners:    make(map[string]*subscription),
		closeDone: make(chan struct{}),
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.publishCtx, b.stopPublishing = context.WithCancel(b.ctx)
	b.listener = conn.Listen(redisconn.ListenerConfig{
		Message: func(channel, payload string) {
			if s := b.subscriptionOf(channel); s != nil {
				s.handleMessage(channel, payload)
			}
		},
		Subscribed: func(channel string) {
			if s := b.subscriptionOf(channel); s != nil {
				s.channelConfirmed(channel)
			}
		},
	})
	return b, nil
}

// open returns the queue with the given name, also if it does not exist on the server. It sends
// nothing. Returns ErrMalformed if the name is not valid, ErrClosed after Close. It takes b.mu.
func (b *Broker) open(name string) (*queue, error) {
	q, err := b.queue(name)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, fmt.Errorf("redis queue %.128q: %w", name, errClosed)
	}
	return q, nil
}

// start runs fn in a goroutine for which Close waits, and returns true. If Close has begun to wait
// for the goroutines, it does not run fn and returns false. It takes b.mu.
func (b *Broker) start(fn func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return false
	}
	b.work.Add(1)
	go func() {
		defer b.work.Done()
		fn()
	}()
	return true
}

// pause blocks for the backoff time of the given attempt, of which 0 is the first, and returns true
// then. It returns false if ctx or the Broker ended first.
func (b *Broker) pause(ctx context.Context, attempt int) bool {
	return wake.SleepOr(ctx, b.ctx.Done(), b.conn.Backoff().Interval(attempt))
}

// Declare implements [broker.Declarer]. It creates the queues that do not exist, one after the
// other, and waits for the server and for the replicas of Config.WaitReplicas. A queue keeps the
// levels and the fairness with which it was declared first; a difference is logged once. Declare
// stops at the first error; the queues before it exist then. The first success starts a check of
// the server's settings in the background, see checkSettings.
//
// Returns ErrMalformed for an invalid name or for levels that do not ascend or are too many,
// ErrClosed after Close. Otherwise it returns the error of the server.
func (b *Broker) Declare(ctx context.Context, qs ...broker.Queue) error {
	for _, want := range qs {
		q, err := b.open(want.Name)
		if err != nil {
			return err
		}
		if err := q.declare(ctx, want.Levels, want.Fair); err != nil {
			return wrap(err, "declare", want.Name)
		}
		b.checkSettings()
	}
	return nil
}

// declare creates the queue on the server if it does not exist, with the given level bounds and
// fairness. It stores the levels that the queue has on the server in q.levels. If they differ from
// the given ones, the queue is used as it is, and the difference is logged once. It waits for the
// server. It takes q.mu.
//
// Returns ErrMalformed if the bounds do not ascend, do not fit into 32 bits, or are more than
// maxLevels. Returns errAnswer if the server's answer has another form.
func (q *queue) declare(ctx context.Context, bounds []int, fair bool) error {
	for i, bound := range bounds {
		if i > 0 && bound <= bounds[i-1] || bound != int(int32(bound)) {
			return fmt.Errorf("%w: levels %v do not ascend, or not within 32 bits", broker.ErrMalformed, bounds)
		}
	}
	if len(bounds) > maxLevels {
		return fmt.Errorf("%w: %d levels, the limit is %d", broker.ErrMalformed, len(bounds), maxLevels)
	}
	want := levelsText(bounds, fair)
	v, err := q.eval(ctx, q.b.write, q.b.scripts.declare, want)
	if err != nil {
		return err
	}
	answer, status, err := parseAnswer(v)
	if err != nil || status != done {
		return errors.Join(errAnswer, err)
	}
	if has := q.storeLevels(text(answer, 1)); has.text != want {
		q.warned.Do(func() {
			q.b.cfg.Logger.WarnContext(ctx, "redis: the queue exists with other priority levels or another fairness and is used as it is",
				"queue", q.name, "levels", levelsText(has.bounds, false), "asked", levelsText(bounds, false), "fair", has.fair, "asked_fair", fair)
		})
	}
	return nil
}

// checkSettings starts a goroutine, once per Broker, that checks the server's settings. The
// connection logs those that weaken the promises. After an error the goroutine tries again, until
// Close begins. checkSettings does not block.
func (b *Broker) checkSettings() {
	b.settings.Do(func() {
		b.start(func() {
			for attempt := 0; ; attempt++ {
				ctx, cancel := context.WithTimeout(b.ctx, settingsTimeout)
				_, err := b.conn.CheckSettings(ctx)
				cancel()
				if err == nil || !b.pause(b.publishCtx, attempt) {
					return
				}
			}
		})
	})
}

const (
	settingsTimeout = 5 * time.Second
	// answerTimeout limits the time that Close waits for outstanding answers before it closes the
	// connections.
	answerTimeout = time.Second
	maxLevels     = 64
)

// subscriptionOf returns the subscription whose owner has the given channel, nil if the channel
// has no owner. It takes b.mu.
func (b *Broker) subscriptionOf(channel string) *subscription {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.owners[channel]
}

// listenTo starts to receive the messages that the server publishes on the channel of own, an
// owner of s. It does not wait: channelConfirmed is called when the server has confirmed it. It
// takes b.mu.
func (b *Broker) listenTo(s *subscription, own *owner) {
	channel := s.q.names.channel(own.number)
	b.mu.Lock()
	b.owners[channel] = s
	b.mu.Unlock()
	b.listener.Add(channel)
}

// stopListening ends the subscription to the channel of own, which listenTo added. It does not wait
// for the server; messages on the way are ignored. It takes b.mu.
func (b *Broker) stopListening(s *subscription, own *owner) {
	channel := s.q.names.channel(own.number)
	b.mu.Lock()
	delete(b.owners, channel)
	b.mu.Unlock()
	b.listener.Remove(channel)
}

// Watch implements [broker.Watcher]. It calls fn with the current state and at each change, until
// stop is called or the Broker is closed. Blocked means that the server accepts no writes. While a
// callback is registered, an idle server is asked once a second whether it is alive. The err of fn
// wraps a sentinel of package broker if classOf finds one.
func (b *Broker) Watch(fn func(s broker.ConnState, err error)) (stop func()) {
	return b.conn.Watch(func(s broker.ConnState, err error) {
		if class := classOf(err); class != nil {
			err = fmt.Errorf("%w: %w", class, err)
		}
		fn(s, err)
	})
}

// Close implements [broker.Broker]. All messages that subscriptions hold go back to their queues,
// even those that Receive has returned: their Lost channels are closed. Calls of Publish in
// progress get about a second for their answer. Then they return ErrClosed or ErrIndeterminate.
//
// If the server cannot be reached until ctx ends, Close returns an error. The messages go back when
// the leases end then. A second call waits for the first one and returns nil, or ctx's error. It
// takes b.mu, but does not hold it while it waits.
func (b *Broker) Close(ctx context.Context) error {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	subs := make([]*subscription, 0, len(b.subs))
	for s := range b.subs {
		subs = append(subs, s)
	}
	b.mu.Unlock()
	if !first {
		select {
		case <-b.closeDone:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer close(b.closeDone)
	b.stopPublishing()
	errs := make([]error, len(subs))
	var wg sync.WaitGroup
	for i, s := range subs {
		wg.Go(func() { errs[i] = s.closeWithBroker(ctx) })
	}
	wg.Wait()
	b.mu.Lock()
	b.ended = true
	b.mu.Unlock()
	b.cancel()
	gone := make(chan struct{})
	go func() {
		b.work.Wait()
		close(gone)
	}()
	t := time.NewTimer(answerTimeout)
	defer t.Stop()
	select {
	case <-gone: // the last answers have arrived
	case <-t.C:
	case <-ctx.Done():
	}
	err := b.conn.Close(ctx) // ends calls that still wait for an answer
	select {
	case <-gone:
	case <-ctx.Done():
		err = errors.Join(err, ctx.Err())
	}
	if err := errors.Join(errors.Join(errs...), err); err != nil {
		return fmt.Errorf("redis close: %w", err)
	}
	return nil
}
