package captable

// ports are the tables of the page, in their order.
var ports = []struct{ name, title, text string }{
	{
		"broker", "Brokers",
		"All brokers pass the cases of confirmed publishing, leases and settlement. Further promises:",
	},
	{
		"results", "Result stores",
		"A reply queue delivers a record once, to the process that asked. A store keeps it for all.",
	},
	{
		"events", "Event buses",
		"All of them reach every listener at most once. Some keep events for late listeners.",
	},
	{
		"schedules", "Stores of schedules",
		"All of them give a due tick to one process, and to another if that process dies.",
	},
	{
		"settings", "Stores of settings",
		"All of them keep values without expiry, and notify consumers of each change.",
	},
	{
		"jobs", "Stores of jobs",
		"All of them keep jobs in serializable transactions, and give each due job to one caller.",
	},
}

// order is the order of the columns. Other adapters follow, by their names.
var order = []string{"memory", "amqp", "redis", "nats", "hworker", "celery"}

// words describe promises, by port and name.
var words = map[string]string{
	"broker.Durable":      "a confirmed message survives a restart of the server",
	"broker.ExactCount":   "it counts the deliveries of a message",
	"broker.Dedupe":       "a repeated submission of a queued message is one message",
	"broker.Order":        "first in, first out, for one publisher and priority",
	"broker.Priorities":   "priorities",
	"broker.Fair":         "turns over fairness keys: exact",
	"broker.Lanes":        "turns over fairness keys: by lanes, approximate",
	"broker.Bounds":       "limits of a fairness key and of its queue, where tasks are taken",
	"broker.Floor":        "a share for less urgent priority levels",
	"broker.Delays":       "delays wait in the broker",
	"broker.Batch":        "many messages in one call",
	"broker.Retry":        "a retry replaces the message in one step",
	"broker.SyncAck":      "a caller can wait for an acknowledgement",
	"broker.Resize":       "the prefetch can be changed while consuming",
	"broker.Inspect":      "counts of queued, delayed and held messages; purge",
	"broker.Oldest":       "the age of the oldest waiting message",
	"broker.Queues":       "it knows which queues exist",
	"broker.List":         "waiting, delayed, held and dead messages can be shown by page",
	"broker.ListKeys":     "the fairness keys of a queue can be shown by page",
	"broker.DeadByID":     "a dead letter is found by its id without a scan",
	"broker.DeadLetters":  "dead letters can be put, scanned, removed and purged",
	"broker.Find":         "a queued task can be found, changed and deleted by its id",
	"broker.Watch":        "it tells when the connection is lost, blocked and back",
	"broker.Witness":      "it keeps notes of starts: only the end of a process counts as a crash",
	"broker.Transactions": "tasks can be submitted in a transaction of the caller",
	"broker.OpenQueues":   "limit: every name is a queue; a wrong name is not an error",
	"broker.Uncounted":    "limit: it does not know earlier deliveries",
	"broker.Reasonless":   "limit: a dead letter has neither reason, stack, attempts nor time",
	"broker.Outlives":     "messages of a consumer outlive its connection, until the lease ends",
	"broker.Forgets":      "a killed server may deliver acknowledged messages again after its restart",
	"broker.Leases":       "a silent consumer loses its messages after some time",
	"broker.MaxBody":      "a larger body is refused at Submit (size: configured by the suite)",

	"results.RepliesOnly":  "a reply queue: no record can be read back",
	"results.Notify":       "a waiting process is notified at once",
	"results.Gather":       "knows when a group is done",
	"results.Batches":      "saves many results in one call",
	"results.Checkpoints":  "keeps the checkpoints of tasks (task.Checkpoint)",
	"results.Claim":        "gives a key to one holder for a time (unique tasks)",
	"results.Swap":         "keeps the records of bursts (task.WithDebounce, task.WithLatest)",
	"results.Transactions": "results can be saved in a transaction of the caller",
	"results.Durable":      "a saved record survives a restart of the server",
	"results.TTL":          "a record may have its own time to live (time: the shortest tested)",
	"results.MaxResult":    "a larger result is refused (size: configured by the suite)",

	"schedules.List":         "entries can be shown",
	"schedules.Pause":        "entries can be paused",
	"schedules.Watch":        "a sleeping listener is notified of an earlier entry",
	"schedules.Repair":       "entries that another program lost are found again",
	"schedules.Change":       "entries can be changed by name, and synchronized by group and revision",
	"schedules.Transactions": "entries can be added in a transaction of the caller",
	"schedules.Durable":      "confirmed entries survive a restart of the server",

	"settings.Exact":   "of several changes at once one succeeds, and each call sees all earlier changes",
	"settings.Durable": "values survive a restart of the server",

	"jobs.Parallel": "transactions about different jobs do not wait for each other",
	"jobs.Take":     "a job without special fields is claimed in one step",
	"jobs.Drop":     "a job without special fields is ended in one step",
	"jobs.Weigh":    "the running weight of a queue is a stored sum",
	"jobs.Durable":  "confirmed jobs survive a restart of the server",

	"events.Retain": "kept events can be replayed to late listeners",
}

// limits qualify the promise of an adapter, by port, adapter and name.
var limits = map[string]string{
	"broker.memory.Durable":  "yes, within its process",
	"results.amqp.Durable":   "yes, until it was received",
	"broker.hworker.Durable": "yes, as far as Redis keeps it",
	"broker.redis.Durable":   "yes, as far as Redis keeps it",
	"results.redis.Durable":  "yes, as far as Redis keeps it",

	"schedules.redis.Durable": "yes, as far as Redis keeps it",
	"settings.redis.Durable":  "yes, as far as Redis keeps it",
}

// areas are the names of areas on the page, where they differ from the suite's.
var areas = map[string]string{"line": "queue", "drop": "end", "take": "claim"}

// reasons translate the suites' reasons for skipped cases, which are for authors of adapters.
var reasons = map[string]string{
	"the adapter does not promise Exact":                                "two changes at once may both succeed, and the last writer wins",
	"the harness has no Sever":                                          "it has no connection to lose",
	"the harness has no Restart":                                        "it has no server to restart",
	"the harness has no Down":                                           "it has no server that could be unavailable",
	"the harness names no Leases":                                       "no leases: a message comes back when its consumer's connection is lost",
	"the adapter does not promise a MaxBody":                            "no limit of a body's size",
	"the adapter does not promise Repair, or the harness has no Stray":  "no other program writes to it",
	"the adapter does not promise Durable":                              "its content ends with the process",
	"the adapter promises no MaxResult":                                 "no limit of a result's size",
	"the adapter promises no TTL":                                       "records have no time to live of their own",
	"the adapter promises Delays":                                       "the case is for adapters without delays",
	"the adapter promises Outlives: a cut connection loses no delivery": "a cut connection loses no delivery",
	"the adapter promises OpenQueues: every name is a queue":            "every name is a queue",
	"the adapter does not promise Priorities":                           "no priorities",
	"the adapter does not promise Fair":                                 "no exact turns over keys",
	"the adapter promises neither Fair nor Lanes":                       "a fair queue is refused",
	"the adapter promises Fair or Lanes":                                "the case is for adapters without turns",
	"the adapter does not promise Bounds":                               "bounds are refused",
	"the adapter promises Bounds: it does not refuse them":              "the case is for adapters without bounds",
	"the adapter does not promise Floor":                                "the most urgent task is always next",
	"the adapter does not promise ListKeys":                             "fairness keys cannot be shown",
	"the adapter does not promise Delays":                               "no delays",
	"the adapter does not promise Dedupe":                               "a repeated submission is another message",
	"the adapter does not promise Retry":                                "a retry is published, confirmed and only then settled",
	"the adapter does not promise Find":                                 "tasks cannot be found by their id",
	"the adapter does not promise Oldest":                               "the age of waiting messages is not known",
	"the adapter does not promise Queues":                               "its queues cannot be listed",
	"the adapter does not promise List":                                 "messages cannot be shown by page, except dead letters",
	"the adapter does not promise DeadByID":                             "a dead letter is found by a scan",
	"the adapter does not promise Witness":                              "it keeps no notes of starts",
	"the adapter does not promise Transactions":                         "it is not in a database of the caller",
	"the adapter does not promise Outlives":                             "a delivery ends with its connection",
	"the adapter is no reply queue":                                     "the case is for reply queues",
	"the adapter keeps no records":                                      "a reply queue keeps no records",
	"the adapter does not promise Parallel":                             "it runs one transaction at a time",
	"the adapter does not promise ExactCount":                           "deliveries are not counted exactly",
	"the adapter does not promise Gather":                               "it does not count the members of groups",
	"the adapter does not promise Batches":                              "it saves each result in a call of its own",
	"the adapter does not promise Claim":                                "it keeps no keys of unique tasks",
	"the adapter does not promise Swap":                                 "it keeps no records of bursts",
	"the adapter does not promise Watch":                                "listeners ask at intervals instead",
	"the adapter promises Reasonless: a letter has no time":             "a dead letter has no time",
}
