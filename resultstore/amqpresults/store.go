package amqpresults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/internal/keyset"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// contentType marks the messages of a reply queue.
const contentType = "application/x-swarmiji-record"

// Store sends and receives records. It publishes and consumes over two connections, so that a broker that takes no
// messages just now still delivers; each is opened when it is first used. All methods may be called from any goroutine.
type Store struct {
	cfg       Config
	prefix    string // of reply queues
	sending   *amqpconn.Conn
	receiving *amqpconn.Conn
	publisher *amqpconn.Publisher
	closed    atomic.Bool // written under mu
	tasks     sync.WaitGroup
	absent    absences

	mu      sync.Mutex
	streams map[*replies]struct{}
}

// New checks c and makes a Store. It does no I/O and starts nothing. All problems of c are reported together.
func New(c Config) (*Store, error) {
	c, err := c.complete()
	open := func(role string) *amqpconn.Conn {
		conn, connErr := amqpconn.New(c.Connect, role, c.Logger)
		err = errors.Join(err, connErr)
		return conn
	}
	sending := open("results")
	if err != nil { // the second would have the same problems
		return nil, err
	}
	receiving := open("replies")
	if err != nil {
		return nil, err
	}
	c.Connect.URLs = nil // they hold passwords and are not needed any more
	return &Store{
		cfg:       c,
		prefix:    "swj." + c.Namespace + ".reply.",
		sending:   sending,
		receiving: receiving,
		publisher: amqpconn.NewPublisher(sending, amqpconn.PublisherConfig{}),
		streams:   make(map[*replies]struct{}),
	}, nil
}

// news reports whether a submitter is told of a record: it is the end, or says why that does not come.
func news(r *resultstore.Record) bool { return r.State.Terminal() || r.Error != nil }

// Save implements [resultstore.ResultStore]: it puts a terminal record, or an open one with an error, into the reply queue of
// r.ReplyTo and waits for the broker's confirmation. It does nothing for another one, or if nobody waits for it. Besides the
// port's errors, of which ErrStale is none of its own, it returns [task.ErrBadID]. After [resultstore.ErrUnavailable] the
// record may have arrived; saving it again is safe. While the submitter has no queue Save tries again, until the queue has been
// missing for 3 s: the submitter may be about to declare it. Records for a submitter that is gone that long fail at once.
func (s *Store) Save(ctx context.Context, r resultstore.Record) error {
	if err := s.check(ctx, r.ID); err != nil {
		return err
	}
	if !r.State.Recorded() {
		return fmt.Errorf("%w: state %q is not recorded", resultstore.ErrMalformed, utf.Cut(string(r.State), 32))
	}
	if !news(&r) {
		return nil
	}
	if r.ReplyTo == "" {
		return nil
	}
	if !keyset.ValidName(r.ReplyTo) {
		return fmt.Errorf("%w: reply-to %q is no node", resultstore.ErrMalformed, utf.Cut(r.ReplyTo, 64))
	}
	if len(r.Result) > s.cfg.MaxResult {
		return fmt.Errorf("%w: a result of %d bytes, at most %d", resultstore.ErrTooLarge, len(r.Result), s.cfg.MaxResult)
	}
	body, err := wire.EncodeRecord(&r)
	if err != nil {
		return err
	}
	if len(body) > s.cfg.MaxResult+maxRest {
		return fmt.Errorf("%w: %d bytes, at most %d", resultstore.ErrTooLarge, len(body), s.cfg.MaxResult+maxRest)
	}
	m := &amqp.Publishing{ContentType: contentType, DeliveryMode: amqp.Persistent, MessageId: string(r.ID), Body: body}
	return failure("result for "+r.ReplyTo, s.send(ctx, r.ReplyTo, m))
}

// send publishes a record into a submitter's queue. While there is none it tries again, for a time.
func (s *Store) send(ctx context.Context, node string, m *amqp.Publishing) error {
	queue := s.prefix + node
	for {
		err := s.publisher.Publish(ctx, "", queue, m)
		if err == nil {
			s.absent.found(node)
			return nil
		}
		if !errors.Is(err, amqpconn.ErrUnroutable) {
			return err
		}
		if s.isDown(ctx, queue) {
			return fmt.Errorf("%w: %w", errDown, err)
		}
		if s.absent.missed(node) {
			return err
		}
		if !wake.Sleep(ctx, absenceRetry) {
			return fmt.Errorf("%w: %w: %w", errAbsent, err, ctx.Err())
		}
	}
}

// errAbsent: a queue that is not there was not waited for long enough.
var errAbsent = errors.New("the queue is not there just now")

var errDown = errors.New("the queue exists on a node that is down")

// isDown reports whether a queue to which nothing can be routed just now is there all the same. A message for a classic
// queue whose node is down is returned like one for a queue that never was; only the text of the answer to a declaration
// tells the two apart.
func (s *Store) isDown(ctx context.Context, queue string) bool {
	err := s.sending.Do(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		return err
	})
	return !amqpconn.IsNotFound(err) // it is there, or nobody knows
}

// Load implements [resultstore.ResultStore]: there is never a record to find.
func (s *Store) Load(ctx context.Context, id task.ID) (resultstore.Record, error) {
	if err := s.check(ctx, id); err != nil {
		return resultstore.Record{}, err
	}
	return resultstore.Record{}, resultstore.ErrNotFound
}

// Delete implements [resultstore.ResultStore]: there is never anything to remove.
func (s *Store) Delete(ctx context.Context, id task.ID) error { return s.check(ctx, id) }

func (s *Store) check(ctx context.Context, id task.ID) error {
	if s.closed.Load() {
		return resultstore.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return id.Check()
}

// Close implements [resultstore.ResultStore]: it closes all streams, waits until records under way are answered, and
// closes the connections. When ctx ends first the connections are cut and the error is ctx's.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed.Store(true)
	var errs []error
	open := slices.Collect(maps.Keys(s.streams))
	for _, n := range open {
		n.stop()
	}
	s.mu.Unlock()
	for _, n := range open {
		errs = append(errs, n.Close(ctx))
	}
	errs = append(errs, closing(s.publisher.Close(ctx)), closing(s.sending.Close(ctx)), closing(s.receiving.Close(ctx)))
	s.tasks.Wait() // nothing holds a stream up once its connection is closed
	return errors.Join(errs...)
}

// closing classes the error of closing a part: its connection may end at the same moment.
func closing(err error) error {
	if err == nil {
		return nil
	}
	return failure("close", err)
}

// failure puts the port's class beside a connection's error.
func failure(what string, err error) error {
	var class error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, amqpconn.ErrUnroutable) && !errors.Is(err, errDown) && !errors.Is(err, errAbsent):
		class = resultstore.ErrUnreachable
	case errors.Is(err, amqpconn.ErrMalformed):
		class = resultstore.ErrMalformed
	case errors.Is(err, amqpconn.ErrUnavailable): // the reason beside it may be that a connection was closed, which is not for good
		class = resultstore.ErrUnavailable
	case errors.Is(err, amqpconn.ErrClosed):
		class = resultstore.ErrClosed
	default: // also when the record may have been sent: sending it again is safe
		class = resultstore.ErrUnavailable
	}
	return fmt.Errorf("amqp %s: %w: %w", what, class, err)
}

var (
	_ resultstore.ResultStore = (*Store)(nil)
	_ resultstore.Replier     = (*Store)(nil)
	_ resultstore.Replies     = (*replies)(nil)
)
