// Package amqpconnect configures the connection to RabbitMQ, once for all of its adapters.
package amqpconnect

import (
	"crypto/tls"

	"github.com/swarmiji/swarmiji/task"
)

// Config configures the connections of amqpbroker, amqpresults and amqpevents. Only URLs is
// required. Each adapter makes connections of its own: a server that is short of memory stops
// reading from all connections that publish.
type Config struct {
	// URLs of the nodes of one cluster, tried in turn: amqp://user:password@host:port/vhost, or
	// amqps:// for TLS. An unknown parameter is an error. The parameters are:
	//
	//   - heartbeat: how often each side shows that it lives, in seconds; one that is silent for
	//     twice that is given up. Default: 10.
	//   - connection_timeout: the bound of one attempt to connect, in milliseconds. Default: 15000.
	//   - auth_mechanism: plain or external. Default: plain.
	//   - cacertfile, certfile, keyfile, server_name_indication: TLS, in place of the field.
	URLs []string
	// TLS is for amqps URLs; it is not changed. A missing ServerName is the URL's host; the minimum
	// is TLS 1.2. With an amqp URL it is an error. nil: what the URL says, else the system's
	// authorities.
	TLS *tls.Config
	// Name is shown in the server's list of connections, followed by the purpose of each. Default:
	// "swarmiji".
	Name string
	// Backoff is the wait between two rounds over all URLs. Default: full jitter, up to 100 ms at
	// first and up to 5 s in the end.
	Backoff task.Backoff
}
