package natsevents

// names are those of a namespace. The stream's begins like that of no broker of any namespace.
type names struct {
	live   string // subject of all events
	kept   string // subject of the events that are kept
	stream string
}

func namesOf(namespace string) names {
	return names{live: "swj." + namespace + ".ev", kept: "swj." + namespace + ".K", stream: "SWJEVENTS_" + namespace}
}

// remove is the subject of requests to remove a consumer of the stream.
func (n *names) remove(consumer string) string {
	return "$JS.API.CONSUMER.DELETE." + n.stream + "." + consumer
}
