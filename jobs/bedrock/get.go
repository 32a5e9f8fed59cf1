package bedrock

import (
	"context"
	"errors"
	"strconv"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/internal/page"
)

const (
	// maxNames is how many names a list may have, and maxList its bytes.
	maxNames = 1000
	maxList  = 64 << 10
	// batch is how many jobs are taken at once. In between it is seen how large the answer has become.
	batch = 64
	// firstBatch is how many are taken before their sizes are known. Many clients ask for ten.
	// batchBytes is how many bytes later batches should have.
	firstBatch, batchBytes = 10, 1 << 20
)

// getJob hands out one job.
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

// getJobs hands out as many jobs as there are and as there is memory for, up to a number.
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
	size := page.Size{Bytes: batchBytes, First: firstBatch, Most: batch}
	for left > 0 && c.length() < c.c.s.c.MaxAnswer {
		got, err := c.take(ctx, jobs.Request{Selector: sel, Max: int(min(left, int64(size.Limit())))}, c.length() == empty)
		if err != nil {
			return err
		}
		if len(got) == 0 {
			break
		}
		size.Read(len(got), page.Handouts(got))
		left -= int64(len(got))
		if n := c.appendJobs(got, empty); n < len(got) {
			if c.length() == empty {
				return errNoMemory
			}
			c.leave(ctx, len(got)-n)
			break
		}
	}
	if c.length() == empty {
		return jobs.ErrNoJob
	}
	*c.out = append(*c.out, "]}"...)
	return nil
}

// appendJobs writes jobs into a list that begins at empty. It returns for how many of got there
// was room and memory.
func (c *call) appendJobs(got []jobs.Handout, empty int) int {
	for i := range got {
		if got[i].GivenUp { // it runs no more
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
		c.turn()
	}
	return len(got)
}

// take takes the next jobs. Only the first time it waits, and it matters that there is none.
func (c *call) take(ctx context.Context, r jobs.Request, first bool) ([]jobs.Handout, error) {
	if first {
		return c.get(ctx, r)
	}
	got, err := c.s.Get(ctx, r)
	c.took(got)
	if err != nil && !errors.Is(err, jobs.ErrNoJob) {
		c.complain(err) // those that were taken before are answered
	}
	return got, nil
}

// selector reads which jobs are asked for: of one pattern, or of several names.
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

// appendHandout writes a job for who is to run it. Keys are sorted, whatever their case.
func appendHandout(out []byte, h *jobs.Handout) []byte {
	out = append(out, '{')
	if h.GivenUp {
		return append(out, '}')
	}
	if h.HasChildren {
		out = appendChildren(key(out, "cancelledChildJobs"), h.CancelledChildren)
	}
	out = appendTime(key(out, "created"), h.Created)
	out = appendData(key(out, "data"), shown(&h.Row, h.Handouts-1)) // as before this hand-out
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
