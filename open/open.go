// Package open constructs the adapters of a URL, for programs that read their broker's URL from a
// flag. It supports mem:// and the schemes of the packages below it that a program imports, as
// database/sql supports imported drivers:
//
//	import _ "github.com/swarmiji/swarmiji/open/redis"
//
// The packages are open/amqp, open/nats, open/natsembedded, open/redis, open/postgres and
// open/sqlite. Package open/all imports all of them. For another scheme, the error names the
// import. A [Registry] does the same without a global list. These are the URLs:
//
//	mem://                                 in this process; every call starts a separate server
//	amqp://user:password@host:5672/vhost   RabbitMQ
//	amqps://user:password@host:5671/vhost  RabbitMQ with TLS
//	nats://user:password@host:4222         NATS with JetStream; nats://token@host for a token
//	tls://user:password@host:4222          NATS with TLS
//	nats-embedded:///directory             a NATS server in this process, with data in the directory
//	redis://user:password@host:6379/0      Redis, a single server; the path is the database
//	rediss://...                           the same with TLS
//	redis-cluster://user:password@h1,h2    Redis Cluster; any of its nodes
//	redis-sentinel://user:password@h1,h2/m Redis Sentinels at these hosts, for the primary m
//	rediss-cluster://, rediss-sentinel://  the same with TLS
//	hworker+redis://, hworker+rediss://    the four Redis keys of hworker; the rest as redis://
//
// A server with several nodes takes a comma list. It is a list of hosts,
// amqp://user:password@host1,host2/vhost, or a list of URLs with one scheme. Reserved characters in
// user, password, path and parameters are percent-encoded, also the comma. The certificate of a
// server is always verified. No setting switches the verification off.
//
// In a list, each parameter is given once, or with the same value in each URL:
//
//	namespace            all: separates programs on one server; default "default"
//	results, events      all: URLs of the result store and of the event bus, see below
//	retain               all: retention of events for late listeners, such as 10m; default: none
//	ca                   with TLS: file of the trusted authority, instead of the system's
//	cert, key            with TLS: files of the client's certificate
//	server_name          with TLS: name in the server's certificate, if it is not the host
//	queue_type           amqp: type of new queues: quorum (default) or classic
//	dead_ttl             amqp, nats, redis, SQL: retention of dead letters; default 720h; 0: no limit
//	dead_max             amqp, nats, redis, SQL: newest dead letters of a queue that are kept;
//	                     default 100000; 0: no limit
//	heartbeat            amqp: seconds; hworker: true keeps jobs that take longer than timeout
//	timeout              hworker: time in progress after which a job is queued again; default 2m
//	failed_size          hworker: newest failed jobs of a queue that are kept; default 1000
//	connection_timeout   amqp: milliseconds
//	auth_mechanism       amqp: plain or external
//	creds                nats: file of a user's credentials, as nsc writes it
//	nkey                 nats: file of an nkey seed
//	replicas             nats: copies of each message in a cluster, 1 to 5; default 1
//	listen               nats-embedded: loopback address for other processes, such as 127.0.0.1:0
//	sync                 nats-embedded: always, or the interval of syncs to the disk, such as 1s
//	db                   redis: number of the database, instead of the path; not with a cluster
//	pool_size            redis: connections to a server; default 10 for each CPU
//	wait_replicas        redis: replicas that must have a task before it is confirmed; default 0
//	sentinel_user,
//	sentinel_password    redis-sentinel: login of the Sentinels; the URL has that of the data servers
//
// An unknown parameter is an error that names the parameter.
//
// # Parts from different servers
//
// Results and events use the broker's server by default. They can have their own URLs, in [Options]
// or, encoded, as parameters of the URL:
//
//	open.Open(ctx, "amqp://host", open.Options{Results: "redis://other"})
//	open.Open(ctx, "amqp://host?results=redis://other%3Fdb=2", open.Options{})
//
// A part with its own URL uses the broker's namespace unless its URL names another.
//
// A SQL database has all parts:
//
//	sqlite:///path/app.db, sqlite:app.db          a SQLite file; the second in the working directory
//	postgres://user:password@host:5432/database   PostgreSQL 13 and later, with the parameters of pgx
//
// Package open reads only the parameters namespace, results, events, retain, dead_ttl and dead_max
// of these URLs. sslmode is verify-full, verify-ca or disable. If the URL has no sslmode, the
// service file decides, then PGSSLMODE, then disable.
//
// # A server in the process
//
// A nats-embedded URL starts a server on the directory. All parts of a [Swarm] with the same URL
// share it, and closing them stops it. A directory has one server. A second Open, in this process
// or another, joins the running server if that server has the parameter listen. It works as long as
// that server runs. Without listen, the second Open returns an error that says so.
//
// # Schedules
//
// [Schedule] returns the store of a schedule, which can also be a SQLite file or PostgreSQL.
//
// # No I/O, no secrets
//
// Opening reads files such as certificates, and starts an embedded server. It does no other I/O. An
// unavailable server is noticed at first use, where the adapters wait for it as configured.
// [Swarm.Ping] reports such a server at once, with a remedy. Errors contain no password.
package open

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/settings"
)

// Options holds the settings that are not part of a URL. The zero value is usable.
type Options struct {
	// Results and Events are the URLs of a result store and an event bus. The parameters of the
	// broker's URL can name them instead; both at once is an error. Default: the broker's URL.
	Results, Events string
	// Namespace separates programs on one server. The URL can name it instead; two different names are
	// an error. Default: "default", the default of the adapters.
	Namespace string
	// Retain selects the events that are retained for late listeners, see [events.Retainer]. It must
	// be the same on all nodes. The URL of the events can set its Age instead. By default no events
	// are retained.
	Retain events.Retention
	// Control adds the buses for commands, their replies and their audit log, see [Swarm].Control,
	// [Swarm].Replies and [Swarm].Audit.
	Control bool
	// Revocations sets the retention of revocations, see package revoke. It must be the same on all
	// nodes. Default for Age and Max: those of revoke.Retention. Types is ignored.
	Revocations events.Retention
	// Limits lists the permits that each attempt of a task needs, by the task's name, for
	// [Swarm.Consumer]. The limits apply to all processes together, see limit.Config. Limits must be
	// the same on all nodes. Without a Limiter, Open returns [broker.ErrUnsupported].
	Limits map[string][]limit.Permit
	// Name is shown in the server's list of connections. Default: the adapters' default.
	Name string
	// TLS is a *tls.Config for URLs with TLS. It is not changed. If nil, the URL decides. These
	// combinations are errors:
	//
	//   - TLS together with the URL's parameters about TLS.
	//   - A configuration that skips verification.
	//   - The URL of a server without TLS. mem:// ignores TLS.
	TLS TLSConfig
	// Logger receives the log messages of the adapters. Default: slog.Default().
	Logger *slog.Logger
}

// Swarm holds a broker, a result store and an event bus. Producers and consumers may share a Swarm.
// [Swarm.Producer] and [Swarm.Consumer] create them with all its parts.
type Swarm struct {
	Broker  broker.Broker
	Results resultstore.ResultStore
	// Events is nil if no part names a URL for events and the broker's driver carries no events. All
	// drivers of this module do. Then Revocations is nil too: consumers run revoked tasks, and log
	// that once.
	Events events.EventBus
	// Control is a bus for commands to consumers, see package control. It is nil unless
	// [Options].Control is set and Events is not nil. It is separate from Events, so a node that
	// listens for commands does not receive the events of all tasks. It uses the server of Events, and
	// a namespace with the suffix "-control".
	Control events.EventBus
	// Replies is a bus for the replies to commands, to which no consumer listens, see control.Config.
	// It is nil if Control is nil. Its namespace has the suffix "-replies". A consumer connects it
	// with its first reply.
	Replies events.EventBus
	// Audit is a separate bus on the server of Events. It retains the changes that operators make, see
	// inspect.Config.Audit. It is nil if Control is nil. It connects at first use.
	Audit events.EventBus
	// Revocations is a separate bus on the server of Events, for revoke.Config and
	// revoke.RevokerConfig. It retains the events that package revoke needs, whatever Options.Retain
	// says. It connects at first use.
	Revocations events.EventBus
	// Settings stores pauses, limits and the queues of groups, see package settings. Consumers of the
	// swarm follow it. It is on the server of the broker, if that is Redis, NATS, a SQL database or
	// memory, else on that of the events. With RabbitMQ it is a bus of retained events, whose limits
	// package settings/eventsettings describes. It is nil if no server can keep it. It
	// connects at first use.
	Settings settings.Store
	// Limiter enforces limits over all processes. It uses the Redis or the SQL database of the broker,
	// the results or the events, or memory with mem://. It is nil if none of the servers supports
	// limits.
	Limiter limit.Limiter

	targets targets
	shared  shared
}

// Open constructs all adapters of a URL. Close the Swarm after use. It connects to no server; the
// adapters do so at first use. It reads certificate files and starts an embedded server, see the
// package comment.
//
// With mem://, the adapters belong to this Swarm alone. A consumer and a producer must then share
// the Swarm.
//
// Returns an error with a remedy if the URL or an option is invalid, or the scheme has no imported
// driver. Then nothing stays open.
func Open(ctx context.Context, url string, o Options) (*Swarm, error) {
	return registered.Open(ctx, url, o)
}

// make starts the shared resources of the targets and constructs the adapters, those for commands
// only if the options want them. After an error, the caller must close s.
func (s *Swarm) make(ctx context.Context) (err error) {
	ts := s.targets
	for _, t := range ts.distinct() {
		if err := t.prepare(ctx); err != nil {
			return err
		}
	}
	if s.Broker, err = made(ts.broker.broker()); err != nil {
		return err
	}
	if s.Results, err = made(ts.results.results()); err != nil {
		return err
	}
	if s.Limiter, err = ts.limiter(); err != nil {
		return err
	}
	if t := ts.settings(); t != nil {
		if s.Settings, err = made(t.settings()); err != nil {
			return err
		}
	}
	if ts.busless() {
		return nil
	}
	if s.Events, err = made(ts.events.events()); err != nil {
		return err
	}
	if s.Revocations, err = made(ts.events.revocations().events()); err != nil || !ts.broker.options.Control {
		return err
	}
	if s.Control, err = made(ts.events.forCommands("-control").events()); err != nil {
		return err
	}
	if s.Replies, err = made(ts.events.forCommands("-replies").events()); err != nil {
		return err
	}
	s.Audit, err = made(ts.events.audit().events())
	return err
}

// forCommands returns the target of a bus for commands or their replies. It is the server of the
// event bus at t, with the suffix added to the namespace and without retention. t is not changed.
func (t *target) forCommands(suffix string) *target {
	c := *t
	c.namespace = beside(t.namespace, suffix)
	c.retain = events.Retention{}
	return &c
}

// defaultNamespace is the default of all adapters.
const defaultNamespace = "default"

// made returns a, or the zero value if err is not nil. A constructor may return a nil pointer with
// its error, which would not be a nil interface.
func made[T any](a T, err error) (T, error) {
	if err != nil {
		return *new(T), err
	}
	return a, nil
}

// Close stops the parts that Producer and Consumer have started, and closes all adapters and
// embedded servers. It closes the event buses first, since they report about the other parts, and
// the broker last.
//
// Each step gets ctx, and runs even if an earlier one failed. It returns all errors joined. It is
// idempotent. Close producers and end consumers before.
func (s *Swarm) Close(ctx context.Context) error {
	errs := []error{s.shared.close(ctx)}
	for _, bus := range []events.EventBus{s.Control, s.Replies, s.Audit, s.Revocations, s.Events} {
		if bus != nil {
			errs = append(errs, bus.Close(ctx))
		}
	}
	if s.Settings != nil {
		errs = append(errs, s.Settings.Close(ctx))
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

// Broker returns the broker of a URL, which connects at first use. Close it after use; that also
// stops an embedded server. Returns an error if the URL is invalid or its server carries no tasks.
func Broker(ctx context.Context, url string, o Options) (broker.Broker, error) {
	return registered.Broker(ctx, url, o)
}

// Results returns the result store of a URL: of its parameter results, of o.Results, or of the
// broker's server. The URL may be that of a SQL database. With RabbitMQ it is a reply queue of this
// process. It connects at first use. Close it after use.
func Results(ctx context.Context, url string, o Options) (resultstore.ResultStore, error) {
	return registered.Results(ctx, url, o)
}

// Events returns the event bus of a URL: of its parameter events, of o.Events, or of the broker's
// server. With RabbitMQ it is a fanout exchange. It connects at first use. Close it after use.
func Events(ctx context.Context, url string, o Options) (events.EventBus, error) {
	return registered.Events(ctx, url, o)
}

// Revocations returns the bus for revocations, on the server of the URL's events, in a namespace of
// its own. See [Swarm].Revocations. It connects at first use. Close it after use.
func Revocations(ctx context.Context, url string, o Options) (events.EventBus, error) {
	return registered.Revocations(ctx, url, o)
}

// lone starts the resources that t needs and constructs one adapter. If resources were started, own
// wraps the adapter, so that Close stops them. After an error, lone stops them itself and returns
// the zero value.
func lone[T any](ctx context.Context, t *target, constructor func(*target) (T, error), own func(T, stopper) T) (T, error) {
	err := t.prepare(ctx)
	if err == nil {
		var a T
		if a, err = constructor(t); err == nil {
			if t.running.Close != nil {
				a = own(a, t.running.Close)
			}
			return a, nil
		}
	}
	return *new(T), errors.Join(fmt.Errorf("open: %w", err), t.close(context.WithoutCancel(ctx)))
}

// Redact returns a URL for logs, with only the scheme and the hosts, or the directory or file. It
// returns "unreadable" for a URL that [Open] would refuse.
func Redact(url string) string { return registered.Redact(url) }
