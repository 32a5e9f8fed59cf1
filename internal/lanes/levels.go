package lanes

import "github.com/swarmiji/swarmiji/internal/floor"

// Levels holds the deliveries of all priority levels of a queue that Receive has not returned. Make
// one with [NewLevels]. Not safe for concurrent use.
type Levels[T any] struct {
	all   []*Level[T] // the most urgent first
	floor floor.Floor
}

// NewLevels returns n empty levels, with the lanes of [NewLevel]. share is the Floor of
// [broker.SubscribeOptions].
func NewLevels[T any](n int, fair bool, share float64) *Levels[T] {
	v := &Levels[T]{all: make([]*Level[T], n), floor: floor.New(share)}
	for i := range v.all {
		v.all[i] = NewLevel[T](fair)
	}
	return v
}

// Len returns the number of levels.
func (v *Levels[T]) Len() int { return len(v.all) }

// Level returns level i, counted from 0, the most urgent.
func (v *Levels[T]) Level(i int) *Level[T] { return v.all[i] }

// Pop removes the next delivery and returns it. It drops deliveries for which usable returns false;
// a usable of nil drops none. It calls wait with the number of an empty level. If wait returns
// true, the next delivery of that level comes first, and Pop returns nil. It also returns nil if
// all levels are empty.
func (v *Levels[T]) Pop(usable func(*T) bool, wait func(level int) bool) *T {
	for i := range v.all {
		level := v.floor.At(i, len(v.all))
		for d := v.all[level].Pop(); d != nil; d = v.all[level].Pop() {
			if usable == nil || usable(d) {
				v.floor.Took(level)
				return d
			}
		}
		if wait(level) {
			return nil
		}
	}
	return nil
}

// All returns the deliveries in the order of Pop.
func (v *Levels[T]) All() (all []*T) {
	rest := make([][]*T, len(v.all))
	n := 0
	for i, level := range v.all {
		rest[i] = level.All()
		n += len(rest[i])
	}
	next := v.floor // a copy: no pick is counted
	for i := 0; len(all) < n; {
		level := next.At(i, len(rest))
		if i++; len(rest[level]) == 0 {
			continue
		}
		next.Took(level)
		all, rest[level], i = append(all, rest[level][0]), rest[level][1:], 0
	}
	return all
}
