package captable

// ports are the tables of the page, in their order.
var ports = []struct{ name, title, text string }{
	{
		"broker", "Brokers",
		"What a broker may promise beyond confirmed publishing, leases and settlement, which all of them pass.",
	},
	{
		"results", "Result stores",
		"A reply queue hands a record to the process that asked, once; a store keeps it for any process, for a time.",
	},
	{
		"events", "Event buses",
		"All of them reach every listener at most once; some keep events for those who come late.",
	},
	{
		"schedules", "Stores of schedules",
		"All of them hand a due tick to one process, and to another if that one dies.",
	},
	{
		"jobs", "Stores of jobs",
		"All of them keep jobs in transactions that have the effect of one after the other, and give each job that is due to one of those who ask.",
	},
}

// order is the order of the columns; adapters that are not here come behind, by their names.
var order = []string{"memory", "amqp", "redis", "nats", "hworker"}

// words say what a promise means, by port and name.
var words = map[string]string{
	"broker.Durable":     "a confirmed message survives a restart of the server",
	"broker.ExactCount":  "it counts how often a message was handed out",
	"broker.Dedupe":      "a repeated submission of what is still queued is one message",
	"broker.Order":       "first in, first out, for one publisher and priority",
	"broker.Priorities":  "priorities",
	"broker.Delays":      "delays wait in the broker",
	"broker.Batch":       "many messages in one call",
	"broker.Retry":       "a retry replaces the message in one step",
	"broker.SyncAck":     "an acknowledgement can be waited for",
	"broker.Resize":      "the prefetch can be changed while consuming",
	"broker.Inspect":     "counts of queued, delayed and held messages; purge",
	"broker.DeadLetters": "dead letters can be put, scanned, removed and purged",
	"broker.Find":        "a queued task can be found, changed and deleted by its id",
	"broker.Watch":       "it tells when the connection is lost, blocked and back",
	"broker.Witness":     "it keeps notes of starts: only the end of a process counts as a crash",
	"broker.OpenQueues":  "limit: every name is a queue, so that a wrong one is not noticed",
	"broker.Uncounted":   "limit: it does not know what was handed out before",
	"broker.Reasonless":  "limit: a dead letter has neither reason, stack, attempts nor time",
	"broker.Outlives":    "what a consumer holds outlives its connection, until the lease ends",
	"broker.Forgets":     "a killed server may hand out again what was acknowledged after its restart",
	"broker.Leases":      "a consumer that gives no sign of life loses its messages after some time",
	"broker.MaxBody":     "a larger body is refused at Submit (the size: as the suite configures it)",

	"results.RepliesOnly": "a reply queue: no record can be read back",
	"results.Notify":      "a waiting process is told at once",
	"results.Gather":      "knows when a group is done",
	"results.Claim":       "gives a key to one holder for a time (unique tasks)",
	"results.Durable":     "a saved record survives a restart of the server",
	"results.TTL":         "a record may have a time to live of its own (the time: the shortest that is tried)",
	"results.MaxResult":   "a larger result is refused (the size: as the suite configures it)",

	"schedules.List":    "entries can be shown",
	"schedules.Pause":   "entries can be paused",
	"schedules.Watch":   "a sleeping listener is told of what comes earlier",
	"schedules.Mend":    "entries that another program lost are found again",
	"schedules.Durable": "what was confirmed survives a restart of the server",

	"jobs.Parallel": "transactions that are about different jobs do not wait for each other",
	"jobs.Take":     "the common job is handed out in one step",
	"jobs.Drop":     "the common job is ended in one step",
	"jobs.Weigh":    "what runs in a queue is added up without a look at it",
	"jobs.Durable":  "what was confirmed survives a restart of the server",

	"events.Retain": "kept events can be replayed to late listeners",
}

// limits are what has to be said of a promise that an adapter makes, by port, adapter and name.
var limits = map[string]string{
	"broker.memory.Durable":  "yes, within its process",
	"results.amqp.Durable":   "yes, until it was received",
	"broker.hworker.Durable": "yes, as far as Redis keeps it",
	"broker.redis.Durable":   "yes, as far as Redis keeps it",
	"results.redis.Durable":  "yes, as far as Redis keeps it",

	"schedules.redis.Durable": "yes, as far as Redis keeps it",
}

// reasons say in a reader's words why cases were left out, where the suite speaks to authors of adapters.
var reasons = map[string]string{
	"the harness has no Sever":                                          "there is no connection that could be lost",
	"the harness has no Restart":                                        "there is no server that could be restarted",
	"the harness has no Down":                                           "there is no server that could be away",
	"the harness names no Leases":                                       "there are no leases: a message comes back when its consumer's connection is lost",
	"the adapter does not promise a MaxBody":                            "no limit of a body's size",
	"the adapter does not promise Mend, or the harness has no Stray":    "no other program writes to it",
	"the adapter does not promise Durable":                              "all ends with its process",
	"the adapter promises no MaxResult":                                 "no limit of a result's size",
	"the adapter promises no TTL":                                       "records have no time to live of their own",
	"the adapter promises Delays":                                       "only an adapter without delays is asked for this",
	"the adapter promises Outlives: a cut connection loses no delivery": "a cut connection loses no delivery",
	"the adapter promises OpenQueues: every name is a queue":            "every name is a queue",
	"the adapter does not promise Priorities":                           "no priorities",
	"the adapter does not promise Delays":                               "no delays",
	"the adapter does not promise Dedupe":                               "a repeated submission is another message",
	"the adapter does not promise Retry":                                "a retry is published, confirmed and only then settled",
	"the adapter does not promise Find":                                 "tasks cannot be found by their id",
	"the adapter does not promise Witness":                              "it keeps no notes of starts",
	"the adapter does not promise Outlives":                             "a delivery ends with its connection",
	"the adapter is no reply queue":                                     "only a reply queue is asked for this",
	"the adapter keeps no records":                                      "a reply queue keeps no records",
	"the adapter does not promise Parallel":                             "there is one transaction at a time",
	"the adapter does not promise ExactCount":                           "deliveries are not counted exactly",
}
