package router

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/swarmiji/swarmiji/task"
)

// HashConfig configures [NewHash]. Set at most one of Header and Key. Default key: the task's ID.
type HashConfig struct {
	// Queues are the queues to choose from, at least one, without duplicates. Their order is the order
	// of [Hash.Queues] and does not change the choice.
	Queues []string
	// Header names the header whose value is the key, for example a tenant.
	Header string
	// Key returns the key of a task. It must be safe for concurrent use and should depend only on the
	// envelope.
	Key func(e *task.Envelope) string
}

// Hash distributes tasks over queues so that tasks with the same key share a queue. A task with an
// empty key, such as one without the header, is distributed by its ID. Make one with [NewHash].
//
// It chooses the queue with the highest score (rendezvous hashing). The score mixes the 64-bit
// FNV-1a hashes of the key and of the queue's name. All processes and later versions therefore
// choose alike. A new queue takes over only its own keys, and a removed queue gives away only its
// own.
type Hash struct {
	key    func(e *task.Envelope) string
	queues []string
	seeds  []uint64 // FNV-1a of the queues' names
}

// NewHash returns a Hash for c. Returns an error that names every mistake in c and wraps
// [ErrBadConfig].
func NewHash(c HashConfig) (*Hash, error) {
	h := &Hash{key: c.Key, queues: slices.Clone(c.Queues)}
	var errs []error
	if len(c.Queues) == 0 {
		errs = append(errs, fmt.Errorf("%w: Queues is empty", ErrBadConfig))
	}
	if c.Key != nil && c.Header != "" {
		errs = append(errs, fmt.Errorf("%w: both Header and Key are set", ErrBadConfig))
	}
	for i, q := range c.Queues {
		if err := task.CheckName(q); err != nil {
			errs = append(errs, fmt.Errorf("%w: queue %d: %w", ErrBadConfig, i, err))
		}
		if slices.Contains(c.Queues[:i], q) {
			errs = append(errs, fmt.Errorf("%w: queue %q twice", ErrBadConfig, q))
		}
		h.seeds = append(h.seeds, fnv1a(q))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if c.Header != "" {
		h.key = func(e *task.Envelope) string { return e.Headers[c.Header] }
	}
	return h, nil
}

// Route returns the queue for the key of e. It never fails.
func (h *Hash) Route(_ context.Context, e *task.Envelope) (string, error) {
	var key string
	if h.key != nil {
		key = h.key(e)
	}
	if key == "" {
		key = string(e.ID)
	}
	k := fnv1a(key)
	best, top := 0, mix(k^h.seeds[0])
	for i, seed := range h.seeds[1:] {
		// With equal scores the name decides, so that the order of the queues does not matter.
		if score := mix(k ^ seed); score > top || score == top && h.queues[i+1] < h.queues[best] {
			best, top = i+1, score
		}
	}
	return h.queues[best], nil
}

// Queues returns a copy of the configured queues.
func (h *Hash) Queues() []string { return slices.Clone(h.queues) }

// fnv1a returns the 64-bit FNV-1a hash of s. Unlike hash/fnv it does not allocate.
func fnv1a(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// mix spreads the bits of x over the whole word (the finalizer of SplitMix64). FNV alone leaves the
// high bits of short keys alike.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

var _ Router = (*Hash)(nil)
