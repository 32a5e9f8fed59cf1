package bedrock

import (
	"context"
	"errors"
	"strconv"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/internal/page"
)

const (
	// maxNames limits the number of names in a list, maxList its bytes.
	maxNames = 1000
	maxList  = 64 << 10
	// batchBytes is the wanted size of a page of Query or a batch of GetJobs. firstBatch is the limit
	// of the first one.
	batchBytes, firstBatch = 1 << 20, 4
	// mostBatch is the limit of all at a time, since large jobs may follow small ones. It is higher if
	// jobs with as much data as possible then have at most 1/batchShare of MaxMemory.
	mostBatch, batchShare = 16, 4
)

// pages returns a page.Size for the pages of a Query or the batches of a GetJobs. It adapts the
// number of jobs to the bytes of the earlier ones; the first has at most firstBatch jobs.
func (s *Server) pages() page.Size {
	return page.Size{Bytes: batchBytes, First: firstBatch, Most: int(s.memory.mostClaims)}
}

// getJob executes GetJob: it claims one due job that matches and answers with it. A job that was
// given up because of RetryAfter is answered as {}. If no job is due, it returns ErrNoJob. With
// Connection: wait it instead blocks until one is due, and returns the errors of await. Returns a
// statusError for bad arguments, also for numResults, and the errors of the service.
func getJob(ctx context.Context, c *call) error {
	if c.req.get("numResults") != nil {
		return statusError("402 Cannot use numResults with GetJob; try GetJobs")
	}
	sel, err := fields{c.req}.selector()
	if err != nil {
		return err
	}
	got, err := c.get(ctx, jobs.Request{Selector: sel, Max: 1})
	if err != nil {
		return err
	}
	c.grow(page.Handouts(got[:1]))
	*c.out = appendHandout(*c.out, &got[0])
	return nil
}

// getJobs executes GetJobs: it claims up to numResults due jobs in batches, as far as memory and
// MaxAnswer allow, and answers with them. With Connection: wait it waits for the first job, and
// then answers without waiting for more. A job that RetryAfter has given up does not count and is
// not in the answer.
//
// Returns ErrNoJob if the answer contains no job, and any error that comes before the first job. A
// later error is logged, and the jobs so far are answered.
func getJobs(ctx context.Context, c *call) error {
	sel, err := fields{c.req}.selector()
	if err != nil {
		return err
	}
	left, err := fields{c.req}.number("numResults")
	if err != nil {
		return err
	}
	*c.out = append(*c.out, `{"jobs":[`...)
	empty := c.length()
	size := c.c.s.pages()
	for left > 0 && c.length() < c.c.s.c.MaxAnswer {
		r := jobs.Request{Selector: sel, Max: int(min(left, int64(size.Limit())))}
		b, err := c.takeBatch(ctx, r, empty)
		if errors.Is(err, jobs.ErrNoJob) && c.wait && c.length() == empty {
			b, err = c.awaitOne(ctx, r, empty)
		}
		switch {
		case c.length() == empty && err != nil:
			return err
		case err != nil && !errors.Is(err, jobs.ErrNoJob) && ctx.Err() == nil:
			c.logError(err) // the jobs of earlier batches are answered
		}
		if err != nil || b.full {
			break
		}
		size.Read(b.n, b.bytes)
		left -= int64(b.n - b.givenUp)
	}
	if c.length() == empty {
		return jobs.ErrNoJob
	}
	*c.out = append(*c.out, "]}"...)
	return nil
}

// batch describes the n jobs that one call has claimed and appended. givenUp of them are FAILED
// because RetryAfter has given them up; the answer lacks these. full reports that the answer has no
// room for more.
type batch struct {
	n, givenUp, bytes int
	full              bool
}

// takeBatch claims up to r.Max due jobs, fewer if little memory is free, records them in c.taken,
// and appends them to the answer. empty is the length of an answer without jobs. It waits neither
// for jobs nor for memory. Returns ErrNoJob if no job is due, the other errors of the service, and
// the errors of appendBatch.
func (c *call) takeBatch(ctx context.Context, r jobs.Request, empty int) (b batch, err error) {
	limit, leave := c.memory.claim(r.Max)
	defer leave()
	r.Max = limit
	got, err := c.s.Get(ctx, r)
	if err != nil {
		return b, err
	}
	c.addTaken(got)
	return c.appendBatch(ctx, got, empty)
}

// awaitOne blocks until a job is due, claims one job, records it in c.taken, and appends it to the
// answer. empty is the length of an answer without jobs. Returns the errors of await and
// appendBatch.
func (c *call) awaitOne(ctx context.Context, r jobs.Request, empty int) (b batch, err error) {
	r.Max = 1
	got, err := c.await(ctx, r)
	if err != nil {
		return b, err
	}
	return c.appendBatch(ctx, got, empty)
}

// appendBatch appends claimed jobs to the answer, and gives back those for which room or memory is
// lacking. empty is the length of an answer without jobs.
//
// Returns a batch with the number of handled jobs, the bytes of all of got, and the number of jobs
// with GivenUp. full is set if a job was given back. Returns errNoMemory if not even the first job
// of the answer fits; call.answer then gives all back.
func (c *call) appendBatch(ctx context.Context, got []jobs.Handout, empty int) (b batch, err error) {
	n := c.appendJobs(got, empty)
	if n < len(got) && c.length() == empty {
		return b, errNoMemory
	}
	c.giveBackLast(ctx, len(got)-n)
	b = batch{n: n, bytes: page.Handouts(got), full: n < len(got)}
	for i := range got[:n] {
		if got[i].GivenUp {
			b.givenUp++
		}
	}
	return b, nil
}

// appendJobs appends claimed jobs to the answer and returns how many of got were handled; the
// others lack room or memory, and the caller gives them back. empty is the length of an answer
// without jobs. Jobs with GivenUp are counted, but not appended. The first job of an answer may
// exceed MaxAnswer.
func (c *call) appendJobs(got []jobs.Handout, empty int) int {
	for i := range got {
		if got[i].GivenUp { // it is FAILED and was not claimed
			continue
		}
		n, first := len(*c.out), c.length() == empty
		if !first {
			*c.out = append(*c.out, ',')
		}
		c.grow(page.Handouts(got[i : i+1]))
		*c.out = appendHandout(*c.out, &got[i])
		if !first && c.length() > c.c.s.c.MaxAnswer || !c.count() {
			c.cut(n)
			return i
		}
		c.startPart()
	}
	return len(got)
}

// selector returns the selector of the wanted jobs. The field name contains names, separated by
// commas. With fewer than two names the whole text is a pattern. jobPriority is the optional
// priority. mockRequest or getMockedJobs also selects mock jobs.
//
// Returns a statusError for a missing name, a list of more than maxNames names or maxList bytes, or
// an invalid priority. The names themselves are not checked.
func (f fields) selector() (s jobs.Selector, err error) {
	text := f.get("name")
	switch {
	case text == nil:
		return s, missing("name")
	case len(text) > maxList:
		return s, malformed("name")
	}
	switch s.Names = list(text, maxNames); {
	case len(s.Names) < 2:
		s.Pattern, s.Names = string(text), nil
	case len(s.Names) > maxNames:
		return s, malformed("name")
	}
	s.Priority, err = f.priority("jobPriority")
	s.Mock = f.flag("mockRequest") || f.flag("getMockedJobs")
	return s, err
}

// appendHandout appends a claimed job as a JSON object, for its worker. A job that was given up
// becomes {}. Its data get the fields of dataForClient. Keys are sorted without regard to letter
// case.
func appendHandout(out []byte, h *jobs.Handout) []byte {
	out = append(out, '{')
	if h.GivenUp {
		return append(out, '}')
	}
	if h.HasChildren {
		out = appendChildren(key(out, "cancelledChildJobs"), h.CancelledChildren)
	}
	out = appendTime(key(out, "created"), h.Created)
	// the number of claims before this one
	out = appendData(key(out, "data"), dataForClient(&h.Row, h.Handouts-1))
	if h.HasChildren {
		out = appendChildren(key(out, "finishedChildJobs"), h.FinishedChildren)
	}
	out = strconv.AppendInt(key(out, "jobID"), int64(h.ID), 10)
	out = appendTime(key(out, "lastRun"), h.LastRun)
	out = appendValue(key(out, "name"), h.Name)
	out = appendTime(key(out, "nextRun"), h.NextRun)
	if h.Parent != 0 {
		out = appendData(key(out, "parentData"), h.ParentData)
		out = strconv.AppendInt(key(out, "parentJobID"), int64(h.Parent), 10)
	}
	out = strconv.AppendInt(key(out, "priority"), topPriority-int64(h.Priority), 10)
	out = appendValue(key(out, "repeat"), h.Repeat)
	out = appendValue(key(out, "retryAfter"), h.RetryAfter)
	return append(out, '}')
}

// appendChildren appends the children of a job as a JSON array of objects with data and jobID.
func appendChildren(out []byte, children []jobs.Child) []byte {
	out = append(out, '[')
	for i, child := range children {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendData(append(out, `{"data":`...), child.Data)
		out = strconv.AppendInt(append(out, `,"jobID":`...), int64(child.ID), 10)
		out = append(out, '}')
	}
	return append(out, ']')
}
