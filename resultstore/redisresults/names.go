package redisresults

import "github.com/swarmiji/swarmiji/task"

// names builds the keys and channels of a namespace. They are part of the public layout, see the package comment.
type names struct {
	record, reply string // what they begin with
}

func namesOf(namespace string) names {
	return names{
		record: "swj:res:{" + namespace + ".",
		reply:  "swj:reply:" + namespace + ":",
	}
}

// key is where the record of a task is kept.
func (n names) key(id task.ID) string { return n.record + string(id) + "}" }

// channel is where a node hears of its tasks.
func (n names) channel(node string) string { return n.reply + node }
