package archtest

// sets are lists that several rows use.
var sets = map[string][]string{
	// Small tools. All packages may import them. They import no other package.
	"leaves": {
		"capability", "internal/cmdline", "internal/floor", "internal/gopool", "internal/glob", "internal/naming", "internal/nodeid", "internal/rawmsgpack", "internal/reach", "internal/receive", "internal/ring", "internal/turns",
		"internal/utf", "internal/wake", "tx",
	},
	// Conformance suites: <port>test beside its port, and the end-to-end suite of producer and
	// consumer. tasktest is for the tests of users.
	"suites": {
		"broker/brokertest", "resultstore/resultstoretest", "events/eventstest", "serializer/serializertest",
		"internal/endtoend", "limit/limittest", "schedule/scheduletest", "history/historytest", "settings/settingstest",
		"jobs/jobstest", "deferral/deferraltest", "inspect/inspecttest", "internal/lanes/lanestest", "tasktest",
	},
	// addresses of servers for adapters
	"connects": {"connect/amqpconnect", "connect/natsconnect", "sqldb"},
	// they open databases with one client library each
	"engines": {"sqldb/postgres", "sqldb/sqlite"},
	// one for each technology
	"conns":    {"internal/amqpconn", "internal/natsconn", "internal/redisconn", "internal/sqlconn"},
	"drivers":  {"open/amqp", "open/nats", "open/natsembedded", "open/redis", "open/hworker", "open/postgres", "open/sqlite"},
	"memory":   {"broker/membroker", "resultstore/memresults", "events/memevents", "schedule/memschedule", "jobs/memjobs", "settings/memsettings"},
	"ports":    {"broker", "resultstore", "serializer", "router", "events", "deferral"},
	"adapters": {"broker/*", "broker/natsbroker/embedded", "resultstore/*", "events/*", "schedule/*", "jobs/memjobs", "jobs/sqljobs", "outbox/*", "settings/*"},
	"programs": {"cmd/...", "bench/...", "examples/..."},
}
