// Package bedrock is a server of the Bedrock::Jobs line protocol in front of a [jobs.Service]: jobs for programs in any language, and for
// people with nc.
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
// A request is a line with a command, lines "name: value", and a blank line; lines end with CR, LF or both. A line that begins with a blank
// continues the one before. In values a backslash escapes: \b \f \n \r \t, \u with four hex digits, else the next character. Of headers with one name, in
// whatever case, the last counts, and an empty one counts for nothing. A body has as many bytes as Content-Length says, and none
// without it, or comes in chunks. Requests may be sent one behind the other; they are answered in order.
//
// "Connection: wait" has GetJob and GetJobs wait for a job, for "timeout" milliseconds; "close" closes the connection after the answer; "forget"
// is answered with 202 at once, and what becomes of the command nobody learns.
//
// # Commands
//
// CreateJob, CreateJobs, GetJob, GetJobs, QueryJob, UpdateJob, FinishJob, RetryJob, FailJob, DeleteJob, CancelJob and RequeueJobs, as docs/jobs.md
// tells, and Query, which understands "select * from jobs", "... where jobID=N" and "... where name='x'" and shows up to 10,000 jobs. What is
// answered with 200 is on disk.
//
// # Clients that go away
//
// A job is given back when its answer could not be written, when its client has gone while it waited, or breaks the connection soon after
// the answer without having sent anything more. A client that has only sent all (nc -N) is answered; it waits for nothing.
//
// On Linux a job is also given back when the client's system does not acknowledge its answer within
// [Config].WriteTimeout. Its machine or its network may be gone. The connection is then reset. An
// acknowledgement proves that the answer has reached the client's system, or a proxy before it. It
// does not prove that the program has read it. If only the acknowledgement was lost, the job runs
// twice. On other systems such a job stays RUNNING, unless the connection breaks within 10 s of its
// answer. RetryAfter is for this.
//
// # What nobody can do to others
//
// A client that reaches the address may do everything. The default address is therefore the
// loopback one. [Config].Allow limits the addresses of clients, and [Config].TLS can demand
// certificates of them.
//
// A request that a browser has sent for a web page is refused, and ends the connection. Each phase
// of a request and of an answer has its time, and each size its limit. An idle connection costs
// about 7 KB. Requests and answers of up to about 4 KiB ask for no memory.
//
// Larger ones share [Config].MaxMemory. While some clients hold all of it, the server refuses the
// larger requests of others with 503. Two answers to Query may take all the memory for answers.
// Large requests, and pages of Query, are worked on in the order of their arrival.
package bedrock
