package amqpreplies

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
	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// Store sends and receives records. It publishes and consumes over two connections, because a
// broker that blocks publishers still delivers. It opens each connection at its first use. All
// methods are safe for concurrent use.
type Store struct {
	cfg       Config
	sending   *amqpconn.Conn
	receiving *amqpconn.Conn
	publisher *amqpconn.Publisher
	closed    atomic.Bool // written under mu
	tasks     sync.WaitGroup
	absent    absences

	mu      sync.Mutex
	streams map[*replies]struct{}
}

// New makes a Store. It does no I/O and starts no goroutine. It returns all problems of c.Connect
// in one error.
func New(c Config) (*Store, error) {
	sending, err := amqpconn.New(c.Connect, c.Purpose+"results", c.Logger)
	if err != nil { // the second connection would have the same problems
		return nil, err
	}
	receiving, err := amqpconn.New(c.Connect, c.Purpose+"replies", c.Logger)
	if err != nil {
		return nil, err
	}
	c.Connect.URLs = nil // they hold passwords and are not needed any more
	return &Store{
		cfg:       c,
		sending:   sending,
		receiving: receiving,
		publisher: amqpconn.NewPublisher(sending, amqpconn.PublisherConfig{}),
		streams:   make(map[*replies]struct{}),
	}, nil
}

// Final reports whether r is for its submitter: r is terminal, or it holds an error that says why
// the task waits.
func Final(r *resultstore.Record) bool { return r.State.Terminal() || r.Error != nil }

// Save implements [resultstore.ResultStore]: it publishes a record that Config.Sends selects to the
// reply queue of r.ReplyTo. It waits for the broker's confirmation. For any other record, or
// without ReplyTo, it returns nil and sends nothing.
//
// While the queue does not exist Save tries again, because the submitter may be about to declare
// it. Once the queue has been missing for 3 s, Save returns [resultstore.ErrUnreachable]. All later
// calls for this node return it at once, until the queue exists again.
//
// Save never returns ErrStale. It also returns:
//
//   - [task.ErrBadID] for an invalid ID
//   - [resultstore.ErrMalformed] for an invalid ReplyTo, a state that is not recorded, or a record
//     that cannot be encoded
//   - [resultstore.ErrTooLarge] for a record above the limits
//   - [resultstore.ErrUnavailable] if the record may or may not have arrived, for example when ctx
//     ends; saving it again is safe
//   - ErrClosed after Close, and ctx's error if ctx has already ended
func (s *Store) Save(ctx context.Context, r resultstore.Record) error {
	m, err := s.message(ctx, &r)
	if err != nil || m == nil {
		return err
	}
	return failure("result for "+r.ReplyTo, s.send(ctx, r.ReplyTo, m))
}

// SaveBatch implements [resultstore.BatchSaver]: it publishes the records one after the other and
// then waits for all confirmations. It does not wait for a missing reply queue: the outcome is
// [resultstore.ErrUnavailable] then. Its other errors are those of Save.
func (s *Store) SaveBatch(ctx context.Context, rs []resultstore.Record) []error {
	errs := make([]error, len(rs))
	out, at := make([]amqpconn.Outgoing, 0, len(rs)), make([]int, 0, len(rs))
	for i := range rs {
		m, err := s.message(ctx, &rs[i])
		if errs[i] = err; m != nil {
			out, at = append(out, amqpconn.Outgoing{Key: s.cfg.Prefix + rs[i].ReplyTo, Message: m}), append(at, i)
		}
	}
	outcomes := s.publisher.PublishBatch(ctx, out)
	for k, i := range at {
		var err error
		if outcomes != nil {
			err = outcomes[k]
		}
		switch {
		case err == nil:
			s.absent.found(rs[i].ReplyTo)
		case errors.Is(err, amqpconn.ErrUnroutable):
			err = fmt.Errorf("%w: %w", errAbsent, err)
		}
		errs[i] = failure("result for "+rs[i].ReplyTo, err)
	}
	return errs
}

// message checks r and returns its message, or nil if r is not sent. Its errors are those of Save
// before anything is sent.
func (s *Store) message(ctx context.Context, r *resultstore.Record) (*amqp.Publishing, error) {
	if err := s.check(ctx, r.ID); err != nil {
		return nil, err
	}
	if !r.State.Recorded() {
		return nil, fmt.Errorf("%w: state %q is not recorded", resultstore.ErrMalformed, utf.Cut(string(r.State), 32))
	}
	if !s.cfg.Sends(r) || r.ReplyTo == "" {
		return nil, nil //nolint:nilnil // nothing is sent
	}
	if !naming.ValidName(r.ReplyTo) {
		return nil, fmt.Errorf("%w: the reply-to %q is not a valid node name", resultstore.ErrMalformed, utf.Cut(r.ReplyTo, 64))
	}
	if len(r.Result) > s.cfg.MaxResult {
		return nil, fmt.Errorf("%w: the result has %d bytes, more than the MaxResult of %d", resultstore.ErrTooLarge, len(r.Result), s.cfg.MaxResult)
	}
	m, err := s.cfg.Encode(r)
	if err != nil {
		return nil, err
	}
	if len(m.Body) > s.cfg.MaxResult+maxRest {
		return nil, fmt.Errorf("%w: the record has %d bytes, at most %d are allowed", resultstore.ErrTooLarge, len(m.Body), s.cfg.MaxResult+maxRest)
	}
	return m, nil
}

// send publishes m to the reply queue of node and waits for the confirmation. While the queue is
// missing it tries again every absenceRetry.
//
//   - The queue has been missing for absence: amqpconn.ErrUnroutable.
//   - ctx ends before that time: errAbsent and amqpconn.ErrUnroutable.
//   - The queue exists, but its node is down: errDown and amqpconn.ErrUnroutable, at once.
//   - Another error of the publish: that error, at once.
func (s *Store) send(ctx context.Context, node string, m *amqp.Publishing) error {
	queue := s.cfg.Prefix + node
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

// errAbsent reports that ctx ended before a missing queue counted as gone.
var errAbsent = errors.New("the queue does not exist now")

var errDown = errors.New("the queue exists on a node that is down")

// isDown reports whether queue exists although no message can be routed to it. RabbitMQ returns a
// message for a classic queue on a stopped node like one for a missing queue. Only the answer to
// a passive declaration tells the two apart, for which it waits. If that fails for another
// reason, isDown returns true.
func (s *Store) isDown(ctx context.Context, queue string) bool {
	err := s.sending.Do(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		return err
	})
	return !amqpconn.IsNotFound(err) // the queue exists, or its state is unknown
}

// Load implements [resultstore.ResultStore]: it returns [resultstore.ErrNotFound] for every valid
// id, [task.ErrBadID] for another one, ErrClosed after Close, and ctx's error if ctx has ended.
func (s *Store) Load(ctx context.Context, id task.ID) (resultstore.Record, error) {
	if err := s.check(ctx, id); err != nil {
		return resultstore.Record{}, err
	}
	return resultstore.Record{}, resultstore.ErrNotFound
}

// Delete implements [resultstore.ResultStore]: it does nothing, because no record is kept. Returns
// [task.ErrBadID] for an invalid id, ErrClosed after Close, and ctx's error if ctx has ended.
func (s *Store) Delete(ctx context.Context, id task.ID) error { return s.check(ctx, id) }

// check returns ErrClosed after Close, ctx's error if ctx has ended, or [task.ErrBadID] if id is
// invalid.
func (s *Store) check(ctx context.Context, id task.ID) error {
	if s.closed.Load() {
		return resultstore.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return id.Check()
}

// Close implements [resultstore.ResultStore]. It closes all streams, waits for the answers of
// running Saves and closes the connections. If ctx ends first it cuts the connections and returns
// ctx's error. It takes s.mu, but not while it waits.
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
	errs = append(errs, closeError(s.publisher.Close(ctx)), closeError(s.sending.Close(ctx)), closeError(s.receiving.Close(ctx)))
	s.tasks.Wait() // no stream blocks on a closed connection
	return errors.Join(errs...)
}

// closeError wraps the error of closing the publisher or a connection with the port's error. It
// returns nil for nil.
func closeError(err error) error {
	if err == nil {
		return nil
	}
	return failure("close", err)
}

// failure wraps err with the matching error of the port and the name of the operation:
// ErrUnreachable, ErrMalformed, ErrClosed or ErrUnavailable. Errors without a match become
// ErrUnavailable. It returns nil for nil.
func failure(what string, err error) error {
	var class error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, amqpconn.ErrUnroutable) && !errors.Is(err, errDown) && !errors.Is(err, errAbsent):
		class = resultstore.ErrUnreachable
	case errors.Is(err, amqpconn.ErrMalformed):
		class = resultstore.ErrMalformed
	// its cause may be ErrClosed of one connection, which is replaced
	case errors.Is(err, amqpconn.ErrUnavailable):
		class = resultstore.ErrUnavailable
	case errors.Is(err, amqpconn.ErrClosed):
		class = resultstore.ErrClosed
	default: // the record may have been sent; sending it again is safe
		class = resultstore.ErrUnavailable
	}
	return fmt.Errorf("amqp %s: %w: %w", what, class, err)
}

var (
	_ resultstore.ResultStore = (*Store)(nil)
	_ resultstore.BatchSaver  = (*Store)(nil)
	_ resultstore.Replier     = (*Store)(nil)
	_ resultstore.Replies     = (*replies)(nil)
)
