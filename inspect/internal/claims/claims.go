// Package claims keeps claims of keys in one process, where the result store cannot.
package claims

import (
	"context"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/resultstore"
)

// Claims is the part of [resultstore.Claimer] that copies with a key need.
type Claims interface {
	Claim(ctx context.Context, key, holder string, ttl time.Duration) (winner string, err error)
	Pass(ctx context.Context, key, holder, next string, ttl time.Duration) error
	Release(ctx context.Context, key, holder string) error
}

// Local keeps claims in this process. Its zero value is empty.
// Safe for concurrent use.
type Local struct {
	mu  sync.Mutex
	all map[string]claim
}

type claim struct {
	holder string
	until  time.Time
}

// Claim claims key for holder if it is free, and returns the holder of the claim.
func (s *Local) Claim(_ context.Context, key, holder string, ttl time.Duration) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[string]claim)
	}
	now := time.Now()
	for k, c := range s.all {
		if !now.Before(c.until) {
			delete(s.all, k)
		}
	}
	if c, there := s.all[key]; there {
		return c.holder, nil
	}
	s.all[key] = claim{holder, now.Add(ttl)}
	return holder, nil
}

// Pass gives the claim of holder to next. Returns [resultstore.ErrStale] if holder has no claim.
func (s *Local) Pass(_ context.Context, key, holder, next string, ttl time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[key].holder != holder {
		return resultstore.ErrStale
	}
	s.all[key] = claim{next, time.Now().Add(ttl)}
	return nil
}

// Release ends the claim of holder.
func (s *Local) Release(_ context.Context, key, holder string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[key].holder == holder {
		delete(s.all, key)
	}
	return nil
}
