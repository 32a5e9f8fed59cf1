package amqpcontrol

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/celery/control"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
)

// DefaultQueueLength is the default of [Config].QueueLength.
const DefaultQueueLength = 10_000

// Config holds the settings of [New]. Connect is the only required field.
type Config struct {
	// Connect holds the addresses of RabbitMQ and how to connect to them.
	Connect amqpconnect.Config
	// QueueLength is the number of messages that RabbitMQ holds for a slow listener of events. Beyond
	// it the oldest are dropped. 0: [DefaultQueueLength], 10,000.
	QueueLength int
	// Logger receives a warning with the cause when a listener is interrupted or refused. Nil:
	// slog.Default().
	Logger *slog.Logger
}

// Transport is a [control.Transport] over RabbitMQ. It publishes and listens over two connections,
// because a server that blocks publishers still delivers. It opens each at its first use. All
// methods are safe for concurrent use.
type Transport struct {
	cfg       Config
	about     map[string]any
	sending   *amqpconn.Conn
	receiving *amqpconn.Conn
	// one for each exchange, so that a user without the right to one can use the others
	publishers [control.Replies + 1]*amqpconn.Publisher
	refused    [control.Replies + 1]atomic.Bool // whether a refused message was logged

	mu     sync.Mutex
	closed bool
	open   map[*listener]struct{}
}

// New checks c and makes a Transport. It does no I/O. Its error joins all problems of c.
func New(c Config) (*Transport, error) {
	var errs []error
	if c.QueueLength < 0 {
		errs = append(errs, errors.New("celery/amqpcontrol: QueueLength is negative"))
	}
	if c.QueueLength == 0 {
		c.QueueLength = DefaultQueueLength
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	sending, err := amqpconn.New(c.Connect, "celery events", c.Logger)
	if err = errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	receiving, err := amqpconn.New(c.Connect, "celery commands", c.Logger)
	if err != nil {
		return nil, err
	}
	t := &Transport{cfg: c, about: about(c.Connect.URLs), sending: sending, receiving: receiving, open: make(map[*listener]struct{})}
	t.cfg.Connect.URLs = nil // they hold passwords and are not needed any more
	for i := range t.publishers {
		// a message to a missing exchange would end the channel
		t.publishers[i] = amqpconn.NewPublisher(sending, amqpconn.PublisherConfig{
			Setup: func(ch *amqp.Channel) error { return declare(ch, control.Exchange(i)) }, Unconfirmed: true,
		})
	}
	return t, nil
}

// about returns the facts of the first URL that Celery shows about its server.
func about(urls []string) map[string]any {
	m := map[string]any{"transport": "amqp", "hostname": "", "port": 0, "virtual_host": "/", "userid": ""}
	if len(urls) == 0 {
		return m
	}
	u, err := amqp.ParseURI(urls[0])
	if err != nil {
		return m
	}
	m["transport"], m["hostname"], m["port"], m["virtual_host"], m["userid"] = u.Scheme, u.Host, u.Port, u.Vhost, u.Username
	return m
}

// kind returns the type of an exchange, and whether it is durable.
func kind(x control.Exchange) (typ string, durable bool) {
	switch x {
	case control.Commands:
		return amqp.ExchangeFanout, false
	case control.Replies:
		return amqp.ExchangeDirect, false
	default:
		return amqp.ExchangeTopic, true
	}
}

// declare declares an exchange as Celery does and waits for the server.
func declare(ch *amqp.Channel, x control.Exchange) error {
	typ, durable := kind(x)
	return ch.ExchangeDeclare(x.String(), typ, durable, false, false, false, nil)
}

// Publish implements [control.Transport]. It returns nil when m is in the connection's limited
// buffer: there is no confirmation. It logs the first refusal of access for each exchange.
func (t *Transport) Publish(ctx context.Context, m *control.Message) error {
	err := t.publishers[m.Exchange].Publish(ctx, m.Exchange.String(), m.Key, &amqp.Publishing{
		Headers: amqp.Table(m.Headers), ContentType: "application/json", ContentEncoding: "utf-8", DeliveryMode: amqp.Transient, Body: m.Body,
	})
	if err == nil {
		return nil
	}
	if errors.Is(err, amqpconn.ErrAccess) && !t.refused[m.Exchange].Swap(true) {
		t.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "celery messages refused", slog.String("exchange", m.Exchange.String()), slog.Any("error", err))
	}
	return failure("publish", err)
}

// About implements [control.Transport].
func (t *Transport) About() map[string]any { return maps.Clone(t.about) }

// Close implements [control.Transport]. Published messages have reached the server if it returns
// nil. If ctx ends first it returns ctx's error.
func (t *Transport) Close(ctx context.Context) error {
	t.mu.Lock()
	t.closed = true
	open := slices.Collect(maps.Keys(t.open))
	t.mu.Unlock()
	var errs []error
	note := func(err error) {
		if err != nil {
			errs = append(errs, failure("close", err))
		}
	}
	for _, p := range t.publishers {
		note(p.Close(ctx))
	}
	for _, l := range open {
		note(l.Close(ctx))
	}
	note(t.sending.Close(ctx))
	note(t.receiving.Close(ctx))
	return errors.Join(errs...)
}

// failure wraps err, which must not be nil, with the matching error of package events and the name
// of the operation: ErrClosed if the Transport is closed, otherwise ErrUnavailable.
func failure(what string, err error) error {
	class := events.ErrUnavailable
	// ErrUnavailable may have ErrClosed of one connection as its cause; that connection is replaced.
	if errors.Is(err, amqpconn.ErrClosed) && !errors.Is(err, amqpconn.ErrUnavailable) {
		class = events.ErrClosed
	}
	return fmt.Errorf("celery %s: %w: %w", what, class, err)
}

// isJSON reports whether typ is the content type of JSON.
func isJSON(typ string) bool {
	typ, _, _ = strings.Cut(typ, ";")
	return strings.TrimSpace(typ) == "application/json"
}

var _ control.Transport = (*Transport)(nil)
