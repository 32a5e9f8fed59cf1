package archtest

// commandLayers are the rows of the command line. Imports run one way: the program, the commands of
// a subject, the parts that all commands share.
var commandLayers = []rule{
	{
		"L5",
		[]string{"cmd/swarmiji"},
		[]string{
			"task", "broker", "resultstore", "events", "router", "serializer", "control", "revoke", "outbox", "history", "producer", "inspect", "settings",
			"open", "open/all", "@leaves", "internal/wire", "cmd/swarmiji/internal/*",
		},
		"programs use the library as its users do; the wire alone opens what others have sealed, for people to see it",
	},
	{
		"L5",
		[]string{"cmd/swarmiji/internal/cli"},
		[]string{
			"task", "broker", "resultstore", "events", "serializer/compress", "serializer", "control", "revoke", "deadletter", "when", "schedule", "jobs", "history", "inspect",
			"inspect/httpinspect", "open", "internal/wire",
		},
		"commands share the opening of servers, the output and the exit statuses, and know no other command",
	},
	{
		"L5",
		[]string{"cmd/swarmiji/internal/*"},
		[]string{
			"task", "broker", "resultstore", "events", "control", "deadletter", "when", "schedule", "jobs", "jobs/jobstore", "jobs/runner", "jobs/bedrock", "history", "producer", "consumer", "inspect",
			"dashboard", "open", "@leaves", "cmd/swarmiji/internal/cli", "cmd/swarmiji/internal/exporter", "cmd/swarmiji/internal/httpserve",
		},
		"the commands of one subject know the commands of no other",
	},
}
