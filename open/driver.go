package open

import (
	"context"
	"log/slog"
	"net/url"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/sqldb"
)

// Driver constructs the adapters for the URLs of some schemes. Each package below open has a
// Driver, to pass to [Register] or [Registry]. Its methods must be safe for concurrent use.
type Driver interface {
	// Schemes describes the URLs. It returns the same schemes at each call.
	Schemes() []Scheme
	// Parts checks a URL and returns the constructors of its adapters. It may read files that the URL
	// names, and does no other I/O. Its errors contain no part of a URL that may be secret.
	Parts(t *Target) (Parts, error)
}

// DatabaseDriver is an optional interface of a [Driver] whose Parts have a Database. It constructs
// the stores that only a database has, for a namespace in the Database of Parts. It does not
// connect. These stores are not in Parts, so that a program for tasks alone does not link them.
type DatabaseDriver interface {
	Driver
	Outbox(db sqldb.DB, namespace string) (OutboxStore, error)
	History(db sqldb.DB, namespace string) (HistoryStore, error)
}

// Scheme describes the URLs of one scheme.
type Scheme struct {
	Name   string   // lower-case letters, digits, '_', '-' and '+', such as redis
	Form   string   // an example of a URL, for error texts
	Place  Place    // the part between "://" and the parameters
	Port   string   // default port of hosts
	Server string   // the name of the server, such as RabbitMQ, for error texts
	Start  string   // how to start the server, for error texts
	Params []string // parameters that the driver reads, in addition to those of all schemes
	Client []string // parameters that are left in the URL, for the client library

	// Secure means that connections use TLS. The parameters ca, cert, key and server_name are then
	// allowed.
	Secure bool
	// Secured names the scheme for the same server with TLS. It is "" if TLS is not available.
	Secured string
}

// Place is the kind of text between "://" and the parameters of a URL.
type Place int

// The kinds of places.
const (
	// PlaceNone stands for no text. The adapters are in this process.
	PlaceNone Place = iota
	// PlaceHosts stands for hosts, with user and password before the first host.
	PlaceHosts
	// PlaceDirectory stands for the absolute path of a directory.
	PlaceDirectory
	// PlaceDatabase stands for the URL of a SQL client: hosts if the Scheme has a Port, otherwise a
	// file. "//" may be omitted. Unknown parameters are left in the URL.
	PlaceDatabase
)

// Target is a parsed URL, for a [Driver]. A Driver must not change it.
type Target struct {
	Scheme    Scheme
	Servers   []Server          // for PlaceHosts, at least one
	Directory string            // for PlaceDirectory, unescaped
	URL       string            // for PlaceDatabase: the URL without the parameters that open reads
	Params    map[string]string // the known parameters except Client; no value is empty
	Name      string            // for the server's list of connections, see [Options]; may be ""
	TLS       TLSConfig         // nil: the URL decides
	Logger    *slog.Logger      // nil: slog.Default()
}

// Server is one host of a URL.
type Server struct {
	URL  string // for this host alone, with the parameters of the client
	Addr string // host:port
	User *url.Userinfo
	Path string // unescaped, without the leading slash
}

// URLs returns the URL of each server, for PlaceHosts. It may contain secrets.
func (t *Target) URLs() []string {
	urls := make([]string, len(t.Servers))
	for i, s := range t.Servers {
		urls[i] = s.URL
	}
	return urls
}

// Addrs returns the address host:port of each server. It contains no secret.
func (t *Target) Addrs() []string {
	addrs := make([]string, len(t.Servers))
	for i, s := range t.Servers {
		addrs[i] = s.Addr
	}
	return addrs
}

// Parts holds the constructors of the adapters at one URL. A constructor does not connect to a
// server. A nil function means that the URL does not support this adapter.
type Parts struct {
	// Start starts the resources that the adapters share, such as a server in this process. It is
	// called once, before the other functions. nil means that nothing must be started.
	Start func(ctx context.Context) (Running, error)

	// Database is the database that the adapters share, or nil if they use none. It is closed after
	// them.
	Database sqldb.DB

	Broker  func(namespace string) (broker.Broker, error)
	Results func(namespace string) (resultstore.ResultStore, error)
	// Events is called for each bus that a [Swarm] needs. Each bus has its own namespace.
	Events  func(namespace string, retain events.Retention) (events.EventBus, error)
	Limiter func(namespace string) (limit.Limiter, error)
	// Schedule constructs the store for the schedule with this name.
	Schedule func(name string) (ScheduleStore, error)
	Jobs     func() (jobs.Store, error)
	Settings func(namespace string) (settings.Store, error)
	// EventSettings constructs a store of settings with weaker promises, on a bus of its own. A
	// [Swarm] uses it if no server of its URL has Settings. The namespace is for this bus alone.
	EventSettings func(namespace string) (settings.Store, error)
}

// Running describes the resources that Start has started or found.
type Running struct {
	// Addr is the host:port of a server that another owner has started, or "". [Swarm.Ping] connects
	// to it.
	Addr string
	// Close stops the started resources, after the adapters are closed. It may be called twice. nil
	// means that nothing must be stopped.
	Close func(ctx context.Context) error
}

// TLSConfig is always a *tls.Config. It is an interface so that a program without TLS does not link
// crypto/tls.
type TLSConfig interface {
	SetSessionTicketKeys(keys [][32]byte)
}
