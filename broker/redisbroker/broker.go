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

// Broker is a [broker.Broker] over Redis. Make one with [New].
type Broker struct {
	cfg     Config
	conn    *redisconn.Conn
	scripts *scripts
	ears    *redisconn.Listener // for the channels of queues
	queues  sync.Map            // name: *queue
	nodes   nodes               // that noted starts

	ctx      context.Context // ends with the Broker
	cancel   context.CancelFunc
	out      context.Context // ends when Close begins: publishing stops
	stopOut  context.CancelFunc
	settings sync.Once
	tending  sync.Once

	mu     sync.Mutex
	closed bool // Close has begun
	ended  bool // no goroutine is started any more
	subs   map[*subscription]struct{}
	owners map[string]*subscription // by channel
	work   sync.WaitGroup
	over   chan struct{} // closed when Close is done
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
	_ broker.Watcher        = (*Broker)(nil)
	_ broker.Witness        = (*Broker)(nil)
)

// New checks the configuration and returns a Broker. It does not connect.
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
		subs:   make(map[*subscription]struct{}),
		owners: make(map[string]*subscription),
		over:   make(chan struct{}),
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.out, b.stopOut = context.WithCancel(b.ctx)
	b.ears = conn.Listen(redisconn.ListenerConfig{
		Message: func(channel, payload string) {
			if s := b.listener(channel); s != nil {
				s.handed(channel, payload)
			}
		},
		Subscribed: func(channel string) {
			if s := b.listener(channel); s != nil {
				s.hears(channel)
			}
		},
	})
	return b, nil
}

// open returns a queue by its name, unless the Broker is closed.
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

// start runs fn in a goroutine that Close waits for; false if it is too late for that.
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

// pause waits before an attempt; false if ctx ended.
func (b *Broker) pause(ctx context.Context, attempt int) bool {
	return wake.SleepOr(ctx, b.ctx.Done(), b.conn.Backoff().Interval(attempt))
}

// Declare implements [broker.Declarer]. A queue keeps the levels with which it was declared first.
func (b *Broker) Declare(ctx context.Context, qs ...broker.Queue) error {
	for _, want := range qs {
		q, err := b.open(want.Name)
		if err != nil {
			return err
		}
		if err := q.declare(ctx, want.Levels); err != nil {
			return wrap(err, "declare", want.Name)
		}
		b.lookAtSettings()
	}
	return nil
}

func (q *queue) declare(ctx context.Context, bounds []int) error {
	for i, bound := range bounds {
		if i > 0 && bound <= bounds[i-1] || bound != int(int32(bound)) {
			return fmt.Errorf("%w: levels %v do not ascend, or not within 32 bits", broker.ErrMalformed, bounds)
		}
	}
	if len(bounds) > maxLevels {
		return fmt.Errorf("%w: %d levels, the limit is %d", broker.ErrMalformed, len(bounds), maxLevels)
	}
	want := levelsText(bounds)
	v, err := q.eval(ctx, q.b.write, q.b.scripts.declare, want)
	if err != nil {
		return err
	}
	answer, status, err := take(v)
	if err != nil || status != done {
		return errors.Join(errAnswer, err)
	}
	if has := q.learn(text(answer, 1)).text; has != want {
		q.warned.Do(func() {
			q.b.cfg.Logger.WarnContext(ctx, "redis: the queue exists with other priority levels and is used as it is",
				"queue", q.name, "levels", has, "asked", want)
		})
	}
	return nil
}

// lookAtSettings has the server's settings looked at once, beside what the caller does.
func (b *Broker) lookAtSettings() {
	b.settings.Do(func() {
		b.start(func() {
			for attempt := 0; ; attempt++ {
				ctx, cancel := context.WithTimeout(b.ctx, settingsTime)
				_, err := b.conn.CheckSettings(ctx)
				cancel()
				if err == nil || !b.pause(b.out, attempt) {
					return
				}
			}
		})
	})
}

const (
	settingsTime = 5 * time.Second
	// answerTime is how long Close waits for answers before it closes connections under them.
	answerTime = time.Second
	maxLevels  = 64
)

// listener returns the subscription whose owner a channel belongs to, nil if there is none.
func (b *Broker) listener(channel string) *subscription {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.owners[channel]
}

// hear listens to the channel of a subscription's owner.
func (b *Broker) hear(s *subscription, own *owner) {
	channel := s.q.names.channel(own.number)
	b.mu.Lock()
	b.owners[channel] = s
	b.mu.Unlock()
	b.ears.Add(channel)
}

// ignore ends that.
func (b *Broker) ignore(s *subscription, own *owner) {
	channel := s.q.names.channel(own.number)
	b.mu.Lock()
	delete(b.owners, channel)
	b.mu.Unlock()
	b.ears.Remove(channel)
}

// Watch implements [broker.Watcher]. Blocked is a server that takes no writes. While somebody watches, an idle server is asked
// once a second whether it lives.
func (b *Broker) Watch(fn func(s broker.ConnState, err error)) (stop func()) {
	return b.conn.Watch(func(s broker.ConnState, err error) {
		if class := classOf(err); class != nil {
			err = fmt.Errorf("%w: %w", class, err)
		}
		fn(s, err)
	})
}

// Close implements [broker.Broker]. What subscriptions hold goes back, what was handed out too. If the server cannot be reached
// until ctx ends, that happens when the leases end.
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
		case <-b.over:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer close(b.over)
	b.stopOut()
	errs := make([]error, len(subs))
	var wg sync.WaitGroup
	for i, s := range subs {
		wg.Go(func() { errs[i] = s.shut(ctx) })
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
	t := time.NewTimer(answerTime)
	defer t.Stop()
	select {
	case <-gone: // the last answers have come
	case <-t.C:
	case <-ctx.Done():
	}
	err := b.conn.Close(ctx) // ends what still waits for an answer
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
