package archtest

// inspecting holds the rows of package inspect and its suite.
var inspecting = []rule{
	{
		"L4",
		[]string{"inspect"},
		[]string{
			"task", "broker", "resultstore", "serializer", "events", "events/liveness", "router", "control", "deadletter", "revoke", "limit",
			"when", "schedule", "jobs", "jobs/jobstore", "workflow", "history", "settings", "inspect/internal/*", "internal/wire", "@leaves",
		},
		"what runs is shown and changed through the ports and the packages of their operators, and no adapter is known; the wire decodes messages for people",
	},
	{
		"L4",
		[]string{"inspect/internal/original"},
		[]string{"task", "broker", "serializer", "internal/wire"},
		"a copy is made of a message alone, whoever has found it",
	},
	{
		"L4",
		[]string{"inspect/internal/limits"},
		[]string{"limit", "settings", "task"},
		"limits are described by their numbers and their holders",
	},
	{
		"L4",
		[]string{"inspect/internal/phrase"},
		nil,
		"sentences are made of texts and times",
	},
	{
		"L4",
		[]string{"inspect/internal/waits"},
		[]string{"inspect/internal/phrase", "task", "broker", "resultstore", "settings", "internal/bursts"},
		"a message waits for its time, for its burst, or for its fairness key",
	},
	{
		"L4",
		[]string{"inspect/internal/stats"},
		[]string{"broker"},
		"counters are those of the broker",
	},
	{
		"L4",
		[]string{"inspect/internal/claims"},
		[]string{"resultstore", "internal/wake"},
		"one process claims keys as a result store does, and makes a copy for a key once",
	},
	{
		"L4",
		[]string{"inspect/internal/patience"},
		[]string{"events", "events/liveness"},
		"how long a question waits follows from the heartbeats and from who answered",
	},
	{
		"L4",
		[]string{"inspect/internal/asides"},
		[]string{"settings"},
		"the stored settings name the queues of paused tasks",
	},
	{
		"L4",
		[]string{"inspect/internal/recent"},
		nil,
		"a list keeps values of any type",
	},
	{
		"suite",
		[]string{"inspect/inspecttest"},
		[]string{
			"task", "broker", "resultstore", "events", "router", "control", "deadletter", "limit", "middleware", "schedule", "schedule/memschedule", "jobs", "jobs/deferrals",
			"jobs/memjobs", "history", "history/memhistory", "settings", "settings/memsettings", "producer", "consumer", "open", "inspect", "internal/testwait", "@leaves",
		},
		"a running system is inspected, over whatever swarm and implementation it is given",
	},
	{
		"L5",
		[]string{"inspect/httpinspect"},
		[]string{"inspect", "task"},
		"it carries the interface of inspect over HTTP and knows no part behind it",
	},
	{
		"L5",
		[]string{"dashboard", "dashboard/internal/*"},
		[]string{"inspect", "inspect/httpinspect", "dashboard/internal/pages", "task", "broker", "internal/cmdline"},
		"a dashboard is a client of inspect.API alone, so that it also shows the system of another process",
	},
}
