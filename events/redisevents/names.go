package redisevents

// names holds the channels and the key of a namespace. They are part of the public layout, see the
// package comment.
type names struct {
	channel string // all events
	kept    string // key of the stream of kept events
	added   string // channel with the ids of new entries
}

// namesOf returns the names of a namespace.
func namesOf(namespace string) names {
	return names{
		channel: "swj:ev:" + namespace,
		kept:    "swj:ev:{" + namespace + "}:kept",
		added:   "swj:ev:" + namespace + ":kept",
	}
}
