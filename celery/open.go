package celery

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/celery/amqp"
	"github.com/swarmiji/swarmiji/celery/control"
	"github.com/swarmiji/swarmiji/celery/redis"
	"github.com/swarmiji/swarmiji/celery/wire"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/serializer/msgpack"
	"github.com/swarmiji/swarmiji/task"
)

// DefaultQueue is the default of [Options.Queue], as of Celery's task_default_queue.
const DefaultQueue = "celery"

// Options holds the settings of [Open]. The zero value is usable. Use the values of the Python
// programs.
type Options struct {
	// Results is the URL of Celery's result backend. With redis:// and rediss:// it keeps results and
	// the counts of chords. "rpc://" sends results to their submitter, and chords are refused.
	// Default: "rpc://".
	Results string
	// ResultTTL is Celery's result_expires. Default: 24 hours.
	ResultTTL time.Duration
	// Msgpack writes arguments and results in msgpack, as task_serializer and result_serializer do.
	// Both encodings of arguments are always read.
	Msgpack bool
	// TrackStarted stores the state STARTED when a task starts, as task_track_started does. It needs
	// Results in Redis.
	TrackStarted bool
	// TaskEvents sends the events of tasks from the start, as "celery worker -E" and
	// task_send_sent_event do. Without it "celery control enable_events" begins them. Heartbeats of
	// consumers are always sent.
	TaskEvents bool
	// Commands lists the commands of "celery inspect" and "celery control" that consumers execute,
	// such as "ping". These commands are not signed: every client of the broker can send them. nil:
	// all. Empty: consumers do not listen for commands.
	Commands []string
	// Queue is the queue of tasks without one, and the queue of consumers without Queues, as Celery's
	// task_default_queue. Default: [DefaultQueue].
	Queue string
	// Name is shown in the server's list of connections. Default: "swarmiji".
	Name string
	// TLS is used for amqps:// and rediss:// URLs; it is not changed. nil: the parameters of the URL,
	// or else the system's certificate authorities.
	TLS *tls.Config
	// Logger receives the log messages of the adapters. Default: slog.Default().
	Logger *slog.Logger
}

// Swarm holds the parts for programs that use Celery's queues. Producers and consumers may share a
// Swarm. Its fields must not be changed. Safe for concurrent use.
type Swarm struct {
	Broker  broker.Broker
	Results resultstore.ResultStore
	// Events is the bus of Celery's events, on which producers and consumers without Events send. Its
	// listeners receive the events of Python and Go.
	Events events.EventBus
	// Wire writes Celery's messages, and reads them and those of this module.
	Wire    serializer.Wire
	options Options
	bus     *control.Bus
}

// Open makes the parts for a broker of Celery, which must be RabbitMQ. Several URLs of one cluster
// are separated by ";", as in Celery. It connects to no server; the parts do so at first use. Call
// Close at the end.
//
// Returns an error for an invalid URL or option, without passwords, and [broker.ErrUnsupported] for
// another broker or result backend.
func Open(_ context.Context, brokerURL string, o Options) (*Swarm, error) {
	if o.Queue == "" {
		o.Queue = DefaultQueue
	}
	if err := task.CheckName(o.Queue); err != nil {
		return nil, fmt.Errorf("celery: Queue: %w", err)
	}
	if o.ResultTTL < 0 {
		return nil, errors.New("celery: ResultTTL is negative")
	}
	urls, secure, err := brokerURLs(brokerURL)
	if err != nil {
		return nil, err
	}
	connect := amqpconnect.Config{URLs: urls, Name: o.Name}
	if secure {
		connect.TLS = o.TLS
	}
	b, err := amqp.New(amqp.Config{Connect: connect, Logger: o.Logger})
	if err != nil {
		return nil, fmt.Errorf("celery: %w", err)
	}
	s := &Swarm{Broker: b, Wire: makeWire(o.Msgpack, ""), options: o}
	if err = s.openResults(connect); err != nil {
		return nil, errors.Join(err, b.Close(context.Background()))
	}
	if err = s.openEvents(connect); err != nil {
		return nil, errors.Join(err, s.Results.Close(context.Background()), b.Close(context.Background()))
	}
	return s, nil
}

// openResults sets s.Results, and wraps s.Broker if the store counts chords.
func (s *Swarm) openResults(connect amqpconnect.Config) error {
	o := &s.options
	scheme, _, _ := strings.Cut(o.Results, "://")
	switch scheme {
	case "", "rpc":
		r, err := amqp.NewResults(amqp.ResultsConfig{Connect: connect, Logger: o.Logger})
		if err != nil {
			return fmt.Errorf("celery: %w", err)
		}
		s.Results = r
	case "redis", "rediss":
		c := redis.Config{URL: o.Results, TTL: o.ResultTTL, Msgpack: o.Msgpack, Name: o.Name, Logger: o.Logger}
		if scheme == "rediss" {
			c.TLS = o.TLS
		}
		r, err := redis.New(c)
		if err != nil {
			return fmt.Errorf("celery: %w", err)
		}
		s.Results, s.Broker = r, &chordBroker{Broker: s.Broker, sizes: r}
	default:
		return fmt.Errorf("celery: %w: results in %.20q; use redis://, rediss:// or rpc://", broker.ErrUnsupported, scheme)
	}
	return nil
}

// makeWire returns the encodings for Celery. store names the store of results of Celery's tasks;
// "": the default store.
func makeWire(inMsgpack bool, store string) serializer.Wire {
	f := wire.Format{ResultStore: store}
	ss := []serializer.Serializer{wire.JSONArgs{}, wire.MsgpackArgs{}, wire.JSONValues{}, msgpack.Serializer{}, serializer.Raw{}}
	if inMsgpack {
		f.Results = serializer.ContentMsgpack
		ss[0], ss[1] = ss[1], ss[0]
	}
	return serializer.Wire{Serializers: ss, Formats: []serializer.Format{f, msgpack.Compact{}, serializer.JSONFormat{}}}
}

// errURL is the error of a URL that cannot be read. It does not hold the URL, which may have a
// password.
var errURL = errors.New("celery: the URL of the broker cannot be read; want amqp://user:password@host:5672/vhost, with reserved characters percent-encoded")

// brokerURLs returns the URLs of a list of Celery in the form of the AMQP client. secure reports
// that they use TLS.
func brokerURLs(list string) (urls []string, secure bool, err error) {
	for one := range strings.SplitSeq(list, ";") {
		u, err := url.Parse(strings.TrimSpace(one))
		if err != nil {
			return nil, false, errURL
		}
		switch u.Scheme {
		case "pyamqp":
			u.Scheme = "amqp"
		case "amqp":
		case "amqps":
			secure = true
		default:
			return nil, false, fmt.Errorf("celery: %w: a broker of the scheme %.20q; only RabbitMQ is supported: amqp://, amqps:// or pyamqp://", broker.ErrUnsupported, u.Scheme)
		}
		switch u.Path { // in Celery both are the virtual host "/"
		case "/":
			u.Path = ""
		case "//":
			u.Path, u.RawPath = "//", "/%2F"
		}
		urls = append(urls, u.String())
	}
	return urls, secure, nil
}

// Close closes the bus, the result store and the broker. Close the producers and end the Run of
// consumers before. It returns their errors, joined. Further calls do nothing.
func (s *Swarm) Close(ctx context.Context) error {
	return errors.Join(s.Events.Close(ctx), s.Results.Close(ctx), s.Broker.Close(ctx))
}
