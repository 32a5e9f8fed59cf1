package jobstest

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// Query is a call of a method of [jobstore.Finder] as a value, for tests of stores. Its set fields
// select the method.
type Query struct {
	jobstore.Page
	IDs    []jobs.ID // not nil: Jobs
	Name   string    // Named; with a Key OfKey
	Key    string
	Queue  string  // OfQueue
	Parent jobs.ID // Children
	// Group is for First, and then Jobs. The Limit is 1.
	Group *jobstore.Group
	Due   *jobs.Due  // Due
	Line  *jobs.Line // Line
}

// Find calls the method of f that the set fields select, and returns its jobs and its error.
// Returns an error without a call if no method takes all set fields.
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
	case q.Group != nil:
		rest.Group, find = nil, func() ([]jobs.Row, error) {
			first, err := f.First(ctx, q.States, *q.Group)
			if err != nil || len(first) == 0 || q.Limit != 1 {
				return nil, err
			}
			return f.Jobs(ctx, first[*q.Group])
		}
	case q.Key != "":
		rest.Name, rest.Key, find = "", "", func() ([]jobs.Row, error) { return f.OfKey(ctx, q.Name, q.Key, q.Page) }
	case q.Name != "":
		rest.Name, find = "", func() ([]jobs.Row, error) { return f.Named(ctx, q.Name, q.Page) }
	case q.Queue != "":
		rest.Queue, find = "", func() ([]jobs.Row, error) { return f.OfQueue(ctx, q.Queue, q.Page) }
	case q.Parent != 0:
		rest.Parent, find = 0, func() ([]jobs.Row, error) { return f.Children(ctx, q.Parent, q.Page) }
	default:
		find = func() ([]jobs.Row, error) { return f.All(ctx, q.Page) }
	}
	if rest.IDs != nil || rest.Group != nil || rest.Due != nil || rest.Line != nil || rest.Name+rest.Key+rest.Queue != "" || rest.Parent != 0 {
		return nil, fmt.Errorf("jobstest: no method asks for %+v", q)
	}
	return find()
}

// uniqueKey returns the query for the first job with a name and a unique key.
func uniqueKey(name, key string) Query {
	return Query{Page: jobstore.Page{Limit: 1}, Group: &jobstore.Group{By: jobstore.ByUniqueKey, Name: name, Key: key}}
}

// sequence returns the query for the first job of a sequence key.
func sequence(key string) Query {
	return Query{Page: jobstore.Page{Limit: 1}, Group: &jobstore.Group{By: jobstore.BySequence, Key: key}}
}

// unique returns the query for the first unique job of a name without Mock.
func unique(name string) Query {
	return Query{Page: jobstore.Page{Limit: 1}, Group: &jobstore.Group{By: jobstore.ByName, Name: name}}
}
