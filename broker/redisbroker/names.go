package redisbroker

import "strconv"

// queueKeys are the names of a queue's keys, in the order in which every script has them. Nothing else builds names. The part
// in braces makes a cluster keep them together. A namespace holds no dot and a queue's name no brace, so no two are the same.
type queueKeys struct {
	prefix string   // swj:{<namespace>.<queue>}:
	fixed  []string // m to x
}

func newKeys(namespace, queue string) queueKeys {
	k := queueKeys{prefix: "swj:{" + namespace + "." + queue + "}:"}
	for _, part := range []string{"m", "t", "d", "l", "o", "c", "n", "s", "g", "x"} {
		k.fixed = append(k.fixed, k.prefix+part)
	}
	return k
}

// all returns the keys of a queue with so many priority levels.
func (k queueKeys) all(levels int) []string {
	keys := make([]string, 0, len(k.fixed)+levels)
	keys = append(keys, k.fixed...)
	for i := range max(levels, 1) {
		keys = append(keys, k.ready(i))
	}
	return keys
}

// ready is the list of a level's ready messages.
func (k queueKeys) ready(level int) string { return k.prefix + "r" + strconv.Itoa(level) }

// channel is where waiting consumers are told that there is something for them.
func (k queueKeys) channel() string { return k.prefix + "w" }
