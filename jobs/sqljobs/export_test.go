package sqljobs

import "github.com/swarmiji/swarmiji/jobs/jobstest"

// Statement is what SQLite is asked for a question.
func Statement(q jobstest.Query) (text string, args []any) {
	b := builder{lite: true}
	text = b.find(asQuery(q))
	return text, b.args
}

func asQuery(q jobstest.Query) query {
	return query{
		Page: q.Page, ids: q.IDs, name: q.Name, sequence: q.SequenceKey, parent: q.Parent, queue: q.Queue, uniqueKey: q.UniqueKey, key: q.Key,
	}
}
