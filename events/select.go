package events

// Select returns the part of a message of a [Batcher] whose types want selects, and its number of
// events. n is the number of events of the message. The part is the message itself if want selects
// all, and nil with the number 0 if it selects none. For authors of adapters.
func Select(message []byte, n int, want func(typ string) bool) (part []byte, count int) {
	es, err := Decode(message)
	if err != nil { // impossible: the message was encoded by a Batcher
		return nil, 0
	}
	some := make([]Event, 0, len(es))
	for i := range es {
		if want(es[i].Type) {
			some = append(some, es[i])
		}
	}
	switch len(some) {
	case len(es):
		return message, n
	case 0:
		return nil, 0
	}
	if part, err = Encode(some); err != nil {
		return nil, 0
	}
	return part, len(some)
}
