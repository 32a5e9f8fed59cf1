// Package hworkerbroker is a broker on the four Redis keys that the queue library hworker has
// published. A program in any language that knows them can queue jobs for our consumers and run the
// tasks that our producers submit. It is also the worked example for authors of adapters;
// docs/adapters.md is a tour of it.
//
// # The layout
//
// A queue NAME, which hworker calls the name of a worker, has four keys:
//
//	hworker-jobs-NAME      list of payloads; added at the left (LPUSH), claimed from the right (RPOP)
//	hworker-progress-NAME  hash of payload -> start time, of the jobs in progress
//	hworker-broken-NAME    hash of payload -> time, of the jobs that cannot be read
//	hworker-failed-NAME    list of payloads that failed, the newest first, at most FailedSize
//
// A payload is a JSON array of a random uuid and the job, any JSON value: ["6f1c…",{"to":"a"}]. A
// time is a JSON string with its quotes, "2015-07-25T12:00:00.123456Z". The scripts in lua/ contain
// every operation on a payload, each with a description of the keys that it reads and writes. Our
// own messages are jobs that others can read, see payload.go.
//
// # Tasks and jobs
//
// A job that is a task of serializer.JSONFormat runs as such. Producers write these with
// Wire.Formats (or QueueFormats) set to serializer.JSONFormat.
//
// For any other job consumer.QueueConfig.Task names the task of that queue, with the job as its
// argument: one name, one type of job. Producers write such jobs, for the workers of any program,
// with QueueFormats set to serializer.BareFormat and Serializers to serializer.JSON. The uuid is
// then the task's id.
//
// The consumer decides whether an error of a handler is a failure or leads to a retry (task.Retry,
// middleware.Retry), as hworker's FailOnException did.
//
//   - A retried job goes to the back of the queue, with its uuid and its bytes. The number of its
//     attempts is stored beside the uuid. An older consumer on the same queue, which does not know
//     that form, counts from 1 again.
//   - A failed job goes to the failed jobs.
//   - A broken job, which is not a task or does not fit the type of the queue, keeps its bytes.
//     It goes to the broken jobs.
//
// Failed and broken jobs are dead letters (package deadletter), and the log has the reasons. A
// broken payload that is not a message is a letter without an id.
//
// A consumer holds one job for each worker, unless its configuration sets a prefetch or a
// multiplier. Tasks with a rate limit need a larger one, because a task that waits for its rate is
// held. A held job that no worker has received does not expire. Its time begins when a worker
// receives it.
//
// A task that has an id and a reply address, as the tasks of our producers have, is answered
// through any result store.
//
// # Limits of four keys
//
// Delays, priorities and expiry are missing: producers are refused with broker.ErrUnsupported. (A
// consumer holds a retry with a delay, see Config.Heartbeat.) Every name is a queue, so
// broker.ErrNoQueue is never returned.
//
// Deliveries are not counted and starts are not noted (it is not a broker.Witness). So a job that
// crashes its process is retried for ever. A failed job has no reason (it is logged) and only the
// newest are stored. Repeating a Publish of unknown outcome may queue a job twice.
//
// A job that is in progress for longer than Timeout is returned to the queue, because hworker
// regards a slow worker as dead. The Lost channel of our delivery is closed, and its later
// settlements are refused. That is also true of two equal payloads, which some program may push:
// our consumers run one after the other.
package hworkerbroker
