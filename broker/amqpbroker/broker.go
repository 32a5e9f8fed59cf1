package amqpbroker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/internal/keyset"
)

// Broker is the RabbitMQ adapter of the port broker. All methods may be called from any goroutine.
type Broker struct {
	cfg   Config
	names names

	pub     *amqpconn.Conn // only publishes: an alarm of the server stops it, and nothing else
	con     *amqpconn.Conn // consumes, acknowledges, declares
	notes   *amqpconn.Conn // writes and reads notes: the server may end a connection that uses a stream which is being made
	direct  *amqpconn.Publisher
	delayed *amqpconn.Publisher // apart, since a missing exchange costs all that is under way on its channel

	queues sync.Map // name -> *levels, of declared queues that have levels
	bound  sync.Map // AMQP queue -> the generation of con in which it was bound to the delay topology
	warned sync.Map // AMQP queue or exchange that exists with other settings -> struct{}

	levelless sync.Map // queue that has no levels -> time.Time at which the server said so
	deadless  sync.Map // queue that has no dead queue -> time.Time at which the server said so

	scans   sync.Map // queue -> a channel that is full while its dead letters are scanned
	id      string   // of this Broker, in notes
	witness *witness
	acks    *ackNotes

	delaysFound atomic.Bool // the queues of the delay levels were just declared or found one by one

	mu     sync.Mutex
	closed bool
	subs   map[*subscription]struct{}
	stop   context.Context // ends when the broker lets go of everything
	halt   context.CancelFunc
	tasks  sync.WaitGroup // what spawn has started
}

var (
	_ broker.Broker         = (*Broker)(nil)
	_ broker.Delayer        = (*Broker)(nil)
	_ broker.BatchPublisher = (*Broker)(nil)
	_ broker.Declarer       = (*Broker)(nil)
	_ broker.Inspector      = (*Broker)(nil)
	_ broker.Auditor        = (*Broker)(nil)
	_ broker.Locator        = (*Broker)(nil)
	_ broker.DeadLetterer   = (*Broker)(nil)
	_ broker.Watcher        = (*Broker)(nil)
	_ broker.Witness        = (*Broker)(nil)
	_ broker.Subscription   = (*subscription)(nil)
	_ broker.Resizer        = (*subscription)(nil)
	_ broker.Delivery       = (*delivery)(nil)
	_ broker.SyncAcker      = (*delivery)(nil)
	_ broker.AckChecker     = (*delivery)(nil)
)

// New checks cfg and returns a Broker that connects when it is first used. All problems of cfg are reported together.
func New(cfg Config) (*Broker, error) {
	cfgErr := cfg.check()
	pub, err := amqpconn.New(cfg.Connect, "publish", cfg.Logger)
	if err = errors.Join(cfgErr, err); err != nil {
		return nil, err
	}
	con, err := amqpconn.New(cfg.Connect, "consume", cfg.Logger)
	if err != nil {
		return nil, err
	}
	notes, err := amqpconn.New(cfg.Connect, "notes", cfg.Logger)
	if err != nil {
		return nil, err
	}
	b := &Broker{
		cfg: cfg, names: newNames(cfg.Namespace), pub: pub, con: con, notes: notes, subs: make(map[*subscription]struct{}),
		id: rand.Text()[:12],
	}
	b.cfg.Connect.URLs = nil // they hold passwords
	b.direct = amqpconn.NewPublisher(pub, amqpconn.PublisherConfig{})
	b.delayed = amqpconn.NewPublisher(pub, amqpconn.PublisherConfig{Setup: b.setUpDelays})
	b.witness, b.acks = b.newWitness(), b.newAckNotes()
	b.stop, b.halt = context.WithCancel(context.Background())
	return b, nil
}

// route returns the AMQP queue for a message of the given priority.
func (b *Broker) route(queue string, priority int) (string, error) {
	if !keyset.ValidName(queue) {
		return "", fmt.Errorf("%w: queue name %.140q", broker.ErrMalformed, queue)
	}
	if v, ok := b.queues.Load(queue); ok {
		l := v.(*levels)
		for i, bound := range l.bounds {
			if priority <= bound {
				return l.queues[i], nil
			}
		}
		return l.queues[len(l.queues)-1], nil
	}
	return b.names.work(queue), nil
}

// all returns every AMQP queue of a queue, the most urgent first.
func (b *Broker) all(queue string) []string {
	if v, ok := b.queues.Load(queue); ok {
		return v.(*levels).queues
	}
	return []string{b.names.work(queue)}
}

// Locate returns the default exchange and the AMQP queue of messages of the default priority.
func (b *Broker) Locate(queue string) (exchange, routingKey string) {
	q, err := b.route(queue, defaultPriority)
	if err != nil {
		return "", queue
	}
	return "", q
}

// Publish implements [broker.Broker].
func (b *Broker) Publish(ctx context.Context, queue string, m *broker.Message) error {
	var p amqp.Publishing
	key, err := b.prepare(&p, queue, m)
	if err == nil {
		err = b.direct.Publish(ctx, "", key, &p)
	}
	if err != nil {
		return wrap(err, "publish to", queue)
	}
	return nil
}

func (b *Broker) prepare(p *amqp.Publishing, queue string, m *broker.Message) (key string, err error) {
	if err := b.encode(p, m); err != nil {
		return "", err
	}
	return b.route(queue, m.Priority)
}

// PublishAt implements [broker.Delayer]. The time is reckoned on this process's clock; RabbitMQ is told how long to wait. A
// delay of more than 2^38 ms, 8.7 years, is broker.ErrUnsupported. The property expiration of m is delivered and not applied:
// the server would hand m out when the shorter of the two times has passed.
func (b *Broker) PublishAt(ctx context.Context, queue string, m *broker.Message, at time.Time) error {
	if !at.After(time.Now()) {
		return b.Publish(ctx, queue, m)
	}
	var p amqp.Publishing
	key, err := b.prepare(&p, queue, m)
	if err == nil {
		err = b.publishDelayed(ctx, key, &p, at)
	}
	return wrap(err, "publish later to", queue)
}

// PublishBatch implements [broker.BatchPublisher].
func (b *Broker) PublishBatch(ctx context.Context, ms []broker.Outgoing) error {
	errs := make([]error, len(ms))
	publishings := make([]amqp.Publishing, len(ms))
	now := time.Now()
	// Both kinds keep their order; where says to which message each of a kind belongs.
	var direct, delayed []amqpconn.Outgoing
	var directAt, delayedAt []int
	for i := range ms {
		o := &ms[i]
		key, err := b.prepare(&publishings[i], o.Queue, o.Message)
		if err != nil {
			errs[i] = err
			continue
		}
		if o.At.After(now) {
			exchange, topic, err := b.delay(ctx, key, o.At)
			if err != nil {
				errs[i] = err
				continue
			}
			holdExpiration(&publishings[i])
			publishings[i].Timestamp = o.At // as in publishDelayed
			delayed = append(delayed, amqpconn.Outgoing{Exchange: exchange, Key: topic, Message: &publishings[i]})
			delayedAt = append(delayedAt, i)
			continue
		}
		if direct == nil {
			direct, directAt = make([]amqpconn.Outgoing, 0, len(ms)-i), make([]int, 0, len(ms)-i)
		}
		direct = append(direct, amqpconn.Outgoing{Key: key, Message: &publishings[i]})
		directAt = append(directAt, i)
	}
	spread(errs, directAt, b.direct.PublishBatch(ctx, direct))
	spread(errs, delayedAt, b.delayed.PublishBatch(ctx, delayed))
	failed := false
	for i, err := range errs {
		if err != nil {
			errs[i], failed = wrap(err, "publish to", ms[i].Queue), true
		}
	}
	if failed {
		return &broker.BatchError{Errs: errs}
	}
	return nil
}

// spread puts the errors of a part of a batch where they belong.
func spread(errs []error, at []int, part []error) {
	for i, err := range part {
		errs[at[i]] = err
	}
}

// Close implements [broker.Broker]. What subscriptions hold and have not handed out goes back, acknowledgements leave,
// publishes that wait for a confirmation get a short time for it.
func (b *Broker) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	subs := make([]*subscription, 0, len(b.subs))
	for s := range b.subs {
		subs = append(subs, s)
	}
	b.mu.Unlock()
	// A server that does not answer must not hold us for ever, whatever ctx says.
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, s := range subs {
		wg.Go(func() { _ = s.Close(ctx) }) // what cannot be given back in time goes back with the connection
	}
	wg.Wait()
	b.mu.Lock()
	b.halt() // spawn starts nothing any more
	b.mu.Unlock()
	for _, s := range subs {
		wg.Go(func() { s.await(ctx) })
	}
	wg.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, confirmGrace)
		defer cancel()
		_ = b.direct.Close(ctx) // those that wait get their answer from the end of the connection
		_ = b.delayed.Close(ctx)
	})
	wg.Wait()
	err := errors.Join(b.pub.Close(ctx), b.con.Close(ctx), b.notes.Close(ctx))
	b.tasks.Wait() // they end with b.stop, at the latest with their connection
	return err
}

const (
	// closeTimeout bounds Close.
	closeTimeout = 10 * time.Second
	// confirmGrace is how long publishes under way get at Close.
	confirmGrace = time.Second
)
