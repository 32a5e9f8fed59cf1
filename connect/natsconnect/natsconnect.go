// Package natsconnect configures the connection to NATS, in the same way for all of its adapters.
package natsconnect

import (
	"crypto/tls"
	"net"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// Config configures the connections of natsbroker, natsresults, natsevents and natsschedule. Either
// URLs or InProcess is required. Each adapter opens a separate connection.
type Config struct {
	// URLs of the nodes of one cluster, in any order: nats://user:password@host:port,
	// nats://token@host:port, or tls:// to require TLS. The servers report further nodes.
	URLs []string
	// InProcess is a server in this process, such as an *embedded.Server. The connection to it uses no
	// network. URLs must then be empty.
	InProcess interface{ InProcessConn() (net.Conn, error) }
	// TLS configures TLS for all URLs; it is not changed. A server without TLS is then refused before
	// any data is sent to it. A missing ServerName is the URL's host; the minimum is TLS 1.2. nil: the
	// system's certificate authorities, if the scheme is tls or the server requires TLS.
	TLS *tls.Config
	// Credentials is the path of a file with a user's JWT and seed, as the tool nsc writes it. It is
	// read at each connect. "": not used.
	Credentials string
	// NKeySeed is the path of a file with an nkey seed. It is read at the first connect. "": not used.
	NKeySeed string
	// Name is shown in the server's list of connections. Default: "swarmiji".
	Name string
	// PingInterval is the time between pings. At the third ping without an answer the connection is
	// closed. Default: 5 s.
	PingInterval time.Duration
	// DialTimeout limits one attempt to connect, with TLS and the handshake. Default: 5 s.
	DialTimeout time.Duration
	// Backoff is the pause between two attempts with all URLs. Default: full jitter, up to 100 ms at
	// first, later up to 5 s.
	Backoff task.Backoff
}
