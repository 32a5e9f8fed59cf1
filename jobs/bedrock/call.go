package bedrock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/internal/page"
)

// call is one command while it is run.
type call struct {
	c       *conn
	s       *jobs.Service
	req     *request
	cmd     *command
	timeout time.Duration
	wait    bool // Connection: wait
	forget  bool
	last    bool           // Connection: close
	body                   // of the answer
	taken   []jobs.Handout // what has been handed out to the client, without its data
}

// command is one entry of the table.
type command struct {
	name string
	do   func(ctx context.Context, c *call) error
	// takes: it hands out jobs, which is of no use to a client that does not wait for the answer.
	takes bool
	// pages: it waits for units of work by itself, for each page of its answer.
	pages bool
	// whole: the method line has nothing behind the name.
	whole bool
}

// commands is the table of what a server knows.
func commands() []command {
	return []command{
		{name: "CreateJob", do: createJob},
		{name: "GetJob", do: getJob, takes: true},
		{name: "FinishJob", do: finishJob},
		{name: "QueryJob", do: queryJob},
		{name: "UpdateJob", do: updateJob},
		{name: "GetJobs", do: getJobs, takes: true},
		{name: "CreateJobs", do: createJobs},
		{name: "RetryJob", do: retryJob},
		{name: "FailJob", do: failJob},
		{name: "DeleteJob", do: deleteJob},
		{name: "CancelJob", do: cancelJob, whole: true},
		{name: "RequeueJobs", do: requeueJobs},
		{name: "Query", do: query, pages: true},
	}
}

// find returns the command that a request is for, or nil.
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

// buffers are for answers and their bodies.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// keptBuffer is the largest buffer that is used again. A larger one would be counted for a small
// answer, too.
const keptBuffer = freeBuffer

// free gives a buffer back, unless it has become large.
func free(b *[]byte) {
	if cap(*b) <= keptBuffer {
		buffers.Put(b)
	}
}

// newCall reads what all commands have in common.
func newCall(c *conn, req *request) *call {
	out := buffers.Get().(*[]byte)
	*out = (*out)[:0]
	connection := req.get("Connection")
	return &call{
		c: c, s: c.s.c.Service, req: req, cmd: c.s.find(req), body: body{memory: c.s.memory, out: out},
		wait: same(connection, "wait"), forget: same(connection, "forget"), last: same(connection, "close"),
	}
}

// answer runs the command.
func (c *call) answer(ctx context.Context) answer {
	if c.cmd == nil {
		return answer{status: statusUnknown}
	}
	if err := c.setTimeout(); err != nil {
		return answer{status: c.status(ctx, err)}
	}
	within := c.timeout
	if c.wait && c.cmd.takes {
		within += c.c.s.c.Timeout // the wait has its own time, which the store's does not shorten
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := c.do(ctx)
	if err == nil && !c.count() {
		err = errNoMemory
	}
	if err != nil {
		c.leave(ctx, len(c.taken)) // they are in no answer
		return answer{status: c.status(ctx, err)}
	}
	return answer{body: &c.body}
}

// do runs the command. A large request first waits for units of work, unless the command hands out
// jobs or waits for units itself. A call that holds units must not wait for more: two such calls
// would wait for each other.
func (c *call) do(ctx context.Context) error {
	if c.req.length > largeRequest && !c.cmd.takes && !c.cmd.pages {
		leave, err := c.memory.enter(ctx, c.req.length)
		if err != nil {
			return err
		}
		defer leave()
	}
	return c.cmd.do(ctx, c)
}

// took notes jobs that were handed out to the client.
func (c *call) took(got []jobs.Handout) {
	for i := range got {
		c.taken = append(c.taken, page.Bare(got[i]))
	}
}

// leave gives back the last n jobs that were handed out.
func (c *call) leave(ctx context.Context, n int) {
	kept := len(c.taken) - n
	c.c.giveBack(ctx, c.taken[kept:])
	c.taken = c.taken[:kept]
}

// setTimeout reads how long the command may take, in milliseconds.
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

// get takes jobs for the client. If none is due, and the client wants to wait, that goes on until there is one, the time is over, the
// client goes away or sends no more, or the server stops.
func (c *call) get(ctx context.Context, r jobs.Request) ([]jobs.Handout, error) {
	got, err := c.s.Get(ctx, r)
	if errors.Is(err, jobs.ErrNoJob) && c.wait {
		switch {
		case len(c.c.rd.buf) > mostWaiting:
			return nil, errNoMemory
		case c.c.ended == nil:
			r.Wait = true
			waiting, w := c.c.watch(ctx, c.timeout)
			got, err = c.s.Get(waiting, r)
			w.end()
		}
		if errors.Is(err, jobs.ErrNoJob) {
			err = statusError(statusTimeout)
		}
	}
	c.took(got)
	return got, err
}
