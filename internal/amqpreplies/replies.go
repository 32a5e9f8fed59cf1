package amqpreplies

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/resultstore"
)

// maxUnacked is the number of received records that are acknowledged together. They are
// acknowledged earlier if no further record waits.
const maxUnacked = 64

// removeTime limits the removal of a queue: a server may never answer while the queue elects a
// leader.
const removeTime = 5 * time.Second

// checkInterval is the time between two checks of a queue that delivers nothing.
const checkInterval = 10 * time.Second

// consumerTag names the one consumer of a stream's channel.
const consumerTag = "replies"

// replies is the stream of records from one node's reply queue. It implements
// [resultstore.Replies].
type replies struct {
	store *Store
	node  string
	queue string

	items chan item // unbuffered: an item that was sent has been received
	ctx   context.Context
	stop  context.CancelFunc
	ended chan struct{} // closed when the goroutine has returned

	openOnce sync.Once
	opened   chan struct{} // closed when the queue is consumed for the first time, or openErr is set
	openErr  error

	foreign bool // the queue exists with other arguments and is used unchanged; only for the goroutine
	held    bool // the queue was consumed and should still exist; only for the goroutine

	mu      sync.Mutex
	present chan struct{} // closed while the queue exists, as far as known
	absent  error         // why the queue does not exist

	closing sync.Once
	gone    chan struct{} // closed when Close has finished
	err     error         // returned by Close
}

// item is one result of Receive: a record, or the error that Receive returns instead.
type item struct {
	rec resultstore.Record
	err error
}

// Replies implements [resultstore.Replier]: it declares the node's reply queue and blocks until the
// stream consumes it. All streams of one node, also of other processes, share its queue, and each
// record goes to one of them. A goroutine receives the records until the stream or the store is
// closed. It takes s.mu, but not while it waits.
//
// If ctx has already ended, Replies returns ctx's error. Without a broker it waits until ctx ends.
// A refusal of the credentials is returned at once. Both are [resultstore.ErrUnavailable]. An
// invalid node name is [resultstore.ErrMalformed]. Returns ErrClosed after Close.
func (s *Store) Replies(ctx context.Context, node string) (resultstore.Replies, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !naming.ValidName(node) {
		return nil, fmt.Errorf("%w: node %q is not a valid name", resultstore.ErrMalformed, utf.Cut(node, 64))
	}
	n := &replies{
		store: s, node: node, queue: s.cfg.Prefix + node,
		items: make(chan item), ended: make(chan struct{}), opened: make(chan struct{}), gone: make(chan struct{}),
		present: make(chan struct{}),
	}
	n.ctx, n.stop = context.WithCancel(context.Background())
	s.mu.Lock()
	if s.closed.Load() {
		s.mu.Unlock()
		n.stop()
		return nil, resultstore.ErrClosed
	}
	s.streams[n] = struct{}{}
	s.tasks.Add(1)
	s.mu.Unlock()
	go func() {
		defer s.tasks.Done()
		defer close(n.ended)
		s.receiving.Supervise(n.ctx, n.run, n.report)
		n.open(amqpconn.ErrClosed) // releases a waiting Replies
	}()
	var err error
	select {
	case <-n.opened:
		err = n.openErr
	case <-ctx.Done():
		if _, err = s.receiving.Session(ctx); err == nil { // its error says why no session exists
			err = fmt.Errorf("%w: %w", amqpconn.ErrUnavailable, ctx.Err())
		}
	}
	if err != nil {
		n.stop() // the goroutine ends when the broker answers, or with the connection
		s.mu.Lock()
		delete(s.streams, n)
		s.mu.Unlock()
		return nil, failure("reply queue of "+node, err)
	}
	return n, nil
}

// open reports to Replies that the stream is open, or the error that prevents it. Only the first
// call has an effect.
func (n *replies) open(err error) {
	n.openOnce.Do(func() {
		n.openErr = err
		close(n.opened)
	})
}

// report handles the end of a run, or the failure to open its channel, with err. Supervise calls it
// on the stream's goroutine and then tries again. It logs a warning if the stream was open. Before
// that it passes only a refusal of access and errTaken to Replies, because repeating does not help.
func (n *replies) report(err error) {
	select {
	case <-n.opened:
		n.store.cfg.Logger.LogAttrs(n.ctx, slog.LevelWarn, "reply queue interrupted; trying again",
			slog.String("queue", n.queue), slog.Any("error", err))
	default:
		if errors.Is(err, amqpconn.ErrAccess) || errors.Is(err, errTaken) { // repeating does not help
			n.open(err)
		}
	}
}

var errStuck = errors.New("amqp: the queue delivers nothing although it has records, or it lost its consumer")

var errCancelled = errors.New("amqp: the queue was deleted, or its node is down")

// run declares and consumes the reply queue over one channel, and sends its records to Receive,
// until the channel or ctx ends. Supervise calls it on the stream's goroutine, once for each
// channel. Once it consumes, it wakes Ready and Replies (markPresent, open). If it cannot consume,
// or the server cancels the consumer, Ready waits again (markAbsent).
//
// When the queue of an open stream is gone it reports ErrLost to Receive, and waits until that is
// received; the next run declares the queue again. It returns nil only when ctx ended.
func (n *replies) run(ctx context.Context, ch *amqpconn.Channel) error {
	var deliveries <-chan amqp.Delivery
	err := ch.Answered(func() (err error) { // a quorum queue without a leader may never answer
		if err = n.declare(ch.Channel); err != nil {
			return err
		}
		if err = ch.Qos(n.store.cfg.Prefetch, 0, false); err != nil {
			return err
		}
		deliveries, err = ch.Consume(n.queue, consumerTag, false, false, false, false, nil)
		return err
	})
	if err != nil {
		n.markAbsent(err)
		if n.held && amqpconn.IsNotFound(err) {
			n.reportLost(ctx, err)
		}
		return err
	}
	n.held = true
	n.markPresent()
	n.open(nil)
	if err := n.deliver(ctx, ch, deliveries); err != nil {
		if errors.Is(err, errCancelled) {
			n.markAbsent(err)
		}
		return err
	}
	// A quorum queue counts the consumer for a while after its channel ended. Without this cancel,
	// remove would take it for the consumer of another stream.
	return ch.Answered(func() error { return ch.Cancel(consumerTag, false) })
}

// deliver sends records to Receive until ctx or the channel ends. Records that Final excludes are
// not sent. A message that is not a record for this node becomes ErrMalformed at Receive.
//
// It acknowledges all of these, at most maxUnacked at a time; records that Receive has not taken
// return to the queue. It returns nil when ctx ends, errCancelled if the server cancelled the
// consumer, errStuck as await does, otherwise the error of the channel.
func (n *replies) deliver(ctx context.Context, ch *amqpconn.Channel, deliveries <-chan amqp.Delivery) error {
	var last uint64 // tag of the last record that was received
	unacked := 0
	for {
		d, ok, err := n.next(ctx, ch, deliveries, last, &unacked)
		if err != nil || !ok {
			return err
		}
		it, mine := n.read(&d)
		if mine {
			select {
			case n.items <- it:
			case <-ch.Done():
				return ch.Err()
			case <-ctx.Done():
				return n.acknowledge(ch, last, &unacked) // records that were not received return to the queue
			}
		}
		last = d.DeliveryTag
		if unacked++; unacked >= maxUnacked {
			if err := n.acknowledge(ch, last, &unacked); err != nil {
				return err
			}
		}
	}
}

// next waits for the next delivery and returns it. If none is waiting it first acknowledges the
// received records. ok is false when ctx ends. Returns errCancelled if the server cancelled the
// consumer, or the error that ended the channel.
func (n *replies) next(ctx context.Context, ch *amqpconn.Channel, deliveries <-chan amqp.Delivery, last uint64, unacked *int) (d amqp.Delivery, ok bool, err error) {
	if *unacked > 0 {
		runtime.Gosched() // the library delivers from its own buffer: give it a chance to do so
	}
	select {
	case d, ok = <-deliveries:
	default:
		if err := n.acknowledge(ch, last, unacked); err != nil {
			return d, false, err
		}
		if d, ok, err = n.await(ctx, ch, deliveries); err != nil || ctx.Err() != nil && !ok {
			return d, false, err
		}
	}
	if ok {
		return d, true, nil
	}
	// The library ends the deliveries shortly before the channel. If the server cancels the consumer,
	// the channel stays open.
	if ch.IsClosed() {
		<-ch.Done()
		return d, false, ch.Err()
	}
	return d, false, errCancelled
}

// await waits for a delivery. Every checkInterval it checks that the queue exists and has a
// consumer. It returns errStuck if two checks in a row find messages or no consumer: after a
// partition a server may silently drop a consumer. It returns the error of a check that fails. ok
// is false when ctx or the deliveries end.
func (n *replies) await(ctx context.Context, ch *amqpconn.Channel, deliveries <-chan amqp.Delivery) (d amqp.Delivery, ok bool, err error) {
	check := time.NewTicker(checkInterval)
	defer check.Stop()
	for stuck := false; ; {
		select {
		case d, ok = <-deliveries:
			return d, ok, nil
		case <-ctx.Done():
			return d, false, nil
		case <-check.C:
		}
		var q amqp.Queue
		err = ch.Answered(func() (err error) {
			q, err = amqpconn.Numbers(ch, n.queue)
			return err
		})
		if waits := q.Consumers == 0 || q.Messages > 0; err == nil && waits && stuck {
			err = errStuck
		} else {
			stuck = waits
		}
		if err != nil {
			return d, false, err
		}
	}
}

// acknowledge acknowledges all records up to the tag last and sets unacked to 0. With an unacked
// of 0 it does nothing. Records are received in the order of their tags. It does not wait for the
// server; after a failed write it waits for the end of the channel and returns the channel's
// error.
func (n *replies) acknowledge(ch *amqpconn.Channel, last uint64, unacked *int) error {
	if *unacked == 0 {
		return nil
	}
	*unacked = 0
	// Ack only writes, so an error means that the channel has ended
	if err := ch.Ack(last, true); err != nil {
		<-ch.Done()
		return ch.Err()
	}
	return nil
}

// read decodes a message. It returns an item with ErrMalformed for a message that is not a record
// of this node. mine is false for a record that Final excludes: the submitter must not see it.
func (n *replies) read(d *amqp.Delivery) (it item, mine bool) {
	rec, err := n.store.cfg.Decode(n.node, d)
	switch {
	case err != nil:
		return item{err: err}, true
	case rec.ReplyTo != n.node:
		return item{err: fmt.Errorf("%w: the message is a record for another node", resultstore.ErrMalformed)}, true
	default:
		return item{rec: rec}, Final(&rec)
	}
}

// declare declares the queue and waits for the server. If the queue exists with other arguments,
// from an older configuration, it returns the server's refusal; the next call finds the queue and
// uses it unchanged. If the queue was consumed before, declare only checks that it exists, because
// its loss must be reported before the queue is made again. Then a missing queue is the server's
// "not found".
func (n *replies) declare(ch *amqp.Channel) error {
	if n.foreign || n.held {
		_, err := ch.QueueDeclarePassive(n.queue, true, false, false, false, nil)
		n.foreign = n.foreign && !amqpconn.IsNotFound(err)
		return err
	}
	args := amqp.Table{
		"x-expires":    n.store.cfg.Expires.Milliseconds(),
		"x-max-length": int64(n.store.cfg.MaxLength),
		"x-overflow":   "drop-head",
		"x-queue-type": n.store.cfg.QueueType,
	}
	_, err := ch.QueueDeclare(n.queue, true, false, false, false, args)
	n.foreign = amqpconn.IsPrecondition(err)
	if n.foreign && n.store.cfg.Shared && !isReplyQueue(err) {
		n.foreign = false // a work queue: its messages must stay
		return fmt.Errorf("%w: %w", errTaken, err)
	}
	return err
}

// errTaken wraps [amqpconn.ErrMalformed], because only another name of the node helps.
var errTaken = fmt.Errorf("%w: a queue with another purpose has the name of the node; choose another NodeID", amqpconn.ErrMalformed)

// isReplyQueue reports whether a queue that exists with other settings may be a reply queue of an
// older configuration. refusal is the server's answer, which names the first argument that differs.
// Only the values of the arguments may differ, since every reply queue has all of them.
func isReplyQueue(refusal error) bool {
	s := refusal.Error()
	return strings.Contains(s, "inequivalent arg 'x-") && !strings.Contains(s, "current is none") && !strings.Contains(s, "'x-queue-type'")
}

// Receive implements [resultstore.Notifications]: it waits for the next record and returns it.
// Returns [resultstore.ErrLost] once for each loss of the queue, and [resultstore.ErrMalformed] for
// each message that is not a record for this node; the stream continues after both. Returns ctx's
// error when ctx ends and ErrClosed after Close of the stream or the store.
func (n *replies) Receive(ctx context.Context) (resultstore.Record, error) {
	select {
	case it := <-n.items:
		return it.rec, it.err
	case <-n.ctx.Done():
		return resultstore.Record{}, resultstore.ErrClosed
	case <-ctx.Done():
		return resultstore.Record{}, ctx.Err()
	}
}

// Close implements [resultstore.Notifications]: it ends the stream, waits for its goroutine, and
// removes the queue if no other stream reads it. Received records are acknowledged first; the
// others stay in a queue that is not removed. If the broker cannot be reached now, the queue
// expires later; that is not an error. Returns ctx's error if ctx ends first. Further calls wait
// for the first one. It takes store.mu, but not while it waits.
func (n *replies) Close(ctx context.Context) error {
	n.closing.Do(func() {
		defer close(n.gone)
		n.stop()
		select {
		case <-n.ended:
		case <-ctx.Done():
			n.err = fmt.Errorf("amqp reply queue of %s: closing: %w", n.node, ctx.Err())
		}
		n.store.mu.Lock()
		delete(n.store.streams, n)
		n.store.mu.Unlock()
		if n.err == nil {
			n.remove(ctx)
		}
	})
	select {
	case <-n.gone:
		return n.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// remove deletes the queue if it has no consumer, and waits up to removeTime for that. It does
// nothing without an open connection, and it ignores errors.
func (n *replies) remove(ctx context.Context) {
	now, cancel := context.WithCancel(ctx)
	cancel()
	sess, err := n.store.receiving.Session(now)
	if err != nil {
		return
	}
	ctx, cancel = context.WithTimeout(ctx, removeTime)
	defer cancel()
	// The queue stays while another stream reads it. Without a connection or an answer it expires.
	// Neither makes Close fail.
	_ = sess.Do(ctx, func(ch *amqp.Channel) error {
		if n.foreign || n.store.cfg.QueueType != "classic" {
			// A quorum queue cannot be deleted with if-unused: the request ends the connection (error 540)
			// with all its streams. A stream that begins between the two requests loses its queue and
			// declares it again.
			q, err := amqpconn.Numbers(ch, n.queue)
			if err != nil || q.Consumers > 0 {
				return err
			}
			_, err = ch.QueueDelete(n.queue, false, false, false)
			return err
		}
		_, err := ch.QueueDelete(n.queue, true, false, false)
		return err
	})
}
