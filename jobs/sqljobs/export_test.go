package sqljobs

import (
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// Statement is what SQLite is asked for a Query.
func Statement(q jobstore.Query) (text string, args []any) {
	b := builder{lite: true}
	text = b.find(q)
	return text, b.args
}
