package redisbroker

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// packBounds returns bounds as lua/bounds.lua reads them, "" if b has no limit. It is a digest of
// 16 characters and a JSON array:
//
//   - the bound of each key, and of the queue
//   - the bounds of single keys
//   - whether keys have bounds, and whether they have rates
//
// A bound is an array of three numbers: Max, the time between two messages of the rate in
// microseconds, and that time multiplied by Rate. The times are 0 without a Rate.
func packBounds(b broker.Bounds) (string, error) {
	if b.IsZero() {
		return "", nil
	}
	keys := make(map[string][3]float64, len(b.Keys))
	rates := b.Key.Rate > 0
	for key, one := range b.Keys {
		keys[key] = packBound(one)
		rates = rates || one.Rate > 0
	}
	v, err := json.Marshal([]any{packBound(b.Key), packBound(b.All), keys, b.Key != broker.Bound{} || len(keys) > 0, rates})
	digest := fnv.New64a()
	_, _ = digest.Write(v)
	return fmt.Sprintf("%016x%s", digest.Sum64(), v), err
}

// packBound returns the numbers of one bound.
func packBound(b broker.Bound) [3]float64 {
	var start time.Time
	interval := math.Ceil(float64(b.Use(start, start).Sub(start)) / 1000)
	return [3]float64{float64(b.Max), interval, interval * float64(b.Rate)}
}

// SetBounds implements [broker.Bounder]. The next claim uses b, and so the claiming goroutine is
// woken. It takes s.mu and does not wait. Returns ErrMalformed if b is not valid, or if it has a
// limit and the queue is not fair.
func (s *subscription) SetBounds(b broker.Bounds) error {
	if err := b.Check(); err != nil {
		return wrap(err, "bounds of", s.q.name)
	}
	packed, err := packBounds(b)
	if err != nil {
		return wrap(err, "bounds of", s.q.name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if packed != "" && !s.unread.levels.fair {
		return wrap(broker.NotFair(s.q.name, "bounds"), "bounds of", s.q.name)
	}
	s.bounds = packed
	s.wakeToClaim()
	return nil
}
