package archtest

// module is the path of the module. Packages of the tables are below it.
const module = "github.com/swarmiji/swarmiji"

// A rule is a row of the table of layers: packages, and the packages of this module that they may
// import outside of tests. The standard library is open to all, except for its parts for tests.
//
// Patterns are paths below the module:
//
//   - "task" is one package,
//   - "broker/*" is each package directly below broker,
//   - "cmd/..." is each package at or below cmd,
//   - "." is the root,
//   - "@name" is a set of sets.go.
type rule struct {
	layer string
	pkgs  []string
	may   []string
	why   string // completes "because"
}

// layers lists the allowed imports. The first row that matches a package counts.
var layers = []rule{
	{
		"suite",
		[]string{"internal/endtoend"},
		[]string{"task", "@ports", "serializer/*", "middleware", "revoke", "deadletter", "producer", "consumer", "jobs", "jobs/jobstore", "jobs/deferrals", "jobs/memjobs", "resultstore/memresults", "internal/suite", "@leaves"},
		"the road test drives a producer and a consumer over whatever broker it is given, with tasks that wait for answers in a store of jobs",
	},
	{
		"suite",
		[]string{"tasktest"},
		[]string{"task", "@ports", "middleware", "revoke", "schedule", "producer", "consumer", "broker/membroker", "resultstore/memresults", "events/memevents", "schedule/memschedule", "internal/wire", "@leaves"},
		"it is a swarm in memory for the tests of users; only they may import it",
	},
	{
		"suite",
		[]string{"internal/lanes/lanestest"},
		[]string{"broker", "capability", "internal/lanes", "internal/testwait"},
		"it tests and measures the lanes of whatever broker it is given",
	},
	{
		"suite",
		[]string{"limit/limittest"},
		[]string{"limit", "@leaves"},
		"a suite knows its port and no adapter, so that every adapter can be held to it",
	},
	{
		"suite",
		[]string{"schedule/scheduletest"},
		[]string{"schedule", "when", "task", "internal/suite", "@leaves"},
		"a suite knows its port and no adapter, so that every adapter can be held to it",
	},
	{
		"suite",
		[]string{"jobs/jobstest"},
		[]string{"jobs", "jobs/jobstore", "task", "when", "internal/suite", "@leaves"},
		"a suite knows its port and no adapter, so that every adapter can be held to it",
	},
	{
		"suite",
		[]string{"internal/captable"},
		nil,
		"it makes a page of what the suites report",
	},
	{
		"suite",
		[]string{"internal/suite"},
		[]string{"internal/captable", "@leaves"},
		"it runs the cases of a suite and does not know their port; only suites may import it",
	},
	{
		"suite",
		[]string{"@suites"},
		[]string{"task", "@ports", "internal/suite", "@leaves"},
		"a suite knows its port and no adapter, so that every adapter can be held to it",
	},
	{
		"L0",
		[]string{"internal/nodeid", "internal/utf"},
		[]string{"internal/naming"},
		"a node's id is made of the characters that package naming allows, and a text of these alone is the most common one",
	},
	{
		"L0",
		[]string{"internal/ring"},
		[]string{"internal/wake"},
		"whoever waits for elements is woken",
	},
	{
		"L0",
		[]string{"@leaves"},
		nil,
		"everybody may import them",
	},
	{
		"L0",
		[]string{"tx/sqltx", "tx/pgxtx"},
		[]string{"tx"},
		"each wraps the transactions of one client library",
	},
	{
		"L0",
		[]string{"task"},
		[]string{"@leaves"},
		"a program that only defines tasks needs nothing else",
	},
	{
		"L0",
		[]string{"broker"},
		[]string{"@leaves"},
		"the port of distribution does not know what a task is",
	},
	{
		"L1",
		[]string{"serializer", "serializer/*"},
		[]string{"task", "broker", "serializer", "@leaves"},
		"a format turns an envelope into a broker's message, and knows neither who sends it nor how",
	},
	{
		"L1",
		[]string{"resultstore", "events", "router"},
		[]string{"task", "@leaves"},
		"ports do not know each other: any broker works with any store and any bus",
	},
	{
		"L1",
		[]string{"internal/guard", "internal/progress"},
		[]string{"task", "@leaves"},
		"they serve functions of users for whoever calls them, and know only what a handler is",
	},
	{
		"L1",
		[]string{"middleware"},
		[]string{"task", "internal/guard", "@leaves"},
		"middleware sees requests and verdicts, never a broker",
	},
	{
		"L1",
		[]string{"middleware/gometrics", "middleware/prom", "middleware/tracing"},
		[]string{"task", "middleware", "middleware/gometrics"},
		"each has a client of its own, which only programs link that import it",
	},
	{
		"L1",
		[]string{"control"},
		[]string{"task", "events", "@leaves"},
		"commands are events; what obeys them is handed in, so that it knows neither consumer nor bus",
	},
	{
		"L1",
		[]string{"internal/taskio"},
		[]string{"task", "@leaves"},
		"it submits tasks for whoever claims what is due, and does not know what that is",
	},
	{
		"L1",
		[]string{"internal/held"},
		[]string{"task", "@leaves"},
		"it keeps what a process has claimed, and does not know what that is",
	},
	{
		"L0",
		[]string{"when"},
		nil,
		"when something happens is a question of time alone, whatever it is",
	},
	{
		"L1",
		[]string{"schedule"},
		[]string{"when", "task", "resultstore", "internal/guard", "internal/taskio", "internal/held", "@leaves"},
		"its stores and whatever a task is submitted through are handed in. What is known of the last run is in a result store",
	},
	{
		"L1",
		[]string{"deferral"},
		[]string{"task", "broker"},
		"tasks that wait for answers are settled as a broker's deliveries are; who keeps them is handed in",
	},
	{
		"L1",
		[]string{"jobs/jobstore"},
		[]string{"task", "tx"},
		"records and what stores do with them have no rules",
	},
	{
		"L2",
		[]string{"jobs/internal/rules"},
		[]string{"jobs/jobstore", "task", "when"},
		"what may become of one job is a question about its record alone",
	},
	{
		"L2",
		[]string{"jobs/internal/txn"},
		[]string{"capability", "internal/wake", "jobs/internal/rules", "jobs/jobstore", "task"},
		"a transaction knows records and locks; what is done in it is handed in",
	},
	{
		"L2",
		[]string{"jobs/internal/page"},
		[]string{"jobs/jobstore"},
		"how many jobs are read at a time follows from their sizes",
	},
	{
		"L2",
		[]string{"jobs/internal/waitlist"},
		[]string{"jobs/internal/page", "jobs/jobstore", "task", "@leaves"},
		"a list of those that wait knows neither the rules nor the transactions of what is handed out",
	},
	{
		"L2",
		[]string{"jobs/internal/line"},
		[]string{"jobs/internal/page", "jobs/jobstore", "task", "capability"},
		"what queues and the explanation of queues both measure",
	},
	{
		"L2",
		[]string{"jobs/queue"},
		[]string{"jobs/internal/line", "jobs/internal/rules", "jobs/internal/txn", "jobs/jobstore", "task", "internal/guard", "@leaves"},
		"which jobs of a queue start is decided in the store's transaction; the service is handed in",
	},
	{
		"L3",
		[]string{"jobs"},
		[]string{"jobs/internal/*", "jobs/queue", "jobs/jobstore", "task", "broker", "when", "internal/taskio", "capability", "tx"},
		"a job is a record with rules; its stores are handed in. When it repeats is a Spec of when; broker has the errors of submissions",
	},
	{
		"L4",
		[]string{"jobs/runner"},
		[]string{"jobs", "jobs/internal/page", "jobs/internal/rules", "jobs/queue", "jobs/jobstore", "task", "resultstore", "when", "internal/guard", "internal/progress", "internal/taskio", "internal/held", "@leaves"},
		"a runner does what any program may do with a service; what it submits tasks through is handed in",
	},
	{
		"L4",
		[]string{"jobs/deferrals"},
		[]string{"capability", "deferral", "jobs", "jobs/jobstore", "task", "broker", "internal/held", "internal/wake"},
		"it keeps tasks that wait for answers beside the jobs, in any store of these",
	},
	{
		"L3",
		[]string{"jobs/memjobs", "jobs/sqljobs"},
		[]string{"jobs/jobstore", "task", "sqldb", "@conns", "@leaves"},
		"an adapter knows its own port and never another adapter",
	},
	{
		"L4",
		[]string{"jobs/bedrock"},
		[]string{"jobs", "jobs/internal/page", "jobs/jobstore", "task"},
		"a protocol in front of the service works with every store and so knows none",
	},
	{
		"L4",
		[]string{"jobs/callback"},
		[]string{"jobs", "jobs/jobstore", "task", "broker", "internal/guard", "internal/wake"},
		"answers come over HTTP and by messages of any broker; it works with every store and every broker and so knows none",
	},
	{
		"L2",
		[]string{"limit"},
		[]string{"task", "middleware"},
		"its middleware is one like a user's; how a limit is kept is its adapters' concern",
	},
	{
		"L3",
		[]string{"schedule/*"},
		[]string{"schedule", "task", "@connects", "@conns", "@leaves"},
		"an adapter knows its own port and never another adapter",
	},
	{
		"L3",
		[]string{"limit/redislimit", "limit/sqllimit"},
		[]string{"limit", "@connects", "@conns", "@leaves"},
		"an adapter knows its own port and never another adapter",
	},
	{
		"L2",
		[]string{"internal/lanes", "internal/messagecode"},
		[]string{"broker", "@leaves"},
		"adapters without turns choose a message's lane in one way; those whose servers know no headers store them in one form",
	},
	{
		"L2",
		[]string{"internal/wire", "internal/bursts"},
		[]string{"task", "broker", "serializer", "serializer/*", "resultstore", "@leaves"},
		"it is what producer and consumer must agree on",
	},
	{
		"L2",
		[]string{"internal/report"},
		[]string{"events", "@leaves"},
		"producer and consumer tell of tasks and of themselves in the same way",
	},
	{
		"L2",
		[]string{"revoke"},
		[]string{"task", "broker", "resultstore", "serializer", "events", "middleware", "internal/wire", "@leaves"},
		"revocations travel as events; whoever revokes also takes queued messages out and records their end",
	},
	{
		"L2",
		[]string{"deadletter", "workflow"},
		[]string{"task", "broker", "resultstore", "serializer", "internal/wire", "@leaves"},
		"dead letters are read in any format and begin a new life in their store and queue; a workflow is shown from its records",
	},
	{
		"L2",
		[]string{"outbox"},
		[]string{"broker", "middleware", "@leaves"},
		"a relay works with every broker and so knows none; where messages wait is its adapter's concern; middleware has the metrics",
	},
	{
		"L3",
		[]string{"outbox/*"},
		[]string{"outbox", "broker", "internal/messagecode", "@connects", "@conns", "@leaves"},
		"an adapter knows its own port and never another adapter",
	},
	{
		"L2",
		[]string{"internal/netconn"},
		[]string{"broker", "@leaves"},
		"connections of several technologies stand on it; their states are those of the port",
	},
	{
		"L0",
		[]string{"sqldb"},
		nil,
		"a handle of a database names no client library",
	},
	{
		"L1",
		[]string{"connect/*"},
		[]string{"task"},
		"they say where servers are; of task they take the Backoff",
	},
	{
		"L3",
		[]string{"internal/sqlconn/postgres", "internal/sqlconn/sqlite"},
		[]string{"internal/sqlconn", "@leaves"},
		"each speaks to one kind of database, so that a program links the ones it needs",
	},
	{
		"L4",
		[]string{"@engines"},
		[]string{"sqldb", "task", "internal/sqlconn", "internal/sqlconn/*"},
		"each opens one kind of database with its client library",
	},
	{
		"test",
		[]string{"internal/sqlconn/sqltest"},
		[]string{"sqldb", "task", "internal/sqlconn", "internal/sqlconn/*", "@engines", "tx", "tx/pgxtx", "tx/sqltx"},
		"it opens the databases of tests, and begins transactions as users do; only tests may import it",
	},
	{
		"L2",
		[]string{"internal/amqpconn", "internal/natsconn", "internal/redisconn", "internal/sqlconn"},
		[]string{"task", "broker", "internal/netconn", "@connects", "@leaves"},
		"a connection knows its client library, the port's errors and task.Backoff",
	},
	{
		"L3",
		[]string{"broker/natsbroker/embedded"},
		[]string{"@leaves"},
		"it is a server inside the process and speaks to nobody; the NATS adapters reach it as clients",
	},
	{
		"L3",
		[]string{"broker/*"},
		[]string{"broker", "task", "internal/amqpdead", "internal/amqpdelay", "internal/lanes", "internal/messagecode", "@connects", "@conns", "@leaves"},
		"an adapter knows its own port and never another adapter; of task it takes the Backoff",
	},
	{
		"L3",
		[]string{"resultstore/*"},
		[]string{"resultstore", "task", "internal/amqpreplies", "internal/wire", "@connects", "@conns", "@leaves"},
		"an adapter knows its own port and never another adapter",
	},
	{
		"L3",
		[]string{"events/liveness"},
		[]string{"events", "task", "internal/report", "@leaves"},
		"it is a listener of any bus and no adapter",
	},
	{
		"L3",
		[]string{"events/*"},
		[]string{"events", "@connects", "@conns", "@leaves"},
		"an adapter knows its own port and never another adapter",
	},
	{
		"L4",
		[]string{"producer"},
		[]string{"task", "@ports", "middleware", "internal/bursts", "internal/wire", "internal/report", "@leaves"},
		"the producer works with every adapter and so knows none, nor the consumer; what keeps tasks with conditions is handed in",
	},
	{
		"L3",
		[]string{"consumer/internal/workflow", "consumer/internal/intx", "consumer/internal/wakes", "consumer/internal/stores", "consumer/internal/saves", "consumer/internal/lives", "consumer/internal/checkpoints", "consumer/internal/bursting"},
		[]string{"task", "@ports", "consumer/internal/workflow", "consumer/internal/stores", "consumer/internal/steps", "consumer/internal/lives", "revoke", "internal/bursts", "internal/wire", "@leaves"},
		"what follows a task is decided by its envelope, and what a revocation wakes by its list; how steps are repeated and recorded is the consumer's",
	},
	{
		"L3",
		[]string{"consumer/internal/rates", "consumer/internal/runs"},
		[]string{"task", "control", "middleware", "internal/guard"},
		"when a task may start by its rate limit is a question of time; what runs and what waits is counted, whatever it is",
	},
	{
		"L3",
		[]string{"consumer/internal/intake"},
		[]string{"task", "broker", "consumer/internal/runs", "internal/guard", "@leaves"},
		"how messages come to workers is a question of queues and goroutines, whatever a task is; of task they take the Backoff and the batches, whose calls guard runs",
	},
	{
		"L3",
		[]string{"consumer/internal/crashes"},
		[]string{"task", "broker", "@leaves"},
		"which task ends its process is judged from the broker's notes of starts; how it ends is the consumer's",
	},
	{
		"L4",
		[]string{"consumer"},
		[]string{"task", "@ports", "consumer/internal/*", "middleware", "control", "limit", "revoke", "settings", "internal/guard", "internal/progress", "internal/wire", "internal/report", "@leaves"},
		"the consumer works with every adapter and so knows none, nor the producer; what keeps tasks that wait for answers is handed in",
	},
	{
		"L5",
		[]string{"health"},
		[]string{"broker", "consumer", "@leaves"},
		"it says over HTTP what a consumer and a broker tell, so that neither links net/http",
	},
	{
		"L5",
		[]string{"open"},
		[]string{"task", "@ports", "middleware", "limit", "revoke", "schedule", "settings", "jobs", "outbox", "history", "producer", "consumer", "control", "inspect", "events/liveness", "@memory", "@leaves", "sqldb"},
		"it wires adapters into producers and consumers, and knows those in memory alone: the others come with their drivers",
	},
	{
		"L6",
		[]string{"open/internal/params"},
		[]string{"open"},
		"it reads parameters of URLs for drivers",
	},
	{
		"L6",
		[]string{"open/internal/natsparts", "open/internal/redisparts"},
		[]string{"open", "open/internal/params", "broker", "resultstore", "events", "limit", "limit/redislimit", "settings", "@adapters", "@connects"},
		"each makes the adapters of one technology for two drivers",
	},
	{
		"L6",
		[]string{"open/all"},
		[]string{"@drivers"},
		"it imports all drivers and does nothing else",
	},
	{
		"L6",
		[]string{"@drivers"},
		[]string{"open", "open/internal/*", "broker", "resultstore", "events", "limit", "limit/sqllimit", "settings", "settings/eventsettings", "sqldb", "jobs", "history/sqlhistory", "@adapters", "@connects", "@engines"},
		"a driver makes the adapters of one technology; TestDrivers says which",
	},
	{
		"L5",
		[]string{"bench/...", "examples/..."},
		[]string{"task", "@ports", "middleware", "when", "schedule", "jobs", "jobs/queue", "jobs/runner", "jobs/bedrock", "jobs/callback", "producer", "consumer", "open", "open/*", "@adapters", "@connects", "@leaves", "tx/sqltx", "internal/testserver", "internal/ledger", "internal/graphs", "examples/demo", "bench/servers", "limit", "revoke", "middleware/gometrics", "middleware/tracing"},
		"programs use the library as its users do; these may start a server of their own, keep a ledger, and run the tests' workflows",
	},
	{
		"test",
		[]string{"internal/testserver", "internal/testserver/natsd"},
		nil,
		"it starts servers and does not know what they are for; natsd is the NATS server as a program of its own",
	},
	{
		"test",
		[]string{"internal/ledger", "internal/faulttest", "internal/browsertest"},
		nil,
		"a ledger is judged without knowing how it came about; the fault tests and those in a browser are _test.go files only",
	},
	{
		"test",
		[]string{"docs", "internal/archtest", "internal/testwait", "internal/raced"},
		nil,
		"two read the texts and sources of the module, one waits for whatever a test says, and one tells how a test was built; only tests may import them",
	},
	{
		"test",
		[]string{"internal/graphs"},
		[]string{"task"},
		"it composes workflows and knows what they come to, whoever runs them",
	},
	{
		"doc",
		[]string{"."},
		nil,
		"the root holds the overview of the documentation and no code",
	},
}
