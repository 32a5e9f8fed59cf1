package archtest

// A client is a row of the table of third-party modules: who may import it, tests of these packages included.
type client struct {
	path string // of the module; covers all its packages
	may  []string
	// reach are further packages whose programs may link it through others. All others must stay free of it: who uses
	// one broker never links another's client.
	reach []string
	// tests opens it to all _test.go files.
	tests bool
	why   string
}

// clients is the table of who may use which third-party module. One that has no row may not be used at all.
var clients = []client{
	{
		path:  "github.com/rabbitmq/amqp091-go",
		may:   []string{"internal/amqpconn", "broker/amqpbroker", "resultstore/amqpresults", "events/amqpevents", "internal/testserver", "bench/..."},
		reach: []string{"open", "@programs"},
		why:   "AMQP stays inside its adapters",
	},
	{
		path: "github.com/redis/go-redis/v9",
		may: []string{
			"internal/redisconn", "broker/redisbroker", "broker/hworkerbroker", "resultstore/redisresults", "events/redisevents",
			"limit/redislimit", "schedule/redisschedule", "internal/testserver",
			"open", "bench/...",
		},
		reach: []string{"@programs"},
		why:   "Redis stays inside its adapters, which take the client's own options; open fills these in from a URL",
	},
	{
		path: "github.com/nats-io/nats.go",
		may: []string{
			"internal/natsconn", "broker/natsbroker", "broker/natsbroker/embedded", "resultstore/natsresults", "events/natsevents", "schedule/natsschedule",
			"internal/testserver", "bench/...",
		},
		reach: []string{"open", "@programs"},
		why:   "NATS stays inside its adapters",
	},
	{
		path:  "github.com/nats-io/nats-server/v2",
		may:   []string{"broker/natsbroker/embedded", "internal/testserver/natsd"},
		reach: []string{"open", "@programs"},
		why:   "only who wants a server in the process links one, 11 MB",
	},
	{
		path:  "github.com/jackc/pgx/v5",
		may:   []string{"internal/sqlconn", "internal/testserver", "bench/..."},
		reach: []string{"schedule/sqlschedule", "jobs/sqljobs", "resultstore/sqlresults", "open", "@programs"},
		why:   "SQL is spoken through one connection, which knows the servers' errors",
	},
	{
		path:  "modernc.org/sqlite",
		may:   []string{"internal/sqlconn"},
		reach: []string{"schedule/sqlschedule", "jobs/sqljobs", "resultstore/sqlresults", "open", "@programs"},
		tests: true, // it is what SQL and date modifiers are held against
		why:   "SQLite without cgo; only who keeps something in a file links it",
	},
	{
		path:  "github.com/Shopify/toxiproxy/v2",
		may:   []string{"internal/testserver"},
		reach: []string{"@programs"},
		why:   "it cuts connections in tests",
	},
	{
		path:  "github.com/rs/zerolog",
		may:   []string{"internal/testserver"},
		reach: []string{"@programs"},
		why:   "toxiproxy's constructor asks for one of its loggers; everything else logs with log/slog",
	},
	{
		path:  "github.com/vmihailenco/msgpack/v5",
		may:   []string{"serializer/msgpack", "internal/pack"}, // pack's tests hold it against the library
		reach: []string{"internal/wire", "revoke", "deadletter", "producer", "consumer", "consumer/internal/workflow", "internal/roadtest", "resultstore/*", "open", "@programs"},
		why:   "bytes from outside reach it only after the pre-scan",
	},
	{
		path: "github.com/klauspost/compress",
		may:  []string{"serializer/compress"},
		reach: []string{ // NATS brings it along
			"internal/wire", "revoke", "deadletter", "producer", "consumer", "consumer/internal/workflow", "resultstore/*", "events/*",
			"internal/natsconn", "broker/natsbroker", "broker/natsbroker/embedded",
			"schedule/natsschedule", "internal/testserver", "internal/testserver/natsd", "internal/roadtest", "open", "@programs",
		},
		why: "producers and consumers read what is compressed; a program that only defines tasks does not link it",
	},
	{
		path:  "github.com/rcrowley/go-metrics",
		may:   []string{"middleware", "middleware/prom", "@programs"},
		reach: []string{"middleware/tracing", "producer", "consumer", "limit/...", "internal/roadtest", "revoke", "open"}, // revoke has a middleware
		why:   "metrics are counted where tasks pass",
	},
	{
		path:  "github.com/prometheus",
		may:   []string{"middleware/prom"},
		reach: []string{"internal/testserver", "@programs"}, // toxiproxy links it
		why:   "only programs that are scraped link it",
	},
	{
		path: "go.opentelemetry.io/otel/sdk", tests: true,
		why: "which SDK makes spans is the program's choice; middleware/tracing knows the API alone",
	},
	{
		path: "go.opentelemetry.io/otel",
		may:  []string{"middleware/tracing"},
		why:  "only programs that are traced link it",
	},
	{
		path:  "github.com/google/uuid",
		may:   []string{"producer", "consumer"},
		reach: []string{"internal/roadtest", "resultstore/*", "internal/sqlconn", "schedule/sqlschedule", "jobs/sqljobs", "open", "@programs"}, // SQLite links it
		why:   "ids are chosen where tasks are submitted",
	},
	{
		path:  "golang.org/x/time",
		may:   []string{"consumer/internal/rates"},
		reach: []string{"consumer", "internal/roadtest", "broker/natsbroker/embedded", "internal/testserver/natsd", "open", "@programs"}, // a NATS server links it
		why:   "rate limits belong to the consumer's side",
	},
	{
		path: "github.com/spf13/cobra",
		may:  []string{"cmd/..."},
		why:  "a command line is the program's affair",
	},
	{
		path: "github.com/rogpeppe/go-internal",
		may:  []string{"cmd/..."},
		why:  "its testscript tests programs as their users call them",
	},
	{
		path: "github.com/google/go-cmp", may: []string{"@suites"}, tests: true,
		why: "it is for tests",
	},
	{
		path: "go.uber.org/goleak", may: []string{"@suites"}, tests: true,
		why: "it is for tests",
	},
	{
		path: "pgregory.net/rapid", may: []string{"@suites"}, tests: true,
		why: "it is for tests",
	},
}
