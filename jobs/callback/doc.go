// Package callback receives answers from outside for jobs, by HTTP or from a queue of messages.
// Such an answer belongs to a request that a job has sent to a service. The name and the key of the
// job identify it; see [jobs.Service.Complete].
//
// A [Handler] receives answers by HTTP:
//
//	POST /answers/print.order/o-17
//	Content-Type: application/json
//
//	{"pages":12}
//
// A [Listener] receives them from a queue of any broker. Both confirm an answer only after it is
// stored durably.
//
// # Authentication
//
// Names and keys are not secret. A [Signer] makes signed URLs, each for the answer to one job and
// for a limited time. A job sends its URL with the request to the service. If the service signs its
// own messages, Config.Verify checks the signature. A Handler without either must set Config.Open.
//
// # Protection against abuse
//
// Signatures are checked before the body is read, and the store is used last. A body is read into
// memory, up to Config.MaxBody bytes. The [net/http.Server] must limit the time for sending a body
// and the number of clients: set its ReadTimeout or ReadHeaderTimeout and its MaxHeaderBytes. If
// unknown clients can reach the server, limit its connections, too.
//
// Answers that no job awaits are stored for a minute ([jobs.Config].EarlyFor). So a client that may
// answer can fill the store with up to a minute of answers.
package callback
