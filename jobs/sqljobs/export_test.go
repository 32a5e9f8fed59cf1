package sqljobs

import "github.com/swarmiji/swarmiji/jobs/jobstest"

// Statement returns the statement and arguments that the store uses for q on SQLite.
func Statement(q jobstest.Query) (text string, args []any) {
	b := builder{lite: true}
	text = b.find(asQuery(q))
	return text, b.args
}

func asQuery(q jobstest.Query) query {
	return query{
		Page: q.Page, ids: q.IDs, name: q.Name, parent: q.Parent, queue: q.Queue, key: q.Key,
	}
}
