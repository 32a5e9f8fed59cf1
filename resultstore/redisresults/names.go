package redisresults

import "github.com/swarmiji/swarmiji/task"

// names builds the keys and channels of a namespace. They are part of the public layout, see the
// package comment.
type names struct {
	record, point, reply, gather, begin, claim, value string // prefixes of the keys and channels
}

// namesOf returns the names of a namespace.
func namesOf(namespace string) names {
	return names{
		record: "swj:res:{" + namespace + ".",
		point:  "swj:checkpoints:{" + namespace + ".",
		reply:  "swj:reply:" + namespace + ":",
		gather: "swj:group:{" + namespace + ".",
		begin:  "swj:begun:{" + namespace + ".",
		claim:  "swj:claim:{" + namespace + ".",
		value:  "swj:value:{" + namespace + ".",
	}
}

// key returns the key of the record of a task.
func (n names) key(id task.ID) string { return n.record + string(id) + "}" }

// checkpoints returns the key of the hash that holds the checkpoints of a task. On a cluster it is
// beside the record.
func (n names) checkpoints(id task.ID) string { return n.point + string(id) + "}" }

// group returns the key of the hash that holds the ended members of a group.
func (n names) group(id task.ID) string { return n.gather + string(id) + "}" }

// begun returns the key that holds the running copy of a task.
func (n names) begun(id task.ID) string { return n.begin + string(id) + "}" }

// claimed returns the key that holds the holder of a claim. A '}' in key only ends the part that
// selects the cluster node.
func (n names) claimed(key string) string { return n.claim + key + "}" }

// valued returns the key that holds the value of a Swapper's key.
func (n names) valued(key string) string { return n.value + key + "}" }

// channel returns the channel on which node is notified of its tasks.
func (n names) channel(node string) string { return n.reply + node }
