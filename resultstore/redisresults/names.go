package redisresults

import "github.com/swarmiji/swarmiji/task"

// names builds the keys and channels of a namespace. They are part of the public layout, see the package comment.
type names struct {
	record, reply, gather, begin, claim string // what they begin with
}

func namesOf(namespace string) names {
	return names{
		record: "swj:res:{" + namespace + ".",
		reply:  "swj:reply:" + namespace + ":",
		gather: "swj:group:{" + namespace + ".",
		begin:  "swj:begun:{" + namespace + ".",
		claim:  "swj:claim:{" + namespace + ".",
	}
}

// key is where the record of a task is kept.
func (n names) key(id task.ID) string { return n.record + string(id) + "}" }

// group is where the members of a group are gathered.
func (n names) group(id task.ID) string { return n.gather + string(id) + "}" }

// begun is where the copy of a task is kept that is run.
func (n names) begun(id task.ID) string { return n.begin + string(id) + "}" }

// claimed is where the holder of a key is kept. A '}' in the key only ends the part that chooses the node of a cluster.
func (n names) claimed(key string) string { return n.claim + key + "}" }

// channel is where a node hears of its tasks.
func (n names) channel(node string) string { return n.reply + node }
