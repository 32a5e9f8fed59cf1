// Package all registers the drivers of all URLs that package open supports. It links all client
// libraries and two SQL engines. A program with a known server imports only the package of this
// server.
//
//	import _ "github.com/swarmiji/swarmiji/open/all"
package all

import (
	// Each driver registers its schemes.
	_ "github.com/swarmiji/swarmiji/open/amqp"
	_ "github.com/swarmiji/swarmiji/open/hworker"
	_ "github.com/swarmiji/swarmiji/open/nats"
	_ "github.com/swarmiji/swarmiji/open/natsembedded"
	_ "github.com/swarmiji/swarmiji/open/postgres"
	_ "github.com/swarmiji/swarmiji/open/redis"
	_ "github.com/swarmiji/swarmiji/open/sqlite"
)
