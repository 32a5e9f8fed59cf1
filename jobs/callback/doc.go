// Package callback brings answers from outside to jobs: what a service answers, by HTTP or by message, to a request that a job sent it some time ago. The job
// awaits it under its name and a key; see [jobs.Service.Complete].
//
// A [Handler] takes answers by HTTP:
//
//	POST /answers/print.order/o-17
//	Content-Type: application/json
//
//	{"pages":12}
//
// A [Listener] takes them from a queue of any broker. Both answer, or acknowledge, when the answer is on disk, and not before.
//
// # Who may answer
//
// Names and keys are no secrets. A [Signer] makes URLs that nobody can make who has not its secret, each for the answer to one job and for a time; the service is given such a
// URL with its request. Where it signs what it sends, Config.Verify checks that. A Handler with neither has to be told so, by Config.Open.
//
// # What nobody can do to others
//
// Signatures are checked before the body is read, and the store is asked last. Bodies are read into memory, up to Config.MaxBody each. How long a client may take to send one,
// and how many may try at a time, is up to the [net/http.Server]: set its ReadTimeout or ReadHeaderTimeout, its MaxHeaderBytes, and where many strangers reach it the number of its
// connections. Answers that no job awaits are kept for a minute ([jobs.Config].EarlyFor), so that a stranger who may answer can fill the store for as long.
package callback
