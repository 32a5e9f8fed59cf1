// Package natsconnect configures the connection to NATS, once for all of its adapters.
package natsconnect

import (
	"crypto/tls"
	"net"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// Config configures the connections of natsbroker, natsresults, natsevents and natsschedule. Either
// URLs or InProcess is required. Each adapter makes a connection of its own.
type Config struct {
	// URLs of the nodes of one cluster, in any order: nats://user:password@host:port,
	// nats://token@host:port, or tls:// to insist on TLS. Further nodes are learnt from the servers.
	URLs []string
	// InProcess is a server in this process, such as an *embedded.Server; it is connected to without
	// a network. URLs must then be empty.
	InProcess interface{ InProcessConn() (net.Conn, error) }
	// TLS is for all URLs; it is not changed. A server without TLS is then refused before anything
	// is said to it. A missing ServerName is the URL's host; the minimum is TLS 1.2. nil: the
	// system's authorities, where the scheme is tls or the server asks for TLS.
	TLS *tls.Config
	// Credentials is a file with a user's JWT and seed, as the tool nsc writes it. It is read at
	// each connect. "": none.
	Credentials string
	// NKeySeed is a file with an nkey seed. It is read when the adapter connects first. "": none.
	NKeySeed string
	// Name is shown in the server's list of connections. Default: "swarmiji".
	Name string
	// PingInterval is the time between pings. A silent server is given up at the third ping.
	// Default: 5 s.
	PingInterval time.Duration
	// DialTimeout bounds one attempt to connect, TLS and the handshake included. Default: 5 s.
	DialTimeout time.Duration
	// Backoff is the wait between two rounds over all URLs. Default: full jitter, up to 100 ms at
	// first and up to 5 s in the end.
	Backoff task.Backoff
}
