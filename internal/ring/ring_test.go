package ring_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/swarmiji/swarmiji/internal/ring"
	"pgregory.net/rapid"
)

func TestRingIsASliceThatForgetsItsOldest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(-1, 70).Draw(t, "max")
		r := ring.New[int](limit)
		limit = max(limit, 1)
		var model []int
		next := 0
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				for range rapid.IntRange(1, 40).Draw(t, "n") {
					full := len(model) == limit
					if got := r.Push(&next); got != full {
						t.Fatalf("Push onto %d of %d reports dropped %v", len(model), limit, got)
					}
					if full {
						model = model[1:]
					}
					model = append(model, next)
					next++
				}
			},
			"pop": func(t *rapid.T) {
				for range rapid.IntRange(1, 40).Draw(t, "n") {
					var v int
					ok := r.Pop(&v)
					if ok != (len(model) > 0) {
						t.Fatalf("Pop of %d elements reports %v", len(model), ok)
					}
					if ok {
						if v != model[0] {
							t.Fatalf("Pop gave %d, the oldest is %d", v, model[0])
						}
						model = model[1:]
					}
				}
			},
			"clear": func(*rapid.T) { r.Clear(); model = nil },
			"": func(t *rapid.T) {
				if r.Len() != len(model) {
					t.Fatalf("Len is %d, want %d", r.Len(), len(model))
				}
			},
		})
	})
}

var errEnd = errors.New("end of this stream")

func TestStreamWakesEveryReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const readers, each = 8, 100
		s := ring.NewStream[int](readers*each, errEnd)
		got := make(chan int, readers*each)
		for range readers {
			go func() {
				for {
					v, err := s.Get(t.Context())
					if err != nil {
						return
					}
					got <- v
				}
			}()
		}
		synctest.Wait() // all readers wait
		for i := range readers * each {
			s.Put(&i)
		}
		synctest.Wait()
		if s.Len() != 0 {
			t.Fatalf("%d elements lie there while readers wait: a wake-up was lost", s.Len())
		}
		close(got)
		var all []int
		for v := range got {
			all = append(all, v)
		}
		slices.Sort(all)
		for i, v := range all {
			if i != v {
				t.Fatalf("element %d came twice or never", i)
			}
		}
		if len(all) != readers*each {
			t.Fatalf("%d elements came, want %d", len(all), readers*each)
		}
		s.Close()
	})
}

func TestStreamGetEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ring.NewStream[int](4, errEnd)
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 2)
		go func() { _, err := s.Get(ctx); got <- err }()
		synctest.Wait()
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Errorf("Get after its context ended returned %v", err)
		}
		go func() { _, err := s.Get(t.Context()); got <- err }()
		synctest.Wait()
		s.Close()
		s.Close()
		if err := <-got; !errors.Is(err, errEnd) {
			t.Errorf("Get in a closed stream returned %v", err)
		}
		one := 1
		s.Put(&one)
		if _, err := s.Get(t.Context()); !errors.Is(err, errEnd) {
			t.Errorf("Get after Close returned %v: a closed stream gives nothing more", err)
		}
	})
}

func TestStreamCountsWhatGaveWay(t *testing.T) {
	s := ring.NewStream[int](3, errEnd)
	for i := range 10 {
		s.Put(&i)
	}
	if s.Dropped() != 7 {
		t.Errorf("Dropped is %d after 10 elements in a stream of 3", s.Dropped())
	}
	for want := 7; want < 10; want++ {
		if v, err := s.Get(t.Context()); err != nil || v != want {
			t.Errorf("Get gave %d, %v; want %d: the oldest give way, the newest stay", v, err, want)
		}
	}
}
