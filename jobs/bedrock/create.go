package bedrock

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/task"
)

// createJob executes CreateJob: it creates one job and answers with its id. Returns a statusError
// for bad arguments, or the error of the service.
func createJob(ctx context.Context, c *call) error {
	spec, err := fields{c.req}.spec(false)
	if err != nil {
		return err
	}
	created, err := c.s.Create(ctx, spec)
	if err != nil {
		return err
	}
	out := strconv.AppendInt(append(*c.out, `{"jobID":`...), int64(created.ID), 10)
	*c.out = append(out, '}')
	return nil
}

// mostID is the maximum number of bytes of an id with its comma.
const mostID = 20

// createJobs executes CreateJobs: it creates the jobs of the JSON list in the header jobs, all or
// none, and answers with their ids. The header mockRequest makes all of them mock jobs. It waits
// for units of work for lists. Before the creation it reserves memory for the answer. Returns
// errNoMemory without that memory, and a statusError for a bad list or job. Returns the error of
// ctx if it ends during the wait, or the error of the service.
func createJobs(ctx context.Context, c *call) error {
	n, all, err := objects(c.req.get("jobs"))
	if err != nil {
		return err
	}
	leave, err := c.memory.lists.enter(ctx, c.req.length+n*listedJob)
	if err != nil {
		return err
	}
	defer leave()
	mock := c.req.flag("mockRequest")
	specs := make([]jobs.Spec, 0, n)
	for f := range all {
		s, err := f.spec(mock)
		if err != nil {
			return err
		}
		specs = append(specs, s)
	}
	if c.grow(len(`{"jobIDs":[]}`) + mostID*n); !c.count() { // after the creation it would be too late
		return errNoMemory
	}
	created, err := c.s.CreateAll(ctx, specs)
	if err != nil {
		return err
	}
	out := append(*c.out, `{"jobIDs":[`...)
	for i, one := range created {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(out, int64(one.ID), 10)
	}
	*c.out = append(out, "]}"...)
	return nil
}

// spec returns the Spec of the job that the fields describe: name, data, firstRun, sequentialKey,
// parentJobID, repeat, retryAfter and unique. The priority is jobPriority, else priority, else the
// default of the protocol. "overwrite" as false or 0 sets Keep.
//
// mock or the field mockRequest makes it a mock job, whose data get the member mockRequest
// (mocked). Returns a statusError for the first invalid field; the service checks repeat and
// retryAfter.
func (f fields) spec(mock bool) (s jobs.Spec, err error) {
	if s.Name, err = f.name(); err != nil {
		return s, err
	}
	if s.Data, err = f.data(); err != nil {
		return s, err
	}
	if s.FirstRun, err = f.time("firstRun"); err != nil {
		return s, err
	}
	if s.SequenceKey, err = f.text("sequentialKey"); err != nil {
		return s, err
	}
	if s.Priority, err = f.priority("jobPriority", "priority"); err != nil {
		return s, err
	}
	if !s.Priority.IsSet() {
		s.Priority = task.Set(topPriority - defaultPriority)
	}
	if f.get("parentJobID") != nil {
		parent, err := f.number("parentJobID")
		if err != nil {
			return s, err
		}
		s.Parent = jobs.ID(parent)
	}
	s.Repeat, s.RetryAfter = string(f.get("repeat")), string(f.get("retryAfter"))
	if s.Mock = mock || f.flag("mockRequest"); s.Mock {
		s.Data = mocked(s.Data)
	}
	s.Unique = f.flag("unique")
	s.Keep = f.is("overwrite", "false") || f.is("overwrite", "0")
	return s, nil
}

// mocked returns data with "mockRequest":true as the first member, as workers of this protocol
// expect for mock jobs. Data with a mockRequest of any value stay unchanged. Missing, empty or
// invalid data become an object with only that member.
func mocked(data []byte) []byte {
	const mark = `"mockRequest":true`
	var has map[string]json.RawMessage
	switch err := json.Unmarshal(data, &has); {
	case err != nil || len(has) == 0:
		return []byte("{" + mark + "}")
	case has["mockRequest"] != nil:
		return data
	}
	return append([]byte("{"+mark+","), data[1:]...)
}
