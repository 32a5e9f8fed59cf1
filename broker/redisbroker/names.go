package redisbroker

import "strconv"

// names builds all names of a queue's keys and channels. A cluster keeps keys with the same part in
// braces together. A namespace holds no dot and a queue name no brace, so all names differ.
type names struct{ prefix string } // swj:{<namespace>.<queue>}:

// newNames returns the names of a queue.
func newNames(namespace, queue string) names { return names{"swj:{" + namespace + "." + queue + "}:"} }

// part returns the queue's key with the short name m, t, d, l, o, c, n, s, g, h, a or x. The
// package comment explains these.
func (n names) part(name string) string { return n.prefix + name }

// notes returns the key of the list with the notes of starts of the message that has the given key.
func (n names) notes(key string) string { return n.prefix + "e:" + key }

// nodeKey returns the key that holds the state of a node. A queue name is never empty, so no queue
// has this key.
func nodeKey(namespace, node string) string { return newNames(namespace, "").prefix + node }

// ready returns the key of the list with the ready messages of a level.
func (n names) ready(level int) string { return n.prefix + "r" + strconv.Itoa(level) }

// turns returns the key of the set of the fairness keys of a level, in a fair queue.
func (n names) turns(level int) string { return n.prefix + "k" + strconv.Itoa(level) }

// channels returns the common beginning of the names of the owners' channels.
func (n names) channels() string { return n.prefix + "w" }

// channel returns the name of an owner's channel, on which the server publishes notifications and
// messages.
func (n names) channel(owner int64) string { return n.channels() + strconv.FormatInt(owner, 10) }
