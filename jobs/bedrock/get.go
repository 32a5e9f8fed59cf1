package bedrock

import (
	"context"
	"errors"
	"strconv"

	"github.com/swarmiji/swarmiji/jobs"
)

const (
	// maxNames is how many names a list may have, and maxList its bytes.
	maxNames = 1000
	maxList  = 64 << 10
	// batch is how many jobs are taken at once. In between it is seen how large the answer has become.
	batch = 64
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
	*c.out = appendHandout(*c.out, &got[0])
	return nil
}

// getJobs hands out as many jobs as there are, up to a number.
func getJobs(ctx context.Context, c *call) error {
	sel, err := fields{c.req}.selector()
	if err != nil {
		return err
	}
	left, err := fields{c.req}.number("numResults")
	if err != nil {
		return err
	}
	out := append(*c.out, `{"jobs":[`...)
	empty := len(out)
	for left > 0 && len(out) < c.c.s.c.MaxAnswer {
		got, err := c.take(ctx, jobs.Request{Selector: sel, Max: int(min(left, batch))}, len(out) == empty)
		if err != nil {
			return err
		}
		if len(got) == 0 {
			break
		}
		left -= int64(len(got))
		for i := range got {
			if got[i].GivenUp { // it runs no more
				continue
			}
			if len(out) > empty {
				out = append(out, ',')
			}
			out = appendHandout(out, &got[i])
		}
	}
	if len(out) == empty {
		return jobs.ErrNoJob
	}
	*c.out = append(out, "]}"...)
	return nil
}

// take takes the next jobs. Only the first time it waits, and it matters that there is none.
func (c *call) take(ctx context.Context, r jobs.Request, first bool) ([]jobs.Handout, error) {
	if first {
		return c.get(ctx, r)
	}
	got, err := c.s.Get(ctx, r)
	c.taken = append(c.taken, got...)
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
	switch s.Names = list(text); {
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
