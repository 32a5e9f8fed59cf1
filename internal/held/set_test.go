package held_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/internal/held"
	"github.com/swarmiji/swarmiji/task"
)

func TestItem(t *testing.T) {
	var l held.Item
	if l.Lost() || l.Runs() {
		t.Fatal("the zero value")
	}
	ctx, over := l.Begin(t.Context())
	if !l.Runs() || ctx.Err() != nil {
		t.Fatal("it does not run")
	}
	if !l.Lose() || l.Lose() || !l.Lost() || !errors.Is(context.Cause(ctx), task.ErrLeaseLost) {
		t.Fatalf("not lost once: %v", context.Cause(ctx))
	}
	over()
	if l.Runs() {
		t.Fatal("it runs for ever")
	}
	ctx, over = l.Begin(t.Context())
	defer over()
	if !errors.Is(context.Cause(ctx), task.ErrLeaseLost) {
		t.Fatal("what was lost before it began goes on")
	}
}

type claim struct {
	held.Item
	key int
}

const lease = 30 * time.Second

var errMoved = errors.New("it has moved on")

// holder is a set whose renewals are answered by the test.
type holder struct {
	*held.Set[int, *claim]
	asked  [][]int       // keys of each renewal
	first  time.Duration // time of the first renewal
	answer func(of []*claim) ([]error, error)
	told   []int // keys reported as lost
	skip   map[int]bool
}

func newHolder(batch int) *holder {
	h := &holder{answer: func(of []*claim) ([]error, error) { return make([]error, len(of)), nil }}
	began := time.Now()
	h.Set = held.New(held.Config[int, *claim]{
		Key: func(c *claim) int { return c.key }, Lease: lease, Batch: batch,
		Renews: func(c *claim) bool { return !h.skip[c.key] },
		Renew: func(_ context.Context, of []*claim) ([]error, time.Time, error) {
			var keys []int
			for _, c := range of {
				keys = append(keys, c.key)
			}
			slices.Sort(keys)
			asked := time.Now()
			if h.asked = append(h.asked, keys); len(h.asked) == 1 {
				h.first = asked.Sub(began)
			}
			errs, err := h.answer(of)
			return errs, asked, err
		},
		Lost: func(c *claim, err error) {
			if !errors.Is(err, errMoved) || !c.Lose() {
				panic("told twice, or of nothing")
			}
			h.told = append(h.told, c.key)
		},
	})
	return h
}

// allLost answers that all records are lost.
func allLost(of []*claim) ([]error, error) {
	errs := make([]error, len(of))
	for i := range errs {
		errs[i] = errMoved
	}
	return errs, nil
}

// TestKeepRenewing shows that each lease is renewed after each third of it, in batches, until the
// end.
func TestKeepRenewing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder(2)
		h.skip = map[int]bool{4: true}
		for key := range 5 {
			h.Hold(&claim{key: key})
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			h.KeepRenewing(ctx)
		}()
		time.Sleep(lease + 1)
		cancel()
		<-ended
		if h.first != lease/3 {
			t.Errorf("renewed after %s at first", h.first)
		}
		var all []int
		for _, batch := range h.asked {
			if len(batch) > 2 {
				t.Errorf("a batch of %d", len(batch))
			}
			all = append(all, batch...)
		}
		slices.Sort(all)
		if diff := cmp.Diff([]int{0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3}, all); diff != "" {
			t.Error(diff)
		}
	})
}

// TestRenewalMeets shows what happens to a record that changes during a renewal that reports it as
// lost.
func TestRenewalMeets(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(h *holder, c *claim)
		told      []int
	}{
		"nothing":                    {func(*holder, *claim) {}, []int{1}},
		"the end of its handler":     {func(h *holder, c *claim) { h.Idle(c) }, []int{1}},
		"its settlement":             {func(_ *holder, c *claim) { c.Settle() }, nil},
		"a settlement that fails":    {func(_ *holder, c *claim) { c.Settle(); c.Resume() }, []int{1}},
		"its settlement and release": {func(h *holder, c *claim) { c.Settle(); h.Release(c) }, nil},
		"its release":                {func(h *holder, c *claim) { h.Release(c) }, nil},
		"its loss":                   {func(_ *holder, c *claim) { c.Lose() }, nil},
		"another claim of its key":   {func(h *holder, _ *claim) { h.Hold(&claim{key: 1}) }, nil},
		"that its lease rests":       {func(h *holder, _ *claim) { h.skip = map[int]bool{1: true} }, nil},
		"the release of another one": {func(h *holder, _ *claim) { h.Release(&claim{key: 1}) }, []int{1}},
	} {
		h := newHolder(10)
		it := &claim{key: 1}
		h.Hold(it)
		ctx, over := it.Begin(t.Context())
		h.answer = func(of []*claim) ([]error, error) {
			c.meanwhile(h, it)
			return allLost(of)
		}
		h.Renew(t.Context(), it)
		if diff := cmp.Diff(c.told, h.told); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if lost := errors.Is(context.Cause(ctx), task.ErrLeaseLost); lost != it.Lost() {
			t.Errorf("%s: lost is %t, and its handler ends with %v", name, it.Lost(), context.Cause(ctx))
		}
		over()
	}
}

// TestRenewalWithoutAnAnswer shows that without a renewal the handler's context ends shortly before
// the lease, and not earlier. The record is not reported as lost.
func TestRenewalWithoutAnAnswer(t *testing.T) {
	away := errors.New("away")
	for name, c := range map[string]struct {
		answer func(n int, of []*claim) ([]error, error) // answers renewal n, from 1
		ends   time.Duration                             // when the handler's context ends
	}{
		"errors": {func(_ int, of []*claim) ([]error, error) { return nil, away }, lease - lease/10},
		"an error at first": {func(n int, of []*claim) ([]error, error) {
			if n == 2 {
				return make([]error, len(of)), nil
			}
			return nil, away
		}, lease/3*2 + lease - lease/10},
		"an answer after the end": {func(_ int, of []*claim) ([]error, error) {
			time.Sleep(lease)
			return make([]error, len(of)), nil
		}, lease - lease/10},
	} {
		synctest.Test(t, func(t *testing.T) {
			h, n := newHolder(10), 0
			h.answer = func(of []*claim) ([]error, error) {
				n++
				return c.answer(n, of)
			}
			it, began := &claim{key: 1}, time.Now()
			h.Hold(it)
			h.Expire(it, began)
			handler, over := it.Begin(t.Context())
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				h.KeepRenewing(ctx)
			}()
			<-handler.Done()
			if took := time.Since(began); took != c.ends || !errors.Is(context.Cause(handler), task.ErrLeaseLost) {
				t.Errorf("%s: its context ended after %s, not %s: %v", name, took, c.ends, context.Cause(handler))
			}
			if !it.Ended() || it.Lost() || !h.Holds(it) {
				t.Errorf("%s: ended %t, lost %t, held %t", name, it.Ended(), it.Lost(), h.Holds(it))
			}
			over()
			time.Sleep(2 * lease)
			if !it.Ended() {
				t.Errorf("%s: a lease that has ended for the handler began again", name)
			}
			h.Release(it)
			cancel()
			<-ended
		})
	}
}

// TestStopDuringARenewal shows that KeepRenewing waits for a running renewal when ctx ends, and
// starts no other.
func TestStopDuringARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, release := newHolder(1), make(chan struct{})
		h.answer = func(of []*claim) ([]error, error) {
			<-release
			return allLost(of)
		}
		it := &claim{key: 1}
		h.Hold(it)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			h.KeepRenewing(ctx)
		}()
		time.Sleep(lease/3 + 1)
		cancel()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("it has not waited")
		default:
		}
		close(release)
		<-ended
		time.Sleep(lease)
		if len(h.asked) != 1 || !it.Lost() {
			t.Errorf("%d renewals; lost is %t", len(h.asked), it.Lost())
		}
	})
}

// TestFreed shows that a goroutine that waits for capacity is woken when a record is idle or
// released.
func TestFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder(1)
		it := &claim{key: 1}
		h.Hold(it)
		for name, free := range map[string]func(){"idle": func() { h.Idle(it) }, "released": func() { h.Release(it) }} {
			began := time.Now()
			time.AfterFunc(time.Second, free)
			if !h.Freed().Wait(t.Context(), time.Hour) || time.Since(began) != time.Second {
				t.Errorf("%s: woken after %s", name, time.Since(began))
			}
		}
	})
}

// TestSetModel compares a Set with a model: held, idle, running and lost records.
func TestSetModel(t *testing.T) {
	type state struct{ idle, settling, lost, runs bool }
	rapid.Check(t, func(t *rapid.T) {
		h := newHolder(rapid.IntRange(1, 4).Draw(t, "batch"))
		var all []*claim // all records made so far
		states := map[*claim]*state{}
		now := map[int]*claim{} // held records
		var told []int
		overs := map[*claim]func(){}
		one := func() *claim {
			if len(all) == 0 {
				t.Skip("nothing was claimed yet")
			}
			return rapid.SampledFrom(all).Draw(t, "claim")
		}
		t.Repeat(map[string]func(*rapid.T){
			"hold": func(t *rapid.T) {
				c := &claim{key: rapid.IntRange(0, 3).Draw(t, "key")}
				before, replaced := h.Hold(c)
				if want := now[c.key]; before != want || replaced != (want != nil) {
					t.Fatalf("in the place of %v, %t", before, replaced)
				}
				all, states[c], now[c.key] = append(all, c), &state{}, c
			},
			"release": func(*rapid.T) {
				c := one()
				h.Release(c)
				if now[c.key] == c {
					delete(now, c.key)
				}
			},
			"idle": func(*rapid.T) {
				c := one()
				h.Idle(c)
				states[c].idle = states[c].idle || now[c.key] == c
			},
			"begin": func(*rapid.T) {
				c := one()
				if over := overs[c]; over != nil {
					over()
				}
				_, overs[c] = c.Begin(context.Background())
				states[c].runs = true
			},
			"over": func(*rapid.T) {
				c := one()
				if over := overs[c]; over != nil {
					over()
				}
				states[c].runs = false
			},
			"settle": func(t *rapid.T) {
				c := one()
				if c.Settle() == states[c].settling {
					t.Fatal("settled twice, or not at first")
				}
				states[c].settling = true
			},
			"resume": func(*rapid.T) {
				c := one()
				c.Resume()
				states[c].settling = false
			},
			"lose": func(t *rapid.T) {
				c := one()
				if c.Lose() == states[c].lost {
					t.Fatal("lost twice, or not at first")
				}
				states[c].lost = true
			},
			"renew": func(t *rapid.T) {
				h.asked = nil
				away := rapid.Bool().Draw(t, "away")
				gone := map[int]bool{}
				for key := range 4 {
					gone[key] = rapid.Bool().Draw(t, "gone")
				}
				h.answer = func(of []*claim) ([]error, error) {
					errs := make([]error, len(of))
					for i, c := range of {
						if gone[c.key] {
							errs[i] = errMoved
						}
					}
					if away {
						return nil, errors.New("away")
					}
					return errs, nil
				}
				var want []int
				for key, c := range now {
					s := states[c]
					if s.lost {
						continue
					}
					want = append(want, key)
					if !away && gone[key] && !s.settling {
						s.lost = true
						told = append(told, key)
					}
				}
				h.Renew(context.Background(), h.All()...)
				slices.Sort(want)
				if got := slices.Sorted(slices.Values(slices.Concat(h.asked...))); !slices.Equal(got, want) {
					t.Fatalf("renewed %v, not %v", got, want)
				}
			},
			"": func(t *rapid.T) {
				idle, running := 0, 0
				for key, c := range now {
					if got, held := h.Get(key); got != c || !held || !h.Holds(c) {
						t.Fatalf("%d: %v", key, got)
					}
					if states[c].idle {
						idle++
					}
					if states[c].runs {
						running++
					}
				}
				if n, m := h.Len(); n != len(now) || m != idle || h.Running() != running || len(h.All()) != n {
					t.Fatalf("%d held, %d idle, %d run; not %d, %d, %d", n, m, h.Running(), len(now), idle, running)
				}
				for c, s := range states {
					if c.Lost() != s.lost || c.Settling() != s.settling || c.Runs() != s.runs || h.Holds(c) != (now[c.key] == c) {
						t.Fatalf("%d: %+v", c.key, s)
					}
				}
				slices.Sort(told)
				if got := slices.Sorted(slices.Values(h.told)); !slices.Equal(got, told) {
					t.Fatalf("told of %v, not %v", got, told)
				}
			},
		})
	})
}
