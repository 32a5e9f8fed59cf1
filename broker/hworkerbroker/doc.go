// Package hworkerbroker is a broker on the four Redis keys that the queue library hworker has published: a program in any
// language that knows them can queue jobs for our consumers and work on what our producers submit. It is also the worked
// example for authors of adapters; docs/adapters.md is a tour of it.
//
// # The layout
//
// A queue NAME, which is what hworker calls the name of a worker, has four keys:
//
//	hworker-jobs-NAME      list of payloads; queued at the left (LPUSH), taken from the right (RPOP)
//	hworker-progress-NAME  hash of payload -> start time, of the jobs that somebody works on
//	hworker-broken-NAME    hash of payload -> time, of those that cannot be read
//	hworker-failed-NAME    list of payloads that failed, the newest first, at most FailedSize
//
// A payload is a JSON array of a random uuid and the job, any JSON value: ["6f1c…",{"to":"a"}]. A time is a JSON string with
// its quotes, "2015-07-25T12:00:00.123456Z". Every way a payload takes is one of the scripts in lua/, each with a description
// of what it reads and writes. Our own messages are jobs that others can read, see payload.go.
//
// # What runs
//
// A job that is a task of serializer.JSONFormat runs as such; producers write these with Wire.Formats (or QueueFormats) set
// to serializer.JSONFormat. For any other job consumer.QueueConfig.Task names the task of that queue, with the job as its
// argument: one name, one type of job. Producers write such jobs, for the workers of any program,
// with QueueFormats set to serializer.BareFormat and Serializers to serializer.JSON. The uuid is
// then the task's id.
//
// What an error of a handler means, a failure or another try, is the consumer's to say (task.Retry,
// middleware.Retry), as hworker's FailOnException was. A job that is to be tried again is queued at
// the back, with its uuid and its bytes. The number of its tries stands beside the uuid: a consumer
// older than that form, on the same queue, begins to count anew. A job that failed goes to the
// failed ones. What is no task, or does not fit the type of the queue, goes to the broken ones, as
// its bytes. Both are dead letters (package deadletter), and the log has the reason. A broken payload
// that is no message is a letter without an id.
//
// A consumer holds one job for each worker, unless its configuration names a prefetch or a
// multiplier. Tasks with a rate limit want a larger one: a task that waits for its rate is held. A
// job that is held and that no worker has received does not expire; its time begins when a worker
// receives it.
//
// With the result store of your choice a task that has an id and a reply address, as those of our producers have, is answered.
//
// # What four keys cannot do
//
// Nothing waits for a time, there are no priorities and no expiry: producers are refused with broker.ErrUnsupported. (A retry
// with a delay is held by its consumer, see Config.Heartbeat.) Every name is a queue, so that broker.ErrNoQueue never comes.
// Nothing counts how often a job was handed out and nothing keeps notes of starts (it is no broker.Witness), so that a job that
// ends its process is tried for ever. A failed job has no reason (it is logged) and only the newest are kept. Repeating a
// Publish of unknown outcome may queue a job twice.
//
// A job is taken back when it is in progress for longer than Timeout, whoever holds it: for hworker a slow worker is a dead
// one. Our deliveries are told (Lost), and what they still write is refused. That holds for two equal payloads, too, which
// some program may push: ours run one after the other.
package hworkerbroker
