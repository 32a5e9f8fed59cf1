// Package amqpconnect configures the connection to RabbitMQ, in the same way for all of its
// adapters.
package amqpconnect

import (
	"crypto/tls"

	"github.com/swarmiji/swarmiji/task"
)

// Config configures the connections of amqpbroker, amqpresults and amqpevents. Only URLs must be
// set. Each adapter opens separate connections: a server with little memory stops reading from all
// connections that publish.
type Config struct {
	// URLs of the nodes of one cluster, tried in turn: amqp://user:password@host:port/vhost, or
	// amqps:// for TLS. An unknown parameter is an error. The parameters are:
	//
	//   - heartbeat: the interval of heartbeats, in seconds. A connection without one for twice that
	//     is closed. Default: 10.
	//   - connection_timeout: the limit of one attempt to connect, in milliseconds. Default: 15000.
	//   - auth_mechanism: plain or external. Default: plain.
	//   - cacertfile, certfile, keyfile, server_name_indication: TLS, in place of the field.
	URLs []string
	// TLS configures amqps URLs; it is not changed. A missing ServerName is the URL's host; the
	// minimum is TLS 1.2. With an amqp URL it is an error. nil: the parameters of the URL, or else the
	// system's certificate authorities.
	TLS *tls.Config
	// Name is shown in the server's list of connections, followed by the purpose of each. Default:
	// "swarmiji".
	Name string
	// Backoff is the pause between two attempts with all URLs. Default: full jitter, up to 100 ms at
	// first, later up to 5 s.
	Backoff task.Backoff
}
