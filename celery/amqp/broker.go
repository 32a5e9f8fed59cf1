package amqp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/internal/amqpdead"
	"github.com/swarmiji/swarmiji/internal/amqpdelay"
	"github.com/swarmiji/swarmiji/internal/naming"
)

// Broker is an adapter of the port broker for Celery's queues. All methods are safe for concurrent
// use.
type Broker struct {
	cfg Config

	pub    *amqpconn.Conn // only publishes, so that an alarm of the server stops nothing else
	con    *amqpconn.Conn // consumes, acknowledges, declares
	direct *amqpconn.Publisher
	delays *amqpdelay.Delays
	warned sync.Map // the AMQP queues whose other settings were logged
	levels sync.Map // the queues that Declare has named with levels
	scans  amqpdead.Scans

	stop context.Context // ends when the Broker releases its resources
	halt context.CancelFunc

	mu     sync.Mutex
	closed bool
	subs   map[*subscription]struct{}
}

var (
	_ broker.Broker         = (*Broker)(nil)
	_ broker.Delayer        = (*Broker)(nil)
	_ broker.BatchPublisher = (*Broker)(nil)
	_ broker.Declarer       = (*Broker)(nil)
	_ broker.Inspector      = (*Broker)(nil)
	_ broker.DeadLetterer   = (*Broker)(nil)
	_ broker.Watcher        = (*Broker)(nil)
	_ broker.Subscription   = (*subscription)(nil)
	_ broker.Resizer        = (*subscription)(nil)
	_ broker.Delivery       = (*delivery)(nil)
)

// New checks cfg and returns a Broker. It does not connect before the first call that needs the
// server. The error joins all problems of cfg.
func New(cfg Config) (*Broker, error) {
	cfg, cfgErr := cfg.complete()
	pub, err := amqpconn.New(cfg.Connect, "celery publish", cfg.Logger)
	if err = errors.Join(cfgErr, err); err != nil {
		return nil, err
	}
	con, err := amqpconn.New(cfg.Connect, "celery consume", cfg.Logger)
	if err != nil {
		return nil, err
	}
	cfg.Connect.URLs = nil // they hold passwords
	b := &Broker{cfg: cfg, pub: pub, con: con, subs: make(map[*subscription]struct{})}
	b.stop, b.halt = context.WithCancel(context.Background())
	b.direct = amqpconn.NewPublisher(pub, amqpconn.PublisherConfig{})
	b.delays = amqpdelay.New(amqpdelay.Config{
		Prefix: "swj.celery.", Publishing: pub, Declaring: con, QueueType: amqpdelay.Quorum, Differs: b.warnDifference, Stop: b.stop,
	})
	return b, nil
}

// checkQueue returns ErrMalformed if the queue name is not valid.
func checkQueue(queue string) error {
	if !naming.ValidName(queue) {
		return fmt.Errorf("%w: queue name %.140q", broker.ErrMalformed, queue)
	}
	return nil
}

// prepare checks the queue name and fills p with m. Returns the errors of encode.
func (b *Broker) prepare(p *amqp.Publishing, queue string, m *broker.Message) error {
	if err := checkQueue(queue); err != nil {
		return err
	}
	return encode(p, m, b.cfg.MaxBody)
}

// Publish implements [broker.Broker]. It sends m once and waits until RabbitMQ has confirmed it.
// Returns ErrNoQueue if RabbitMQ returns m as unroutable, ErrMalformed or ErrTooLarge if m cannot
// be sent. After ErrIndeterminate, m may be in the queue.
func (b *Broker) Publish(ctx context.Context, queue string, m *broker.Message) error {
	var p amqp.Publishing
	err := b.prepare(&p, queue, m)
	if err == nil {
		err = b.direct.Publish(ctx, "", queue, &p)
	}
	return amqpconn.BrokerError(err, "publish to", queue)
}

// PublishAt implements [broker.Delayer]. It publishes m so that it reaches the queue at the time
// at, and waits until RabbitMQ has confirmed m. This process's clock counts. If at has come it
// publishes m at once.
//
// Returns ErrUnsupported for a delay of more than 2^38 ms, 8.7 years. Returns ErrNoQueue if the
// queue does not exist, ErrMalformed or ErrTooLarge if m cannot be sent. The property expiration of
// m is delivered but not applied.
func (b *Broker) PublishAt(ctx context.Context, queue string, m *broker.Message, at time.Time) error {
	if !at.After(time.Now()) {
		return b.Publish(ctx, queue, m)
	}
	var p amqp.Publishing
	err := b.prepare(&p, queue, m)
	if err == nil {
		amqpconn.HideExpiration(&p)
		err = b.delays.Publish(ctx, queue, &p, at)
	}
	return amqpconn.BrokerError(err, "publish later to", queue)
}

// PublishBatch implements [broker.BatchPublisher]. It waits until RabbitMQ has confirmed or refused
// every message. It publishes the messages that are due before the delayed ones. A message that
// fails does not stop the others. Returns nil if all were confirmed, otherwise a
// [broker.BatchError] with the error of each message.
func (b *Broker) PublishBatch(ctx context.Context, ms []broker.Outgoing) error {
	errs := make([]error, len(ms))
	var due, later part
	now := time.Now()
	for i := range ms {
		o := &ms[i]
		p := new(amqp.Publishing)
		if errs[i] = b.prepare(p, o.Queue, o.Message); errs[i] != nil {
			continue
		}
		out := amqpconn.Outgoing{Key: o.Queue, Message: p}
		if !o.At.After(now) {
			due.add(i, out)
			continue
		}
		amqpconn.HideExpiration(p)
		if out.Exchange, out.Key, errs[i] = b.delays.Route(ctx, o.Queue, o.At); errs[i] == nil {
			later.add(i, out)
		}
	}
	due.publish(ctx, b.direct.PublishBatch, errs)
	later.publish(ctx, b.delays.PublishBatch, errs)
	if errors.Join(errs...) == nil {
		return nil
	}
	for i := range errs {
		errs[i] = amqpconn.BrokerError(errs[i], "publish to", ms[i].Queue)
	}
	return &broker.BatchError{Errs: errs}
}

// part is a part of a batch that is published together.
type part struct {
	out []amqpconn.Outgoing
	at  []int // the index of each in the batch
}

// add appends a message with its index in the batch.
func (p *part) add(i int, out amqpconn.Outgoing) { p.out, p.at = append(p.out, out), append(p.at, i) }

// publish calls batch with the messages and stores the error of each in errs, by its index.
func (p *part) publish(ctx context.Context, batch func(context.Context, []amqpconn.Outgoing) []error, errs []error) {
	if len(p.out) == 0 {
		return
	}
	for k, err := range batch(ctx, p.out) {
		errs[p.at[k]] = err
	}
}

// Watch implements [broker.Watcher], with the states of [amqpconn.WatchBoth].
func (b *Broker) Watch(fn func(s broker.ConnState, err error)) (stop func()) {
	return amqpconn.WatchBoth(b.pub, b.con, fn)
}

const (
	// closeTimeout limits Close.
	closeTimeout = 10 * time.Second
	// confirmGrace limits the time that Close waits for the confirmations of publishes in progress.
	confirmGrace = time.Second
)

// Close implements [broker.Broker]. It closes all subscriptions, which returns their undelivered
// messages to the queue, and sends outstanding acknowledgements. Unsettled deliveries are lost
// with their channels. It takes at most about 10 s, even if ctx lasts longer. Returns the errors of
// closing the connections, joined.
func (b *Broker) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	subs := make([]*subscription, 0, len(b.subs))
	for s := range b.subs {
		subs = append(subs, s)
	}
	b.mu.Unlock()
	// A server that does not answer must not block Close for ever.
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, s := range subs {
		// messages that are not returned in time go back when the connection is closed
		wg.Go(func() { _ = s.Close(ctx) })
	}
	wg.Wait()
	b.halt()
	for _, s := range subs {
		wg.Go(func() { s.awaitEnd(ctx) })
	}
	wg.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, confirmGrace)
		defer cancel()
		_ = b.direct.Close(ctx) // publishes that still wait fail when the connection is closed
		_ = b.delays.Close(ctx)
	})
	wg.Wait()
	return errors.Join(b.pub.Close(ctx), b.con.Close(ctx))
}
