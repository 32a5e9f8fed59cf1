package steer

import (
	"maps"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/settings"
)

// boundsOf returns the bounds of a queue: the stored ones placed over those of the configuration. A
// stored bound that cannot be read, or bounds that are not valid together, are ignored.
func (s *Steer) boundsOf(queue string, configured broker.Bounds) broker.Bounds {
	stored, ok := s.state.Load().QueueBounds[queue]
	if !ok || stored.Check() != nil {
		return configured
	}
	b := configured
	place(stored.Key, &b.Key)
	place(stored.All, &b.All)
	if len(stored.Keys) > 0 {
		b.Keys = maps.Clone(b.Keys)
		if b.Keys == nil {
			b.Keys = make(map[string]broker.Bound)
		}
		for key, one := range stored.Keys {
			var bound broker.Bound
			place(&one, &bound)
			b.Keys[key] = bound
		}
	}
	if b.Check() != nil {
		return configured
	}
	return b
}

// place replaces b by a stored bound that can be read.
func place(stored *settings.Bound, b *broker.Bound) {
	if stored == nil {
		return
	}
	if most, rate, per, err := stored.Parse(); err == nil {
		*b = broker.Bound{Max: most, Rate: rate, Per: per}
	}
}
