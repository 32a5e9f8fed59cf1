package natsevents

// names holds the subjects and the stream of a namespace. The stream's name differs from those of
// all brokers.
type names struct {
	live   string // subject of all events
	kept   string // subject of the kept events
	stream string
}

// namesOf returns the names of a namespace.
func namesOf(namespace string) names {
	return names{live: "swj." + namespace + ".ev", kept: "swj." + namespace + ".K", stream: "SWJEVENTS_" + namespace}
}

// remove returns the subject of JetStream requests that remove this consumer of the stream.
func (n *names) remove(consumer string) string {
	return "$JS.API.CONSUMER.DELETE." + n.stream + "." + consumer
}
