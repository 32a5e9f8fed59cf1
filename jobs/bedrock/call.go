package bedrock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/internal/page"
)

// call is one command during its execution.
type call struct {
	c   *conn
	s   *jobs.Service
	req *request
	cmd *command
	// timeout is the time limit of the command; setTimeout sets it.
	timeout time.Duration
	// wait reports the header "Connection: wait": GetJob and GetJobs wait for a job.
	wait bool
	// forget reports the header "Connection: forget": the client does not wait for the answer.
	forget bool
	last   bool           // Connection: close
	body                  // of the answer
	taken  []jobs.Handout // claimed jobs for the client, without their data
}

// command is one entry of the table of commands. do executes the command and appends to the body of
// the answer; its error becomes the status.
type command struct {
	name string
	do   func(ctx context.Context, c *call) error
	// takes marks commands that claim jobs, which is useless if the client does not wait for the
	// answer.
	takes bool
	// reserves marks commands that reserve memory themselves, for a list or for each page of the
	// answer.
	reserves bool
	// whole marks commands whose method line must contain only the name.
	whole bool
}

// commands returns a new table of all commands of the protocol.
func commands() []command {
	return []command{
		{name: "CreateJob", do: createJob},
		{name: "GetJob", do: getJob, takes: true},
		{name: "FinishJob", do: finishJob},
		{name: "QueryJob", do: queryJob},
		{name: "UpdateJob", do: updateJob},
		{name: "GetJobs", do: getJobs, takes: true},
		{name: "CreateJobs", do: createJobs, reserves: true},
		{name: "RetryJob", do: retryJob},
		{name: "FailJob", do: failJob},
		{name: "DeleteJob", do: deleteJob},
		{name: "CancelJob", do: cancelJob, whole: true},
		{name: "RequeueJobs", do: requeueJobs, reserves: true},
		{name: "Query", do: query, reserves: true},
	}
}

// find returns the command that the method line of a request names, in any letter case. Returns nil
// if the server does not know it. Text after the name is ignored, except for commands with whole.
func (s *Server) find(req *request) *command {
	verb := req.verb()
	for i := range s.commands {
		if cmd := &s.commands[i]; same(verb, cmd.name) {
			if cmd.whole && len(req.line) != len(verb) {
				return nil
			}
			return cmd
		}
	}
	return nil
}

// buffers contains buffers for answers and their bodies.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// keptBuffer is the size of the largest buffer that is reused. A larger one would also be counted
// for a small answer.
const keptBuffer = freeBuffer

// free returns a buffer to the pool for another answer, unless it is larger than keptBuffer. The
// caller must not use the buffer afterwards.
func free(b *[]byte) {
	if cap(*b) <= keptBuffer {
		buffers.Put(b)
	}
}

// newCall returns the call for a request, with an empty body and the options of its Connection
// header. cmd is nil for an unknown command. The caller must call free of the call, which releases
// its buffer.
func newCall(c *conn, req *request) *call {
	out := buffers.Get().(*[]byte)
	*out = (*out)[:0]
	connection := req.get("Connection")
	return &call{
		c: c, s: c.s.c.Service, req: req, cmd: c.s.find(req), body: body{memory: c.s.memory, out: out},
		wait: same(connection, "wait"), forget: same(connection, "forget"), last: same(connection, "close"),
	}
}

// answer executes the command within its time limit and returns its answer. A command that may
// wait for a job has Config.Timeout in addition. An error becomes the status of the answer, which
// then has no body: 430 for an unknown command, 402 for malformed arguments, 503 without memory.
// If the command fails, it gives back the jobs that it has claimed. It does not recover panics.
func (c *call) answer(ctx context.Context) answer {
	if c.cmd == nil {
		return answer{status: statusUnknown}
	}
	if err := c.setTimeout(); err != nil {
		return answer{status: c.status(ctx, err)}
	}
	within := c.timeout
	if c.wait && c.cmd.takes {
		within += c.c.s.c.Timeout // waiting for a job does not count against the time of the store
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := c.do(ctx)
	if err == nil && !c.count() {
		err = errNoMemory
	}
	if err != nil {
		c.giveBackLast(ctx, len(c.taken)) // no answer contains them
		return answer{status: c.status(ctx, err)}
	}
	return answer{body: &c.body}
}

// do executes the command and returns its error. A request larger than a work unit (workUnit)
// first waits for free units of work (work.enter), and gives them back when the command has
// returned. A command that claims jobs or reserves memory itself needs no units here. A call that
// has units must not wait for more: two such calls would wait for each other. Returns the error of
// ctx if it ends while do waits; the command is then not executed.
func (c *call) do(ctx context.Context) error {
	if !c.cmd.takes && !c.cmd.reserves {
		leave, err := c.memory.singles.enter(ctx, c.req.length)
		if err != nil {
			return err
		}
		defer leave()
	}
	return c.cmd.do(ctx, c)
}

// addTaken records that got were claimed for the client. It keeps copies without their data.
func (c *call) addTaken(got []jobs.Handout) {
	for i := range got {
		c.taken = append(c.taken, page.Bare(got[i]))
	}
}

// giveBackLast undoes the last n of the recorded claims and removes them from c.taken. It blocks
// for at most giveBackTime, even if ctx has ended. Errors are logged.
func (c *call) giveBackLast(ctx context.Context, n int) {
	kept := len(c.taken) - n
	c.c.giveBack(ctx, c.taken[kept:])
	c.taken = c.taken[:kept]
}

// setTimeout sets c.timeout to the header timeout in milliseconds, at most maxTimeout; 0 is a
// limit of 0, not the default. Without the header it is Config.Timeout, or ForgottenTimeout with
// Connection: forget. Returns a statusError for a malformed header.
func (c *call) setTimeout() error {
	c.timeout = c.c.s.c.Timeout
	if c.forget {
		c.timeout = c.c.s.c.ForgottenTimeout
	}
	if text := c.req.get("timeout"); text != nil {
		ms, ok := whole(text)
		if !ok {
			return malformed("timeout")
		}
		c.timeout = time.Duration(min(ms, maxTimeout.Milliseconds())) * time.Millisecond
	}
	return nil
}

// get claims due jobs for the client, records them in c.taken and returns them. If no job is due,
// it blocks until one is due with Connection: wait (see await), and otherwise returns ErrNoJob.
// Returns the other errors of the service.
func (c *call) get(ctx context.Context, r jobs.Request) ([]jobs.Handout, error) {
	got, err := c.s.Get(ctx, r)
	if errors.Is(err, jobs.ErrNoJob) && c.wait {
		return c.await(ctx, r)
	}
	c.addTaken(got)
	return got, err
}

// await blocks until a job is due, claims due jobs, records them in c.taken and returns them.
// Meanwhile a goroutine reads ahead from the client (watch).
//
//   - The time limit passes, the client disconnects or has ended its input, or the server stops: a
//     statusError 303.
//   - Unread requests use a buffer of more than mostWaiting bytes: a statusError 503, without a
//     wait.
//   - The service fails: its error.
func (c *call) await(ctx context.Context, r jobs.Request) (got []jobs.Handout, err error) {
	if len(c.c.rd.buf) > mostWaiting {
		return nil, statusError(fmt.Sprintf("503 Cannot wait while requests take %d bytes of memory, at most %d; send fewer before the answer", len(c.c.rd.buf), mostWaiting))
	}
	err = jobs.ErrNoJob
	if c.c.ended == nil {
		r.Wait = true
		waiting, w := c.c.watch(ctx, c.timeout)
		got, err = c.s.Get(waiting, r)
		w.end()
	}
	if errors.Is(err, jobs.ErrNoJob) {
		err = statusError(statusTimeout)
	}
	c.addTaken(got)
	return got, err
}
