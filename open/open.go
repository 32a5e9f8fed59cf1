// Package open turns a URL into adapters. It is the one place that knows all of them, for programs that take their broker
// from a flag; a program that knows its broker makes the adapter itself and links no other.
//
//	mem://                                 in this process; every call makes a server of its own
//	amqp://user:password@host:5672/vhost   RabbitMQ
//	amqps://user:password@host:5671/vhost  RabbitMQ through TLS
//	nats://user:password@host:4222         NATS with JetStream; nats://token@host for a token
//	tls://user:password@host:4222          NATS through TLS
//	nats-embedded:///directory             a NATS server in this process, which keeps its data in the directory
//	redis://user:password@host:6379/0      Redis, a single server; the path is the database
//	rediss://...                           the same through TLS
//	redis-cluster://user:password@h1,h2    Redis Cluster; any of its nodes will do
//	redis-sentinel://user:password@h1,h2/m Redis, whose primary the Sentinels at the hosts know as m
//	rediss-cluster://, rediss-sentinel://  the same through TLS
//	hworker+redis://, hworker+rediss://    the four Redis keys of hworker; results and events as with redis://
//
// Several nodes of one server are a comma list: of hosts, amqp://user:password@host1,host2/vhost, or of URLs of one scheme.
// Reserved characters in user, password, path and parameters are percent-encoded, the comma too. A server's certificate is
// always verified; nothing switches that off.
//
// Parameters of a list are given once, or the same in each URL:
//
//	namespace            all: keeps programs on one server apart; default "default"
//	results, events      all: URLs of the result store and of the event bus, see below
//	retain               all: for how long events are kept for listeners that come late, such as 10m; default: not at all
//	ca                   with TLS: file of the authority that is trusted, in place of the system's
//	cert, key            with TLS: files of the client's certificate
//	server_name          with TLS: name in the server's certificate, when it is not the host's
//	queue_type           amqp: quorum (default) or classic, for the queues that are created
//	dead_ttl             amqp, nats, redis: how long a dead letter is kept, such as 720h, the default; 0: for ever
//	dead_max             amqp, nats, redis: how many dead letters a queue keeps, the newest; default 100000; 0: any number
//	heartbeat            amqp: seconds; hworker: true keeps jobs that take longer than timeout
//	timeout              hworker: after how long in progress a job is queued again, such as 5m; default 2m
//	failed_size          hworker: how many failed jobs a queue keeps, the newest; default 1000
//	connection_timeout   amqp: milliseconds
//	auth_mechanism       amqp: plain or external
//	creds                nats: file of a user's credentials, as nsc writes it
//	nkey                 nats: file of an nkey seed
//	replicas             nats: on how many servers of a cluster each message is kept, 1 to 5; default 1
//	listen               nats-embedded: loopback address at which other processes may join, such as 127.0.0.1:0
//	sync                 nats-embedded: always, or how often what was written goes to the disk, such as 1s
//	db                   redis: number of the database, in place of the path; not with a cluster
//	pool_size            redis: connections to a server; default 10 for each CPU
//	wait_replicas        redis: how many replicas must have a task before it is confirmed; default 0
//	sentinel_user,
//	sentinel_password    redis-sentinel: of the Sentinels; user and password of the URL are the data servers'
//
// Any other is an error that names it, so that none is ignored.
//
// # Parts from different servers
//
// Results and events travel through the broker's server unless they are given URLs of their own, in [Options] or, encoded,
// as parameters of the URL:
//
//	open.Open(ctx, "amqp://host", open.Options{Results: "redis://other"})
//	open.Open(ctx, "amqp://host?results=redis://other%3Fdb=2", open.Options{})
//
// A part with a URL of its own has the broker's namespace unless its URL names another.
//
// Results may also be kept in a SQL database, which is neither a broker nor an event bus:
//
//	sqlite:///path/app.db, sqlite:app.db          a SQLite file; the second is in the working directory
//	postgres://user:password@host:5432/database   PostgreSQL 13 and newer, with the parameters of its client pgx
//
// A namespace is the only parameter of these URLs that ends here. sslmode is verify-full, verify-ca
// or disable. If the URL has none, PGSSLMODE counts, then the service file, then disable.
//
// # A server in the process
//
// A nats-embedded URL starts a server on the directory, one for all parts of a [Swarm] that have the same URL, and closing
// them ends it. A directory has one server: who opens it again, in this process or another, joins the server that is there if
// that one has the parameter listen, for as long as it runs, and gets an error that says so if not.
//
// # Schedules
//
// [Schedule] makes the store of a schedule, which may also be a SQLite file or PostgreSQL.
//
// # No I/O, no secrets
//
// Opening reads certificates and the like, and starts an embedded server; it does no other I/O: a server that is away shows at
// first use, for which the adapters wait as long as they are told to. [Swarm.Ping] tells at once, and what to do. No error holds a password.
package open

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/resultstore"
)

// Options are what a URL does not say. The zero value is usable.
type Options struct {
	// Results and Events are URLs of a result store and an event bus that are not the broker's. The URL may give them
	// instead; both at once is an error. "": the broker's.
	Results, Events string
	// Namespace keeps programs on one server apart. The URL may give it instead; two that differ are an error. "": the
	// adapters' default, "default".
	Namespace string
	// Retain says which events are kept for listeners that come late, see [events.Retainer]; it has to be the same for all
	// nodes. The URL of the events may give its Age instead. Zero: none.
	Retain events.Retention
	// Control makes a bus for commands besides, see [Swarm].Control.
	Control bool
	// Revocations says how long revocations are kept, see package revoke; it has to be the same for all nodes. Zero Age and
	// Max: those of revoke.Retention. Types has no meaning here.
	Revocations events.Retention
	// Limits says what each run of a task needs of limits over all processes, by the task's name,
	// for [Swarm.Consumer]; see limit.Config. It has to be the same for all nodes. Without a
	// Limiter Open returns [broker.ErrUnsupported]. nil: none.
	Limits map[string][]limit.Permit
	// Name is shown in the server's list of connections. "": the adapters' default.
	Name string
	// TLS is for URLs through TLS, and excludes their parameters about it. Nil: what the URL says. It is not changed. One
	// that skips verification is refused, as is one with a URL of a server without TLS; mem:// has no use for it.
	TLS *tls.Config
	// Logger gets what the adapters log. Nil: slog.Default().
	Logger *slog.Logger
}

// Swarm is a broker with a result store and an event bus. Producers and consumers may share one;
// [Swarm.Producer] and [Swarm.Consumer] make them with all that it has.
type Swarm struct {
	Broker  broker.Broker
	Results resultstore.ResultStore
	Events  events.EventBus
	// Control is a bus for commands to consumers, apart from Events so that nodes which listen for commands do not get the
	// events of all tasks; nil unless [Options].Control asks for it. It is at the place of Events, in the namespace whose name
	// has "-control" after it. See the package control.
	Control events.EventBus
	// Revocations is a bus of its own, where Events is, for revoke.Config and revoke.RevokerConfig. It keeps what package
	// revoke needs, whatever Options.Retain says, and connects when it is first used.
	Revocations events.EventBus
	// Limiter keeps limits over all processes: in Redis, of the broker, the results or the events,
	// or in memory with mem://. nil: none of the servers can.
	Limiter limit.Limiter

	targets targets
	shared  shared
}

// Open makes all adapters of a URL. On mem:// they are of one process and of nobody else; a consumer and a producer in it
// use the same Swarm.
func Open(ctx context.Context, url string, o Options) (*Swarm, error) {
	ts, err := parseAll(ctx, url, o)
	if err != nil {
		return nil, err
	}
	s := &Swarm{targets: ts}
	if err := s.make(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open: %w", err), s.Close(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// make makes the adapters.
func (s *Swarm) make(ctx context.Context) (err error) {
	ts := s.targets
	for _, t := range ts.distinct() {
		if err := t.prepare(ctx); err != nil {
			return err
		}
	}
	if s.Broker, err = made(ts.broker, ts.broker.scheme.broker); err != nil {
		return err
	}
	if s.Results, err = made(ts.results, ts.results.scheme.results); err != nil {
		return err
	}
	if s.Events, err = made(ts.events, ts.events.scheme.events); err != nil {
		return err
	}
	if s.Limiter, err = ts.limiter(); err != nil {
		return err
	}
	rt := ts.events.revocations()
	if s.Revocations, err = made(rt, rt.scheme.events); err != nil || !ts.broker.options.Control {
		return err
	}
	s.Control, err = made(ts.events.forControl(), ts.events.scheme.events)
	return err
}

// forControl returns the target of the bus of commands that belongs to the bus of events at t.
func (t *target) forControl() *target {
	c := *t
	c.namespace = beside(t.namespace, "-control")
	c.retain = events.Retention{} // a command is for now
	return &c
}

// defaultNamespace is the one of all adapters.
const defaultNamespace = "default"

// made makes an adapter. On an error it is nil, also where New returned a nil pointer, which is no nil interface.
func made[T any](t *target, constructor func(*target) (T, error)) (T, error) {
	a, err := constructor(t)
	if err != nil {
		return *new(T), err
	}
	return a, nil
}

// Close ends what Producer and Consumer have started, and closes all adapters: events first, since
// they tell of the others, the broker last. It is idempotent.
func (s *Swarm) Close(ctx context.Context) error {
	errs := []error{s.shared.close(ctx)}
	for _, bus := range []events.EventBus{s.Control, s.Revocations, s.Events} {
		if bus != nil {
			errs = append(errs, bus.Close(ctx))
		}
	}
	if l, ok := capability.As[limit.Closer](s.Limiter); ok {
		errs = append(errs, l.Close(ctx))
	}
	if s.Results != nil {
		errs = append(errs, s.Results.Close(ctx))
	}
	if s.Broker != nil {
		errs = append(errs, s.Broker.Close(ctx))
	}
	for _, t := range s.targets.distinct() {
		errs = append(errs, t.close(ctx))
	}
	return errors.Join(errs...)
}

// Broker makes the broker of a URL.
func Broker(ctx context.Context, url string, o Options) (broker.Broker, error) {
	ts, err := parseAll(ctx, url, o)
	if err != nil {
		return nil, err
	}
	return lone(ctx, ts.broker, ts.broker.scheme.broker)
}

// Results makes the result store of a URL, which may be that of a SQL database: on RabbitMQ a reply queue of this process.
func Results(ctx context.Context, url string, o Options) (resultstore.ResultStore, error) {
	ts, err := parseAll(ctx, url, o)
	if err != nil {
		return nil, err
	}
	return lone(ctx, ts.results, ts.results.scheme.results)
}

// Events makes the event bus of a URL: on RabbitMQ a fanout exchange.
func Events(ctx context.Context, url string, o Options) (events.EventBus, error) {
	ts, err := parseAll(ctx, url, o)
	if err != nil {
		return nil, err
	}
	return lone(ctx, ts.events, ts.events.scheme.events)
}

// Revocations makes the bus of a URL's events that keeps revocations, see [Swarm].Revocations.
func Revocations(ctx context.Context, url string, o Options) (events.EventBus, error) {
	ts, err := parseAll(ctx, url, o)
	if err != nil {
		return nil, err
	}
	t := ts.events.revocations()
	return lone(ctx, t, t.scheme.events)
}

// lone makes one adapter, which owns what else was made for it.
func lone[T any](ctx context.Context, t *target, constructor func(*target) (T, error)) (T, error) {
	t.alone = true
	err := t.prepare(ctx)
	if err == nil {
		var a T
		if a, err = made(t, constructor); err == nil {
			return a, nil
		}
	}
	return *new(T), errors.Join(fmt.Errorf("open: %w", err), t.close(context.WithoutCancel(ctx)))
}

// Redact returns a URL with nothing but scheme and hosts, or the directory or file, for logs. One that [Open] would refuse is
// "unreadable".
func Redact(url string) string {
	if isSQL(url) {
		return redactSQL(url)
	}
	t, err := parse(url, Options{})
	if err != nil {
		return "unreadable"
	}
	return t.scheme.name + "://" + strings.Join(t.addrs(), ",") + t.directory
}
