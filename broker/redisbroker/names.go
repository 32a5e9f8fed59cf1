package redisbroker

import "strconv"

// names builds the names of a queue's keys and its channel; nothing else does. The part in braces makes a cluster keep the keys
// together. A namespace holds no dot and a queue's name no brace, so no two are the same.
type names struct{ prefix string } // swj:{<namespace>.<queue>}:

func newNames(namespace, queue string) names { return names{"swj:{" + namespace + "." + queue + "}:"} }

// part is one of the keys m, t, d, l, o, c, n, s, g, h and x.
func (n names) part(name string) string { return n.prefix + name }

// notes is the list of the notes of starts of one message, by its key.
func (n names) notes(key string) string { return n.prefix + "e:" + key }

// nodeKey is the key of what a node does. No queue has an empty name.
func nodeKey(namespace, node string) string { return newNames(namespace, "").prefix + node }

// ready is the list of a level's ready messages.
func (n names) ready(level int) string { return n.prefix + "r" + strconv.Itoa(level) }

// channels is how the channels of the queue's owners begin, on which they are told of messages or given them.
func (n names) channels() string { return n.prefix + "w" }

// channel is that of one owner.
func (n names) channel(owner int64) string { return n.channels() + strconv.FormatInt(owner, 10) }
