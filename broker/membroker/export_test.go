package membroker

import "context"

// Keys returns the number of keys that the turns of a queue know, in all levels.
func (b *Broker) Keys(queue string) (n int) {
	q, err := b.lookup(context.Background(), queue)
	if err != nil {
		return -1
	}
	defer q.unlock()
	for i := range q.levels {
		if q.fair {
			n += q.levels[i].keys.Keys()
		}
	}
	if q.load != nil {
		n += len(q.load.keys)
	}
	return n
}
