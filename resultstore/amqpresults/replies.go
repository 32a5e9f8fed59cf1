package amqpresults

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/internal/keyset"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
)

// maxUnacked is how many records are handed out before they are acknowledged together. A lull acknowledges at once.
const maxUnacked = 64

// removeTime bounds the removal of a queue, of which a server may never answer while the queue elects a leader.
const removeTime = 5 * time.Second

// lookTime is between two looks at a queue of which nothing comes.
const lookTime = 10 * time.Second

// consumerTag names the one consumer of a stream's channel.
const consumerTag = "replies"

// replies is the stream of records from one node's reply queue. It implements [resultstore.Replies].
type replies struct {
	store *Store
	node  string
	queue string

	items chan item // unbuffered: what is sent has been handed to a Receive
	ctx   context.Context
	stop  context.CancelFunc
	ended chan struct{} // closed when the goroutine has returned

	openOnce sync.Once
	opened   chan struct{} // closed when the queue is consumed for the first time, or openErr is set
	openErr  error

	foreign bool // the queue exists with other arguments and is used as it is; of the goroutine
	held    bool // the queue was consumed, and is to be there still; of the goroutine

	mu     sync.Mutex
	here   chan struct{} // closed while the queue is there, as far as is known
	absent error         // why it is not

	closing sync.Once
	gone    chan struct{} // closed when Close has done its work
	err     error         // of Close
}

type item struct {
	rec resultstore.Record
	err error
}

// Replies implements [resultstore.Replier]: it declares the node's reply queue and returns when it is consumed. Without a
// broker it waits until ctx ends; a refusal of the credentials is returned at once. Both are [resultstore.ErrUnavailable].
// A node that is no valid name is [resultstore.ErrMalformed]. Several streams of one node, here or elsewhere, share its
// queue: a record goes to one of them.
func (s *Store) Replies(ctx context.Context, node string) (resultstore.Replies, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !keyset.ValidName(node) {
		return nil, fmt.Errorf("%w: node %q is no name", resultstore.ErrMalformed, utf.Cut(node, 64))
	}
	n := &replies{
		store: s, node: node, queue: s.prefix + node,
		items: make(chan item), ended: make(chan struct{}), opened: make(chan struct{}), gone: make(chan struct{}),
		here: make(chan struct{}),
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
		n.open(amqpconn.ErrClosed) // nobody may wait for it any more
	}()
	var err error
	select {
	case <-n.opened:
		err = n.openErr
	case <-ctx.Done():
		if _, err = s.receiving.Session(ctx); err == nil { // which says why there is none, as far as anybody knows
			err = fmt.Errorf("%w: %w", amqpconn.ErrUnavailable, ctx.Err())
		}
	}
	if err != nil {
		n.stop() // the goroutine ends when the broker has answered, or with the connection
		s.mu.Lock()
		delete(s.streams, n)
		s.mu.Unlock()
		return nil, failure("reply queue of "+node, err)
	}
	return n, nil
}

// open tells Replies that the stream is open, or why it cannot be. Only the first call counts.
func (n *replies) open(err error) {
	n.openOnce.Do(func() {
		n.openErr = err
		close(n.opened)
	})
}

// report is told why a run ended.
func (n *replies) report(err error) {
	select {
	case <-n.opened:
		n.store.cfg.Logger.LogAttrs(n.ctx, slog.LevelWarn, "reply queue interrupted, trying again",
			slog.String("queue", n.queue), slog.Any("error", err))
	default:
		if errors.Is(err, amqpconn.ErrAccess) { // waiting does not mend it
			n.open(err)
		}
	}
}

var errStuck = errors.New("amqp: the queue has records or no consumer, and delivers nothing")

var errCancelled = errors.New("amqp: the queue was deleted, or its node has gone")

// run consumes the reply queue over one channel until that ends.
func (n *replies) run(ctx context.Context, ch *amqpconn.Channel) error {
	var deliveries <-chan amqp.Delivery
	err := ch.Answered(func() (err error) { // of a quorum queue that elects its leader there may never be an answer
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
		n.away(err)
		if n.held && amqpconn.IsNotFound(err) {
			n.lose(ctx, err)
		}
		return err
	}
	n.held = true
	n.back()
	n.open(nil)
	if err := n.handOut(ctx, ch, deliveries); err != nil {
		if errors.Is(err, errCancelled) {
			n.away(err)
		}
		return err
	}
	// A quorum queue goes on counting the consumer for a while after the end of its channel, and remove would take it for
	// somebody else's.
	return ch.Answered(func() error { return ch.Cancel(consumerTag, false) })
}

// handOut passes records on until ctx ends, which is no error, or the channel does.
func (n *replies) handOut(ctx context.Context, ch *amqpconn.Channel, deliveries <-chan amqp.Delivery) error {
	var last uint64 // tag of the last record handed out
	unacked := 0
	for {
		d, ok, err := n.next(ctx, ch, deliveries, last, &unacked)
		if err != nil || !ok {
			return err
		}
		it, mine := n.read(d.Body)
		if mine {
			select {
			case n.items <- it:
			case <-ch.Done():
				return ch.Err()
			case <-ctx.Done():
				return n.acknowledge(ch, last, &unacked) // what was not handed out goes back
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

// next returns the next delivery. When none is there it acknowledges what was handed out, and waits; ok is false at the end
// of ctx.
func (n *replies) next(ctx context.Context, ch *amqpconn.Channel, deliveries <-chan amqp.Delivery, last uint64, unacked *int) (d amqp.Delivery, ok bool, err error) {
	if *unacked > 0 {
		runtime.Gosched() // the library hands over from a buffer of its own: let it, before this is taken for a lull
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
	// The library ends the deliveries a moment before the channel, or without it when the server cancels the consumer.
	if ch.IsClosed() {
		<-ch.Done()
		return d, false, ch.Err()
	}
	return d, false, errCancelled
}

// await waits for a delivery. While none comes it looks now and then whether the queue is there and knows of its consumer: in a
// partition a server may say nothing of a consumer that it has given up.
func (n *replies) await(ctx context.Context, ch *amqpconn.Channel, deliveries <-chan amqp.Delivery) (d amqp.Delivery, ok bool, err error) {
	look := time.NewTicker(lookTime)
	defer look.Stop()
	for stuck := false; ; {
		select {
		case d, ok = <-deliveries:
			return d, ok, nil
		case <-ctx.Done():
			return d, false, nil
		case <-look.C:
		}
		var q amqp.Queue
		err = ch.Answered(func() (err error) {
			q, err = ch.QueueDeclarePassive(n.queue, true, false, false, false, nil)
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

// acknowledge settles all records up to last. They were handed out in the order of their tags.
func (n *replies) acknowledge(ch *amqpconn.Channel, last uint64, unacked *int) error {
	if *unacked == 0 {
		return nil
	}
	*unacked = 0
	if err := ch.Ack(last, true); err != nil { // it only writes, so the channel has ended
		<-ch.Done()
		return ch.Err()
	}
	return nil
}

// read decodes a message. mine is false for what is no news to the submitter.
func (n *replies) read(body []byte) (it item, mine bool) {
	rec, err := wire.DecodeRecord(body)
	switch {
	case err != nil:
		return item{err: err}, true
	case rec.ReplyTo != n.node:
		return item{err: fmt.Errorf("%w: a record for another node", resultstore.ErrMalformed)}, true
	default:
		return item{rec: rec}, news(&rec)
	}
}

// declare makes the queue. One that exists with other arguments, of an older configuration, is used as it is; and one that was
// consumed before must not be made again without a word.
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
		"x-queue-type": string(n.store.cfg.QueueType),
	}
	_, err := ch.QueueDeclare(n.queue, true, false, false, false, args)
	n.foreign = amqpconn.IsPrecondition(err)
	return err
}

// Receive implements [resultstore.Notifications]. Besides its errors it returns [resultstore.ErrMalformed] for each message
// of the queue that is no record for this node; the stream goes on.
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

// Close implements [resultstore.Notifications]. It removes the queue if no other stream reads it, and leaves it to its
// expiry when the broker cannot be reached now; that is no error.
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

// remove deletes the queue. It does not wait for a connection.
func (n *replies) remove(ctx context.Context) {
	now, cancel := context.WithCancel(ctx)
	cancel()
	sess, err := n.store.receiving.Session(now)
	if err != nil {
		return
	}
	ctx, cancel = context.WithTimeout(ctx, removeTime)
	defer cancel()
	// Left while somebody else reads it, and without a connection or an answer it expires: neither is a failure of Close.
	_ = sess.Do(ctx, func(ch *amqp.Channel) error {
		if n.foreign || n.store.cfg.QueueType != Classic {
			// A quorum queue cannot be deleted if-unused: to ask for it ends the connection (540), and other streams with it.
			// A stream that comes between the two requests is told that its queue is gone, and makes it again.
			q, err := ch.QueueDeclarePassive(n.queue, true, false, false, false, nil)
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
