// Package open turns a URL into adapters. It is the one place that knows all of them, for programs that take their broker
// from a flag; a program that knows its broker makes the adapter itself and links no other.
//
//	mem://                                 in this process; every call makes a server of its own
//	amqp://user:password@host:5672/vhost   RabbitMQ
//	amqps://user:password@host:5671/vhost  RabbitMQ through TLS, always verified
//
// Several nodes of one RabbitMQ cluster are a comma list of URLs of one scheme; reserved characters in user, password and
// vhost are percent-encoded, the comma too. Parameters, given once or the same in each URL:
//
//	namespace            keeps programs on one vhost apart; default "default"
//	queue_type           quorum (default) or classic, for the queues that are created
//	ca                   amqps: file of the authority that is trusted, in place of the system's
//	cert, key            amqps: files of the client's certificate
//	server_name          amqps: name in the server's certificate, when it is not the host's
//	heartbeat            seconds
//	connection_timeout   milliseconds
//	auth_mechanism       plain or external
//
// Any other is an error that names it, so that none is ignored; mem:// knows namespace alone. Nothing switches the
// verification of certificates off.
//
// No error holds a password. Opening does no I/O besides reading certificates: a server that is away shows at first use.
package open

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/amqpbroker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/amqpevents"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/amqpresults"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
)

// Options are what a URL does not say. The zero value is usable.
type Options struct {
	// Namespace keeps programs on one server apart. The URL may give it instead; two that differ are an error. "": the
	// adapters' default, "default".
	Namespace string
	// Name is shown in the server's list of connections. "": the adapters' default.
	Name string
	// TLS is for amqps URLs, and excludes their parameters about TLS. Nil: what the URL says. It is not changed. One that
	// skips verification is refused, as is one with an amqp URL; mem:// has no use for it.
	TLS *tls.Config
	// Logger gets what the adapters log. Nil: slog.Default().
	Logger *slog.Logger
}

// Swarm is the adapters of one URL. Producers and consumers may share one.
type Swarm struct {
	Broker  broker.Broker
	Results resultstore.ResultStore
	Events  events.EventBus
}

// Open makes all adapters of a URL. On mem:// they are of one process and of nobody else; a consumer and a producer in it
// use the same Swarm.
func Open(ctx context.Context, url string, o Options) (*Swarm, error) {
	t, err := parse(ctx, url, o)
	if err != nil {
		return nil, err
	}
	s := &Swarm{}
	if s.Broker, err = t.broker(); err != nil {
		return nil, err
	}
	if s.Results, err = t.results(); err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	if s.Events, err = t.events(); err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

// Close closes all adapters: events first, since they tell of the others, the broker last. It is idempotent.
func (s *Swarm) Close(ctx context.Context) error {
	var errs []error
	if s.Events != nil {
		errs = append(errs, s.Events.Close(ctx))
	}
	if s.Results != nil {
		errs = append(errs, s.Results.Close(ctx))
	}
	if s.Broker != nil {
		errs = append(errs, s.Broker.Close(ctx))
	}
	return errors.Join(errs...)
}

// Broker makes the broker of a URL.
func Broker(ctx context.Context, url string, o Options) (broker.Broker, error) {
	t, err := parse(ctx, url, o)
	if err != nil {
		return nil, err
	}
	return t.broker()
}

// Results makes the result store of a URL: on RabbitMQ a reply queue of this process.
func Results(ctx context.Context, url string, o Options) (resultstore.ResultStore, error) {
	t, err := parse(ctx, url, o)
	if err != nil {
		return nil, err
	}
	return t.results()
}

// Events makes the event bus of a URL: on RabbitMQ a fanout exchange.
func Events(ctx context.Context, url string, o Options) (events.EventBus, error) {
	t, err := parse(ctx, url, o)
	if err != nil {
		return nil, err
	}
	return t.events()
}

// What follows is the switch. A scheme has a row in the table of parse.go and a case in each of these.

func (t *target) broker() (broker.Broker, error) {
	if t.scheme == "mem" {
		return membroker.NewServer(membroker.Config{Logger: t.options.Logger}).Connect(), nil
	}
	b, err := amqpbroker.New(amqpbroker.Config{
		URLs: t.urls, TLS: t.tls, Name: t.options.Name, Namespace: t.namespace, QueueType: amqpbroker.QueueType(t.queueType),
		Logger: t.options.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	return b, nil
}

func (t *target) results() (resultstore.ResultStore, error) {
	if t.scheme == "mem" {
		return memresults.New(memresults.Config{}), nil
	}
	s, err := amqpresults.New(amqpresults.Config{
		URLs: t.urls, TLS: t.tls, Name: t.options.Name, Namespace: t.namespace, Logger: t.options.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	return s, nil
}

func (t *target) events() (events.EventBus, error) {
	if t.scheme == "mem" {
		return memevents.New(memevents.Config{}), nil
	}
	b, err := amqpevents.New(amqpevents.Config{
		URLs: t.urls, TLS: t.tls, Name: t.options.Name, Namespace: t.namespace, Logger: t.options.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	return b, nil
}
