package redisevents

// names are the channels and the key of a namespace. They are part of the public layout, see the package comment.
type names struct {
	channel string // events as they come
	kept    string // the stream of kept events
	news    string // channel on which the ids of kept messages are told
}

func namesOf(namespace string) names {
	return names{
		channel: "swj:ev:" + namespace,
		kept:    "swj:ev:{" + namespace + "}:kept",
		news:    "swj:ev:" + namespace + ":kept",
	}
}
