package router

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/swarmiji/swarmiji/task"
)

// HashConfig configures [NewHash]. At most one of Header and Key is given; without either the key is the task's ID.
type HashConfig struct {
	// Queues are the queues to spread over, at least one, none twice. Their order is that of [Hash.Queues] and has no
	// influence on the choice.
	Queues []string
	// Header names the header whose value is the key, such as a tenant.
	Header string
	// Key returns the key of a task. It may be called from any goroutine, and ought to be a pure function of the envelope.
	Key func(e *task.Envelope) string
}

// Hash spreads tasks over queues so that tasks of one key share a queue. A task with an empty key, such as one without
// the header, is spread by its ID.
//
// The choice is that of the highest score (rendezvous hashing), where the score of a queue is a mix of the 64-bit FNV-1a
// hashes of the key and of the queue's name. It depends on nothing else, so all processes choose alike and go on to do so
// in later versions; a queue more takes over only the keys that it gets, one of n queues less gives away only its own.
// Make one with [NewHash].
type Hash struct {
	key    func(e *task.Envelope) string
	queues []string
	seeds  []uint64 // FNV-1a of the queues' names
}

// NewHash checks c and makes the Hash. The error names every mistake in c and wraps [ErrBadConfig].
func NewHash(c HashConfig) (*Hash, error) {
	h := &Hash{key: c.Key, queues: slices.Clone(c.Queues)}
	var errs []error
	if len(c.Queues) == 0 {
		errs = append(errs, fmt.Errorf("%w: no queue to spread over", ErrBadConfig))
	}
	if c.Key != nil && c.Header != "" {
		errs = append(errs, fmt.Errorf("%w: both Header and Key", ErrBadConfig))
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

// Route implements [Router]; it never fails.
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
		// Two queues of one score would be told apart by their order; the name decides, so that the order does not matter.
		if score := mix(k ^ seed); score > top || score == top && h.queues[i+1] < h.queues[best] {
			best, top = i+1, score
		}
	}
	return h.queues[best], nil
}

// Queues implements [Router]: the queues as configured. The list belongs to the caller.
func (h *Hash) Queues() []string { return slices.Clone(h.queues) }

// fnv1a is the 64-bit FNV-1a hash. hash/fnv has the same and would allocate for each task.
func fnv1a(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// mix spreads the bits of x over the whole word (the finalizer of SplitMix64); FNV alone leaves the high bits of short
// keys alike.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

var _ Router = (*Hash)(nil)
