package archtest

// A client is a row of the table of third-party modules.
type client struct {
	path string // of the module; covers all its packages
	may  []string
	// reach lists further packages whose programs may link the module through others. A program
	// that uses one broker never links the client of another.
	reach []string
	// tests opens it to all _test.go files.
	tests bool
	why   string
}

// clients lists the packages that may import each third-party module. A module without a row may
// not be used.
var clients = []client{
	{
		path:  "github.com/rabbitmq/amqp091-go",
		may:   []string{"internal/amqpconn", "internal/amqpdead", "internal/amqpdelay", "internal/amqpreplies", "broker/amqpbroker", "celery/amqp", "celery/amqpcontrol", "resultstore/amqpresults", "events/amqpevents", "internal/testserver", "bench/..."},
		reach: []string{"open/amqp", "open/all", "celery", "celery/internal/python", "@programs"},
		why:   "AMQP stays inside its adapters",
	},
	{
		path: "github.com/redis/go-redis/v9",
		may: []string{
			"internal/redisconn", "broker/redisbroker", "broker/hworkerbroker", "resultstore/redisresults", "celery/redis", "events/redisevents",
			"limit/redislimit", "schedule/redisschedule", "settings/redissettings", "internal/testserver",
			"open/internal/redisparts", "open/hworker", "bench/...",
		},
		reach: []string{"open/redis", "open/all", "celery", "celery/internal/*", "@programs"},
		why:   "Redis stays inside its adapters, which take the client's own options; open/internal/redisparts fills these in from a URL",
	},
	{
		path: "github.com/nats-io/nats.go",
		may: []string{
			"internal/natsconn", "broker/natsbroker", "broker/natsbroker/embedded", "resultstore/natsresults", "events/natsevents", "schedule/natsschedule",
			"settings/natssettings", "internal/testserver", "bench/...",
		},
		reach: []string{"open/nats", "open/natsembedded", "open/internal/natsparts", "open/all", "celery/internal/python", "@programs"},
		why:   "NATS stays inside its adapters",
	},
	{
		path:  "github.com/nats-io/nats-server/v2",
		may:   []string{"broker/natsbroker/embedded", "internal/testserver/natsd"},
		reach: []string{"open/natsembedded", "open/all", "@programs"},
		why:   "only who wants a server in the process links one, 11 MB",
	},
	{
		path:  "github.com/jackc/pgx/v5",
		may:   []string{"internal/sqlconn/postgres", "internal/sqlconn/sqltest", "sqldb/postgres", "internal/testserver", "tx/pgxtx", "bench/..."},
		tests: true, // they begin transactions as users do
		reach: []string{"open/postgres", "open/all", "celery/internal/python", "@programs"},
		why:   "SQL is spoken through one connection, which knows the servers' errors",
	},
	{
		path:  "modernc.org/sqlite",
		may:   []string{"internal/sqlconn/sqlite"},
		reach: []string{"sqldb/sqlite", "internal/sqlconn/sqltest", "open/sqlite", "open/all", "@programs"},
		tests: true, // SQL and date modifiers are compared with it
		why:   "SQLite without cgo; only who keeps something in a file links it",
	},
	{
		path:  "github.com/fsnotify/fsnotify",
		may:   []string{"internal/sqlconn/sqlite"},
		reach: []string{"sqldb/sqlite", "internal/sqlconn/sqltest", "open/sqlite", "open/all", "@programs"},
		why:   "one process learns of another one's commit to a SQLite file; each operating system reports writes in its own way",
	},
	{
		path:  "github.com/Shopify/toxiproxy/v2",
		may:   []string{"internal/testserver"},
		reach: []string{"celery/internal/python", "@programs"},
		why:   "it cuts connections in tests",
	},
	{
		path:  "github.com/rs/zerolog",
		may:   []string{"internal/testserver"},
		reach: []string{"celery/internal/python", "@programs"},
		why:   "toxiproxy's constructor asks for one of its loggers; everything else logs with log/slog",
	},
	{
		path: "github.com/vmihailenco/msgpack/v5",
		// the tests of rawmsgpack compare it with the library
		may:   []string{"serializer/msgpack", "internal/rawmsgpack", "celery/wire"},
		reach: []string{"internal/wire", "revoke", "deadletter", "workflow", "inspect", "inspect/internal/*", "inspect/inspecttest", "inspect/httpinspect", "dashboard", "dashboard/internal/pages", "producer", "consumer", "consumer/internal/workflow", "consumer/internal/intx", "consumer/internal/wakes", "consumer/internal/answers", "consumer/internal/steps", "consumer/internal/lives", "consumer/internal/bursting", "consumer/internal/checkpoints", "internal/endtoend", "tasktest", "health", "resultstore/*", "open", "open/...", "celery", "celery/...", "@programs"},
		why:   "bytes from outside reach it only after the pre-scan",
	},
	{
		path: "github.com/klauspost/compress",
		may:  []string{"serializer/compress"},
		reach: []string{ // NATS brings it along
			"internal/wire", "revoke", "deadletter", "workflow", "inspect", "inspect/internal/*", "inspect/inspecttest", "inspect/httpinspect", "dashboard", "dashboard/internal/pages", "producer", "consumer", "consumer/internal/workflow", "consumer/internal/intx", "consumer/internal/wakes", "consumer/internal/answers", "consumer/internal/steps", "consumer/internal/lives", "consumer/internal/bursting", "consumer/internal/checkpoints", "resultstore/*", "events/*",
			"internal/natsconn", "broker/natsbroker", "broker/natsbroker/embedded",
			"schedule/natsschedule", "settings/natssettings", "internal/testserver", "internal/testserver/natsd", "internal/endtoend", "tasktest", "health", "open", "open/...", "celery", "celery/...", "@programs",
		},
		why: "producers and consumers read what is compressed; a program that only defines tasks does not link it",
	},
	{
		path: "github.com/rcrowley/go-metrics",
		may:  []string{"middleware/gometrics", "middleware/prom", "@programs"},
		why:  "only programs with a registry link it; the core counts with atomics of its own",
	},
	{
		path: "github.com/prometheus",
		may:  []string{"middleware/prom"},
		// toxiproxy links it
		reach: []string{"internal/testserver", "celery/internal/python", "@programs"},
		why:   "only programs that are scraped link it",
	},
	{
		path: "go.opentelemetry.io/otel/sdk", tests: true,
		may: []string{"examples/tracing"},
		why: "which SDK makes spans is the program's choice; middleware/tracing knows the API alone",
	},
	{
		path:  "go.opentelemetry.io/otel",
		may:   []string{"middleware/tracing"},
		reach: []string{"examples/tracing"},
		why:   "only programs that are traced link it",
	},
	{
		path: "github.com/google/uuid",
		may:  []string{"producer", "consumer/internal/steps"},
		// SQLite links it
		reach: []string{"consumer", "consumer/internal/answers", "consumer/internal/bursting", "internal/endtoend", "tasktest", "inspect/inspecttest", "health", "internal/sqlconn/sqlite", "internal/sqlconn/sqltest", "sqldb/sqlite", "open", "open/...", "celery", "@programs"},
		why:   "ids are chosen where tasks are submitted",
	},
	{
		path: "golang.org/x/time",
		may:  []string{"consumer/internal/rates"},
		// a NATS server links it
		reach: []string{"consumer", "internal/endtoend", "tasktest", "inspect/inspecttest", "health", "broker/natsbroker/embedded", "internal/testserver/natsd", "open", "open/...", "celery", "@programs"},
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
		path: "github.com/chromedp",
		may:  []string{"internal/browsertest"},
		why:  "it drives a browser, in the tests of the dashboard alone",
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
