// Package bedrock is a server of the Bedrock::Jobs line protocol for a [jobs.Service]. It makes
// jobs available to programs in any language, and to users of nc.
//
//	$ nc localhost 8888
//	CreateJob
//	name: foo
//	data: {"value":1}
//	repeat: finished, +1 minute
//
//	200 OK
//	Content-Length: 11
//
//	{"jobID":1}
//
// # Requests and answers
//
// A request consists of a line with a command, lines "name: value", and a blank line. Lines end
// with CR, LF or both. A line that begins with a blank continues the previous line. In values a
// backslash is an escape: \b \f \n \r \t, \u with four hex digits, else the next character.
//
// Names of headers match in any letter case. The last header with a name counts; an empty value
// counts as missing. A body has Content-Length bytes, or comes in chunks; without either it is
// empty. A client may send several requests without waiting; they are answered in order.
//
// "Connection: wait" makes GetJob and GetJobs wait for a job, up to "timeout" milliseconds. "close"
// closes the connection after the answer. "forget" is answered with 202 at once, and the result of
// the command is not reported.
//
// # Commands
//
// The server knows CreateJob, CreateJobs, GetJob, GetJobs, QueryJob, UpdateJob, FinishJob,
// RetryJob, FailJob, DeleteJob, CancelJob and RequeueJobs; see docs/jobs.md. Query accepts "select
// * from jobs", "... where jobID=N" and "... where name='x'", and returns up to 10,000 jobs. After
// an answer 200 the change is stored durably.
//
// # Clients that disconnect
//
// A claimed job is given back if its answer could not be written or if its client disconnected
// while it waited. It is also given back if the client breaks the connection soon after the answer,
// without having sent anything. A client that only closes its sending side (nc -N) is answered, but
// does not wait for jobs.
//
// On Linux a job is also given back if the client's system is silent for [Config].WriteTimeout and
// has not acknowledged the answer. Its machine or its network may have failed. A client whose
// system responds, but which reads slowly or not at all, has 40 times as long. The connection is
// then reset.
//
// An acknowledgement proves that the answer has reached the client's system, or a proxy before it.
// It does not prove that the program has read it. If only the acknowledgement was lost, the job
// runs twice. On other systems such a job stays RUNNING, unless the connection breaks within 10 s
// of its answer. RetryAfter covers this case.
//
// # Security and limits
//
// A client that reaches the address may execute all commands. The default address is therefore the
// loopback one. [Config].Allow limits the addresses of clients, and [Config].TLS can require
// certificates.
//
// A request that a browser has sent for a web page is refused, and ends the connection. Each phase
// of a request and of an answer has a time limit and a size limit. An idle connection costs about 7
// KB. Requests and answers of up to about 4 KiB need no additional memory.
//
// Larger ones share [Config].MaxMemory. While some clients use all of it, the server refuses larger
// requests of other clients with 503. Two answers to Query may use all the memory for answers.
// Large requests and lists are executed in the order of their arrival. Neither waits for the other,
// and GetJobs waits for none.
package bedrock
