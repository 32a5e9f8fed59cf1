package jobstest

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// Query is one question about jobs, as a value, for tests of stores. What is set says which method
// of [jobstore.Finder] it is for.
type Query struct {
	jobstore.Page
	IDs         []jobs.ID // not nil: Jobs
	Name        string    // Named; with a key OfKey or OfUniqueKey
	Key         string
	UniqueKey   string
	SequenceKey string     // OfSequence
	Queue       string     // OfQueue
	Parent      jobs.ID    // Children
	Due         *jobs.Due  // Due
	Line        *jobs.Line // Line
}

// Find asks a transaction.
func (q Query) Find(ctx context.Context, f jobstore.Finder) ([]jobs.Row, error) {
	rest := q
	var find func() ([]jobs.Row, error)
	switch {
	case q.Due != nil:
		rest.Due, find = nil, func() ([]jobs.Row, error) { return f.Due(ctx, *q.Due, q.Limit) }
	case q.Line != nil:
		rest.Line, find = nil, func() ([]jobs.Row, error) { return f.Line(ctx, *q.Line, q.Limit) }
	case q.IDs != nil:
		rest.IDs, find = nil, func() ([]jobs.Row, error) { return f.Jobs(ctx, q.IDs...) }
	case q.Key != "":
		rest.Name, rest.Key, find = "", "", func() ([]jobs.Row, error) { return f.OfKey(ctx, q.Name, q.Key, q.Page) }
	case q.UniqueKey != "":
		rest.Name, rest.UniqueKey, find = "", "", func() ([]jobs.Row, error) { return f.OfUniqueKey(ctx, q.Name, q.UniqueKey, q.Page) }
	case q.Name != "":
		rest.Name, find = "", func() ([]jobs.Row, error) { return f.Named(ctx, q.Name, q.Page) }
	case q.SequenceKey != "":
		rest.SequenceKey, find = "", func() ([]jobs.Row, error) { return f.OfSequence(ctx, q.SequenceKey, q.Page) }
	case q.Queue != "":
		rest.Queue, find = "", func() ([]jobs.Row, error) { return f.OfQueue(ctx, q.Queue, q.Page) }
	case q.Parent != 0:
		rest.Parent, find = 0, func() ([]jobs.Row, error) { return f.Children(ctx, q.Parent, q.Page) }
	default:
		find = func() ([]jobs.Row, error) { return f.All(ctx, q.Page) }
	}
	if rest.IDs != nil || rest.Due != nil || rest.Line != nil || rest.Name+rest.Key+rest.UniqueKey+rest.SequenceKey+rest.Queue != "" || rest.Parent != 0 {
		return nil, fmt.Errorf("jobstest: no method asks for %+v", q)
	}
	return find()
}
