package amqpbroker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/internal/amqpdead"
	"github.com/swarmiji/swarmiji/internal/amqpdelay"
	"github.com/swarmiji/swarmiji/internal/lanes"
	"github.com/swarmiji/swarmiji/internal/naming"
)

// Broker is the RabbitMQ adapter of the port broker. All methods may be called from any goroutine.
type Broker struct {
	cfg   Config
	names names

	pub *amqpconn.Conn // only publishes, so that an alarm of the server stops nothing else
	con *amqpconn.Conn // consumes, acknowledges, declares
	// notes is the connection that writes and reads notes. It is separate because the server may close
	// a connection that uses a stream which is being created.
	notes  *amqpconn.Conn
	direct *amqpconn.Publisher
	delays *amqpdelay.Delays

	queues sync.Map // name -> *levels, of known queues that have levels or are fair
	lanes  lanes.Counter
	// learned maps a queue to the *learning of its levels.
	learned sync.Map
	warned  sync.Map // the AMQP queues and exchanges whose other settings were logged

	// levelless maps a queue without levels to the time.Time of the server's answer.
	levelless sync.Map
	// deadless maps a queue without a dead queue to the time.Time of the server's answer.
	deadless sync.Map

	scans   amqpdead.Scans
	id      string // names this Broker in notes
	witness *witness
	acks    *ackNotes

	mu     sync.Mutex
	closed bool
	subs   map[*subscription]struct{}
	stop   context.Context // ends when the Broker releases its resources
	halt   context.CancelFunc
	tasks  sync.WaitGroup // the goroutines of spawn
}

var (
	_ broker.Broker         = (*Broker)(nil)
	_ broker.Delayer        = (*Broker)(nil)
	_ broker.BatchPublisher = (*Broker)(nil)
	_ broker.Declarer       = (*Broker)(nil)
	_ broker.Describer      = (*Broker)(nil)
	_ broker.Inspector      = (*Broker)(nil)
	_ broker.Auditor        = (*Broker)(nil)
	_ broker.Locator        = (*Broker)(nil)
	_ broker.DeadLetterer   = (*Broker)(nil)
	_ broker.Watcher        = (*Broker)(nil)
	_ broker.Witness        = (*Broker)(nil)
	_ broker.Subscription   = (*subscription)(nil)
	_ broker.Resizer        = (*subscription)(nil)
	_ broker.Divider        = (*subscription)(nil)
	_ broker.Delivery       = (*delivery)(nil)
	_ broker.SyncAcker      = (*delivery)(nil)
	_ broker.AckChecker     = (*delivery)(nil)
)

// New checks cfg and returns a Broker. It does not connect before the first call that needs the
// server. The error joins all problems of cfg.
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
	b.witness, b.acks = b.newWitness(), b.newAckNotes()
	b.stop, b.halt = context.WithCancel(context.Background())
	b.delays = b.newDelays()
	return b, nil
}

// route returns the name of the AMQP queue for a message of the given priority, in lane 0 if the
// queue is fair. If the queue's levels are not known to this process, the name is that of the plain
// queue. Returns ErrMalformed if the queue name is not valid. It sends nothing.
func (b *Broker) route(queue string, priority int) (string, error) {
	if !naming.ValidName(queue) {
		return "", fmt.Errorf("%w: queue name %.140q", broker.ErrMalformed, queue)
	}
	if v, ok := b.queues.Load(queue); ok {
		l := v.(*levels)
		return l.queues[l.level(priority)*l.width()], nil
	}
	return b.names.work(queue), nil
}

// amqpQueues returns the names of all AMQP queues of a queue, for all known priority levels and
// their lanes, the most urgent first. It sends nothing.
func (b *Broker) amqpQueues(queue string) []string {
	if v, ok := b.queues.Load(queue); ok {
		return v.(*levels).queues
	}
	return []string{b.names.work(queue)}
}

// Locate implements [broker.Locator]. It returns the default exchange, "", and the AMQP queue for
// messages of the default priority. If the queue name is not valid it returns the name unchanged.
func (b *Broker) Locate(queue string) (exchange, routingKey string) {
	q, err := b.route(queue, defaultPriority)
	if err != nil {
		return "", queue
	}
	return "", q
}

// Publish implements [broker.Broker]. It sends m once and waits until RabbitMQ has confirmed it.
// Returns ErrNoQueue if RabbitMQ returns m as unroutable, ErrMalformed or ErrTooLarge if m cannot
// be sent. After ErrIndeterminate, m may be in the queue.
func (b *Broker) Publish(ctx context.Context, queue string, m *broker.Message) error {
	var p amqp.Publishing
	key, err := b.encodeAndRoute(ctx, &p, queue, m)
	if err == nil {
		err = b.direct.Publish(ctx, "", key, &p)
	}
	if err != nil {
		return wrap(err, "publish to", queue)
	}
	return nil
}

// encodeAndRoute fills p with m and returns the name of the AMQP queue for its priority and, if the
// queue is fair, its lane. It counts m as a submission of its key. It publishes nothing, but may
// ask the server for the levels of the queue, see learnLevels. Returns ErrMalformed or ErrTooLarge
// if m cannot be sent, ErrMalformed if the queue name is not valid.
func (b *Broker) encodeAndRoute(ctx context.Context, p *amqp.Publishing, queue string, m *broker.Message) (key string, err error) {
	if err := b.encode(p, m); err != nil {
		return "", err
	}
	v, ok := b.queues.Load(queue)
	if !ok {
		b.learnLevels(ctx, queue, m)
		if v, ok = b.queues.Load(queue); !ok {
			return b.route(queue, m.Priority)
		}
	}
	l := v.(*levels) //nolint:forcetypeassert // nothing else is in it
	first := l.level(m.Priority) * l.width()
	if !l.fair {
		return l.queues[first], nil
	}
	lane := b.lanes.Choose(l.queues[first], m)
	setLane(p, lane)
	return l.queues[first+lane], nil
}

// PublishAt implements [broker.Delayer]. It publishes m so that it reaches the queue at the time
// at, and waits until RabbitMQ has confirmed m. This process's clock counts: the adapter sends
// RabbitMQ the time to wait. If at has come it publishes m at once. It declares the delay queues
// if this connection has not done so.
//
// Returns ErrUnsupported for a delay of more than 2^38 ms, 8.7 years. Returns ErrNoQueue if the
// queue does not exist, ErrMalformed or ErrTooLarge if m cannot be sent.
//
// The property expiration of m is delivered but not applied. Otherwise the server would deliver m
// after the shorter of the two times.
func (b *Broker) PublishAt(ctx context.Context, queue string, m *broker.Message, at time.Time) error {
	if !at.After(time.Now()) {
		return b.Publish(ctx, queue, m)
	}
	var p amqp.Publishing
	key, err := b.encodeAndRoute(ctx, &p, queue, m)
	if err == nil {
		err = b.publishDelayed(ctx, key, &p, at)
	}
	return wrap(err, "publish later to", queue)
}

// PublishBatch implements [broker.BatchPublisher]. It waits until RabbitMQ has confirmed or refused
// every message. It publishes the messages that are due before the delayed ones. A message that
// fails does not stop the others. Returns nil if all were confirmed, otherwise a
// [broker.BatchError] with the error of each message.
func (b *Broker) PublishBatch(ctx context.Context, ms []broker.Outgoing) error {
	errs := make([]error, len(ms))
	publishings := make([]amqp.Publishing, len(ms))
	now := time.Now()
	// directAt and delayedAt hold the index in ms of each message of direct and delayed.
	var direct, delayed []amqpconn.Outgoing
	var directAt, delayedAt []int
	for i := range ms {
		o := &ms[i]
		key, err := b.encodeAndRoute(ctx, &publishings[i], o.Queue, o.Message)
		if err != nil {
			errs[i] = err
			continue
		}
		if o.At.After(now) {
			exchange, topic, err := b.delays.Route(ctx, key, o.At)
			if err != nil {
				errs[i] = err
				continue
			}
			holdUntil(&publishings[i], o.At)
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
	assignErrors(errs, directAt, b.direct.PublishBatch(ctx, direct))
	assignErrors(errs, delayedAt, b.delays.PublishBatch(ctx, delayed))
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

// assignErrors stores part[i] in errs[at[i]] for each i. part holds the errors of a part of a
// batch, and at holds their indexes in the whole batch. A nil part changes nothing.
func assignErrors(errs []error, at []int, part []error) {
	for i, err := range part {
		errs[at[i]] = err
	}
}

// Close implements [broker.Broker]. It closes all subscriptions, which returns their undelivered
// messages to the queue, and sends outstanding acknowledgements. Unsettled deliveries are lost
// with their channels. Publishes that wait for a confirmation get one second.
//
// Close waits for all goroutines of the Broker, but takes at most about 10 s, even if ctx lasts
// longer. Returns the errors of closing the connections, joined. It takes b.mu, but not while it
// waits.
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
	b.mu.Lock()
	b.halt() // from now on spawn starts nothing
	b.mu.Unlock()
	for _, s := range subs {
		wg.Go(func() { s.awaitStreams(ctx) })
	}
	wg.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, confirmGrace)
		defer cancel()
		_ = b.direct.Close(ctx) // publishes that still wait fail when the connection is closed
		_ = b.delays.Close(ctx)
	})
	wg.Wait()
	err := errors.Join(b.pub.Close(ctx), b.con.Close(ctx), b.notes.Close(ctx))
	b.tasks.Wait() // they end with b.stop, or with their connection
	return err
}

const (
	// closeTimeout limits Close.
	closeTimeout = 10 * time.Second
	// confirmGrace limits the time that Close waits for the confirmations of publishes in progress.
	confirmGrace = time.Second
)
