package amqpcontrol

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/celery/control"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
)

// listener reads one mailbox on a goroutine, over one channel after the other.
type listener struct {
	transport *Transport
	box       control.Mailbox
	handle    func(m *control.Message)
	stop      context.CancelFunc
	ended     chan struct{} // closed when the goroutine has returned

	openOnce sync.Once
	opened   chan struct{} // closed when the mailbox is consumed for the first time, or openErr is set
	openErr  error
	told     bool // whether a failure before the first opening was logged; only the goroutine uses it
}

// Listen implements [control.Transport]. Without a server, or while the server refuses the queue,
// it tries until ctx ends. A refusal of the credentials or of a permission is returned at once.
func (t *Transport) Listen(ctx context.Context, box control.Mailbox, handle func(m *control.Message)) (control.Listener, error) {
	within, stop := context.WithCancel(context.Background())
	l := &listener{transport: t, box: box, handle: handle, stop: stop, ended: make(chan struct{}), opened: make(chan struct{})}
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		stop()
		return nil, events.ErrClosed
	}
	t.open[l] = struct{}{}
	t.mu.Unlock()
	go func() {
		defer close(l.ended)
		t.receiving.Supervise(within, l.run, func(err error) { l.report(within, err) })
		l.begin(amqpconn.ErrClosed) // releases a waiting Listen
	}()
	var err error
	select {
	case <-l.opened:
		err = l.openErr
	case <-ctx.Done():
		if _, err = t.receiving.Session(ctx); err == nil { // its error says why no session exists
			err = fmt.Errorf("%w: %w", amqpconn.ErrUnavailable, ctx.Err())
		}
	}
	if err != nil {
		l.end() // the goroutine ends when the server answers, or with the connection
		return nil, failure("listener", err)
	}
	return l, nil
}

// begin reports to Listen that the mailbox is open, or the error that prevents it. Only the first
// call has an effect.
func (l *listener) begin(err error) {
	l.openOnce.Do(func() {
		l.openErr = err
		close(l.opened)
	})
}

// report handles the end of a channel, or the failure to open one, after which Supervise tries
// again. It logs a warning if the mailbox was open. Before that it logs the first failure, and
// passes only a refusal of access to Listen, because repeating does not help.
func (l *listener) report(ctx context.Context, err error) {
	select {
	case <-l.opened:
		l.transport.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "celery listener interrupted; trying again",
			slog.String("exchange", l.box.Exchange.String()), slog.Any("error", err))
	default:
		if errors.Is(err, amqpconn.ErrAccess) {
			l.begin(err)
			return
		}
		if !l.told {
			l.told = true
			l.transport.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "celery listener not open; trying again",
				slog.String("exchange", l.box.Exchange.String()), slog.Any("error", err))
		}
	}
}

// queue declares the queue of the mailbox as Celery does and returns its name. That of a node's
// commands is shared by all connections with the node's name; the others are exclusive.
func (l *listener) queue(ch *amqp.Channel) (string, error) {
	if l.box.Exchange == control.Commands {
		name := l.box.Node + "." + control.Commands.String()
		_, err := ch.QueueDeclare(name, false, true, false, false, amqp.Table{"x-expires": int32(10_000), "x-message-ttl": int32(300_000)})
		return name, err
	}
	q, err := ch.QueueDeclare("", false, true, true, false, amqp.Table{
		"x-max-length": int64(l.transport.cfg.QueueLength), "x-overflow": "drop-head",
	})
	return q.Name, err
}

// run binds the queue of the mailbox and passes its messages on, until the channel or ctx ends.
// Supervise calls it on the listener's goroutine. Returns nil if ctx has ended, otherwise the
// server's refusal or the error that ended the channel.
func (l *listener) run(ctx context.Context, ch *amqpconn.Channel) error {
	if err := declare(ch.Channel, l.box.Exchange); err != nil {
		return err
	}
	queue, err := l.queue(ch.Channel)
	if err != nil {
		return err
	}
	keys := l.box.Keys
	if len(keys) == 0 {
		keys = []string{""}
	}
	for _, key := range keys {
		if err := ch.QueueBind(queue, key, l.box.Exchange.String(), false, nil); err != nil {
			return err
		}
	}
	if err := ch.Qos(amqpconn.FeedPrefetch, 0, false); err != nil {
		return err
	}
	deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	l.begin(nil)
	f := amqpconn.NewFeed(ch, deliveries)
	for {
		d, ok, err := f.Next(ctx)
		if err != nil || !ok {
			return err
		}
		l.handle(&control.Message{Exchange: l.box.Exchange, Key: d.RoutingKey, Headers: headers(d.Headers), JSON: isJSON(d.ContentType), Body: d.Body})
		if err := f.Taken(&d); err != nil {
			return err
		}
	}
}

// headers returns a table with all integers as int64.
func headers(t amqp.Table) map[string]any {
	for name, v := range t {
		if n, ok := amqpconn.Integer(v); ok {
			t[name] = n
		}
	}
	return t
}

// end ends the listener without waiting for its goroutine. Further calls change nothing.
func (l *listener) end() {
	l.stop()
	l.transport.mu.Lock()
	delete(l.transport.open, l)
	l.transport.mu.Unlock()
}

// Close implements [control.Listener]. If ctx ends first it returns an error with ctx's error, and
// the queue may exist until the connection ends.
func (l *listener) Close(ctx context.Context) error {
	l.end()
	select {
	case <-l.ended:
		return nil
	default:
	}
	select {
	case <-l.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("celery listener: closing: %w", ctx.Err())
	}
}
