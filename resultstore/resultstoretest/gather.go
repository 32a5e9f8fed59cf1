package resultstoretest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// gatherCases returns the cases of the sentences of [resultstore.Gatherer].
func gatherCases() []testCase {
	return []testCase{
		{
			Area: "gather", Name: "the interface is there when it is promised",
			Explain: "A store that implements Gatherer also promises it, so that it is tested.",
			Run: func(w *world) {
				s := w.Open()
				if _, got := capability.As[resultstore.Gatherer](s); got != w.h.Promises.Gather {
					w.Errorf("the store is a Gatherer: %v, promised is %v", got, w.h.Promises.Gather)
				}
			},
		},
		{
			Area: "gather", Name: "the last member decides",
			Explain: "The arrival that completes the group decides it, in any process, and stays the decider however often members arrive again. Only the consumer that repeats this arrival submits the successor.",
			Needs:   []need{needsGather},
			Run: func(w *world) {
				a, b := w.gatherer(), w.gatherer()
				group := w.id()
				w.arrive(a, w.member(group, 2, 3), resultstore.Gathered{Size: 3, Done: 1, Decider: -1})
				w.arrive(b, w.member(group, 0, 3), resultstore.Gathered{Size: 3, Done: 2, Decider: -1})
				w.arrive(b, w.member(group, 2, 3), resultstore.Gathered{Size: 3, Done: 2, Decider: -1})
				last := resultstore.Gathered{Size: 3, Done: 3, Decider: 1}
				w.arrive(a, w.member(group, 1, 3), last)
				for _, i := range []int{0, 1, 2} {
					w.arrive(b, w.member(group, i, 3), last)
				}
				w.arrive(a, w.member(w.id(), 0, 1), resultstore.Gathered{Size: 1, Done: 1})
			},
		},
		{
			Area: "gather", Name: "the size may come last, or first",
			Explain: "A stream knows its number of members only when the last one is submitted, and that member may end before or after the others.",
			Needs:   []need{needsGather},
			Run: func(w *world) {
				s := w.gatherer()
				first, last := w.id(), w.id()
				w.arrive(s, w.member(first, 2, 3), resultstore.Gathered{Size: 3, Done: 1, Decider: -1})
				w.arrive(s, w.member(first, 1, 0), resultstore.Gathered{Size: 3, Done: 2, Decider: -1})
				w.arrive(s, w.member(first, 0, 0), resultstore.Gathered{Size: 3, Done: 3, Decider: 0})
				w.arrive(s, w.member(last, 0, 0), resultstore.Gathered{Done: 1, Decider: -1})
				w.arrive(s, w.member(last, 1, 0), resultstore.Gathered{Done: 2, Decider: -1})
				w.arrive(s, w.member(last, 1, 2), resultstore.Gathered{Size: 2, Done: 2, Decider: 1})
			},
		},
		{
			Area: "gather", Name: "a failure that decides",
			Explain: "The first arrival with Decides set decides the group while others are missing. Later arrivals are stored and do not change the decision. Failures are counted.",
			Needs:   []need{needsGather},
			Run: func(w *world) {
				s := w.gatherer()
				group := w.id()
				failed := func(i int) resultstore.Arrival {
					m := w.member(group, i, 4)
					m.Decides, m.Record.State, m.Record.Result, m.Record.ContentType = true, task.StateFailed, nil, ""
					m.Record.Error = &task.RemoteError{Type: "t", Message: fmt.Sprint("failure ", i), Stack: "here"}
					return m
				}
				w.arrive(s, w.member(group, 0, 4), resultstore.Gathered{Size: 4, Done: 1, Decider: -1})
				w.arrive(s, failed(2), resultstore.Gathered{Size: 4, Done: 2, Failed: 1, Decider: 2})
				w.arrive(s, failed(1), resultstore.Gathered{Size: 4, Done: 3, Failed: 2, Decider: 2})
				w.arrive(s, failed(2), resultstore.Gathered{Size: 4, Done: 3, Failed: 2, Decider: 2})
				w.arrive(s, w.member(group, 3, 4), resultstore.Gathered{Size: 4, Done: 4, Failed: 2, Decider: 2})
				w.wantMembers(s, group, 1, 2, failed(1).Record, failed(2).Record)
			},
		},
		{
			Area: "gather", Name: "the first arrival at an index is kept",
			Explain: "A second arrival at the same index does not change the stored member: a member that ran twice must not have two results.",
			Needs:   []need{needsGather},
			Run: func(w *world) {
				s := w.gatherer()
				group := w.id()
				m := w.member(group, 0, 2)
				w.arrive(s, m, resultstore.Gathered{Size: 2, Done: 1, Decider: -1})
				again := m
				again.Record.Result, again.Record.State, again.Decides = []byte("another"), task.StateFailed, true
				w.arrive(s, again, resultstore.Gathered{Size: 2, Done: 1, Decider: -1})
				w.wantMembers(s, group, 0, 10, m.Record)
			},
		},
		{
			Area: "gather", Name: "members in order, in pages",
			Explain: "Members returns the members from an index on, in order, at most limit of them, and stops before the first gap. An unknown group has no members.",
			Needs:   []need{needsGather},
			Run: func(w *world) {
				a, b := w.gatherer(), w.gatherer()
				group := w.id()
				var all []resultstore.Record
				for i := range 7 {
					m := w.member(group, 6-i, 8)
					all = append([]resultstore.Record{m.Record}, all...)
					w.arrive(a, m, resultstore.Gathered{Size: 8, Done: i + 1, Decider: -1})
				}
				w.wantMembers(b, group, 0, 3, all[:3]...)
				w.wantMembers(b, group, 3, 100, all[3:]...)
				w.wantMembers(b, group, 7, 100)
				w.wantMembers(b, w.id(), 0, 100)
			},
		},
		{
			Area: "gather", Name: "what has no place is refused",
			Explain: "A size that differs from the known one, or an index outside of it, returns ErrMalformed and stores nothing: two groups of one name must not mix.",
			Needs:   []need{needsGather},
			Run: func(w *world) {
				s := w.gatherer()
				group := w.id()
				w.arrive(s, w.member(group, 1, 0), resultstore.Gathered{Done: 1, Decider: -1})
				for _, m := range []resultstore.Arrival{w.member(group, 0, 1), w.member(group, -1, 0), w.member(group, 3, 3), w.member(group, 0, -1)} {
					w.refusePlace(s, m)
				}
				w.arrive(s, w.member(group, 0, 3), resultstore.Gathered{Size: 3, Done: 2, Decider: -1})
				w.refusePlace(s, w.member(group, 2, 4))
				w.refusePlace(s, w.member(group, 3, 0))
				w.arrive(s, w.member(group, 2, 0), resultstore.Gathered{Size: 3, Done: 3, Decider: 2})
			},
		},
		{
			Area: "gather", Name: "many at a time",
			Explain: "Each method is one atomic step: of many concurrent arrivals, some of them repeated, exactly one member is the decider, and every call returns the same one.",
			Needs:   []need{needsGather},
			Run: func(w *world) {
				const n, each = 24, 2
				group := w.id()
				var deciders [n + 1]atomic.Int64
				var wg sync.WaitGroup
				for g := range each {
					s := w.gatherer()
					for i := range n {
						m := w.member(group, (i+g*n/each)%n, n)
						wg.Go(func() {
							ctx, cancel := w.Ctx()
							defer cancel()
							got, err := s.Arrive(ctx, m)
							if w.Clean(err) != nil {
								w.Errorf("Arrive: %v", err)
								return
							}
							deciders[got.Decider+1].Add(1)
						})
					}
				}
				wg.Wait()
				known := 0
				for i := range n {
					if deciders[i+1].Load() > 0 {
						known++
					}
				}
				if known != 1 {
					w.Fatalf("%d members were called the decider", known)
				}
			},
		},
		{
			Area: "gather", Name: "what is known of a group",
			Explain: "Group returns the state that Arrive returned last, in every process. It returns ErrNotFound for a group without arrivals.",
			Needs:   []need{needsGather},
			Run: func(w *world) {
				a, b := w.gatherer(), w.gatherer()
				group := w.id()
				w.wantNoGroup(a, group)
				for i, want := range []resultstore.Gathered{
					{Done: 1, Decider: -1}, {Size: 3, Done: 2, Decider: -1}, {Size: 3, Done: 3, Failed: 1, Decider: 2},
				} {
					m := w.member(group, i, 3*min(i, 1))
					if i == 2 {
						m.Record.State, m.Record.Result, m.Record.ContentType = task.StateFailed, nil, ""
					}
					w.arrive(a, m, want)
					if got, err := w.group(b, group); err != nil || got != want {
						w.Errorf("Group after member %d: %+v, %v; want %+v", i, got, err, want)
					}
				}
			},
		},
		{
			Area: "gather", Name: "a group waits longer than it is kept",
			Explain: "Wait is the retention of an undecided group and TTL that of a decided one: a member may take days, and decided groups must not fill the store for as long.",
			Needs:   []need{needsGather, needsTTL},
			Run: func(w *world) {
				s := w.gatherer()
				ttl := w.h.Promises.TTL
				waits, decided, failed, given := w.id(), w.id(), w.id(), w.id()
				with := func(m resultstore.Arrival, ttl, wait time.Duration) resultstore.Arrival {
					m.TTL, m.Wait = ttl, wait
					return m
				}
				first := with(w.member(waits, 0, 2), ttl, time.Hour)
				w.arrive(s, first, resultstore.Gathered{Size: 2, Done: 1, Decider: -1})
				fails := with(w.member(failed, 1, 3), ttl, time.Hour)
				fails.Decides, fails.Record.State = true, task.StateFailed
				w.arrive(s, fails, resultstore.Gathered{Size: 3, Done: 1, Failed: 1, Decider: 1})
				w.arrive(s, with(w.member(decided, 0, 2), ttl, time.Hour), resultstore.Gathered{Size: 2, Done: 1, Decider: -1})
				w.arrive(s, with(w.member(decided, 1, 2), ttl, time.Hour), resultstore.Gathered{Size: 2, Done: 2, Decider: 1})
				w.arrive(s, with(w.member(given, 0, 2), time.Hour, ttl), resultstore.Gathered{Size: 2, Done: 1, Decider: -1})
				for _, group := range []task.ID{decided, failed, given} {
					w.Until("a group whose time is over is forgotten", func() bool {
						_, err := w.group(s, group)
						return errors.Is(err, resultstore.ErrNotFound) && len(w.members(s, group, 0, 2)) == 0
					})
				}
				w.wantMembers(s, waits, 0, 2, first.Record)
				w.arrive(s, with(w.member(waits, 1, 2), time.Hour, ttl), resultstore.Gathered{Size: 2, Done: 2, Decider: 1})
			},
		},
		{
			Area: "gather", Name: "a group is forgotten",
			Explain: "A group is kept for TTL after its last arrival and no longer. No other mechanism removes it.",
			Needs:   []need{needsGather, needsTTL},
			Run: func(w *world) {
				s := w.gatherer()
				group, begun, stays := w.id(), w.id(), w.id()
				ttl := w.h.Promises.TTL
				m, k := w.member(group, 0, 2), w.member(stays, 0, 2)
				m.TTL, k.TTL, m.Wait, k.Wait = ttl, time.Hour, ttl, time.Hour
				w.arrive(s, k, resultstore.Gathered{Size: 2, Done: 1, Decider: -1})
				w.begin(s, begun, "a", ttl, true)
				w.arrive(s, m, resultstore.Gathered{Size: 2, Done: 1, Decider: -1})
				w.Until("the group is forgotten", func() bool { return len(w.members(s, group, 0, 1)) == 0 })
				w.Until("the copy is forgotten", func() bool {
					ctx, cancel := w.Ctx()
					defer cancel()
					first, err := s.Begin(ctx, begun, "b", time.Hour)
					return w.Clean(err) == nil && first
				})
				other := w.member(group, 1, 3) // another size is accepted because the first group has expired
				other.TTL, other.Wait = time.Hour, time.Hour
				w.arrive(s, other, resultstore.Gathered{Size: 3, Done: 1, Decider: -1})
				w.wantMembers(s, stays, 0, 1, k.Record)
			},
		},
		{
			Area: "gather", Name: "one copy begins",
			Explain: "Begin returns true for the copy that calls first, however often it calls, and false for every other copy: of two messages of one task one runs, and runs again if its consumer dies.",
			Needs:   []need{needsGather},
			Run: func(w *world) {
				a, b := w.gatherer(), w.gatherer()
				id := w.id()
				w.begin(a, id, "one", 0, true)
				w.begin(b, id, "two", 0, false)
				w.begin(b, id, "one", 0, true)
				w.begin(a, w.id(), "two", 0, true)
				contested := w.id()
				var firsts atomic.Int64
				var wg sync.WaitGroup
				for i := range 16 {
					wg.Go(func() {
						ctx, cancel := w.Ctx()
						defer cancel()
						if first, err := a.Begin(ctx, contested, fmt.Sprint(i), time.Hour); err == nil && first {
							firsts.Add(1)
						}
					})
				}
				wg.Wait()
				if n := firsts.Load(); n != 1 {
					w.Errorf("%d of 16 copies at a time were the first", n)
				}
			},
		},
		{
			Area: "gather", Name: "what is no id is refused",
			Explain: "Ids become keys and subjects, so an invalid id is refused.",
			Needs:   []need{needsGather},
			Run: func(w *world) {
				s := w.gatherer()
				ctx, cancel := w.Ctx()
				defer cancel()
				for _, id := range []task.ID{"", "a b", "a\n"} {
					if _, err := s.Arrive(ctx, w.member(id, 0, 1)); w.Clean(err) == nil {
						w.Errorf("Arrive took the group %q", id)
					}
					if _, err := s.Group(ctx, id); w.Clean(err) == nil || errors.Is(err, resultstore.ErrNotFound) {
						w.Errorf("Group took the group %q", id)
					}
					if _, err := s.Members(ctx, id, 0, 1); w.Clean(err) == nil {
						w.Errorf("Members took the group %q", id)
					}
					if _, err := s.Begin(ctx, id, "c", 0); w.Clean(err) == nil {
						w.Errorf("Begin took the id %q", id)
					}
				}
			},
		},
	}
}

// needsGather returns the reason to skip a case, "" if the adapter promises Gather.
func needsGather(h *Harness) string {
	if h.Promises.Gather {
		return ""
	}
	return "the adapter does not promise Gather"
}

// gatherer opens a store as a Gatherer.
func (w *world) gatherer() resultstore.Gatherer {
	w.Helper()
	return suite.Offer[resultstore.Gatherer](w, w.Open())
}

// member returns the arrival of a member that succeeded.
func (w *world) member(group task.ID, index, size int) resultstore.Arrival {
	return resultstore.Arrival{Group: group, Index: index, Size: size, Record: resultstore.Record{
		ID: task.ID(fmt.Sprintf("%smember-%d", w.h.Prefix, max(index, 0))), Name: "member", State: task.StateSucceeded,
		ContentType: "application/json", Result: []byte(fmt.Sprint(index)),
	}}
}

// arrive calls Arrive and fails the case unless it returns the state want.
func (w *world) arrive(s resultstore.Gatherer, a resultstore.Arrival, want resultstore.Gathered) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	got, err := s.Arrive(ctx, a)
	w.Must(err, "Arrive of member %d", a.Index)
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("after the arrival of member %d (-want +got):\n%s", a.Index, diff)
	}
}

// group returns the state of a group and the error of Group. It fails the case if the error
// contains the secret.
func (w *world) group(s resultstore.Gatherer, group task.ID) (resultstore.Gathered, error) {
	ctx, cancel := w.Ctx()
	defer cancel()
	g, err := s.Group(ctx, group)
	return g, w.Clean(err)
}

// wantNoGroup fails the case unless Group returns ErrNotFound.
func (w *world) wantNoGroup(s resultstore.Gatherer, group task.ID) {
	w.Helper()
	_, err := w.group(s, group)
	w.WantIs(err, resultstore.ErrNotFound, "Group of one that is not known")
}

// refusePlace fails the case unless Arrive returns ErrMalformed.
func (w *world) refusePlace(s resultstore.Gatherer, a resultstore.Arrival) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	_, err := s.Arrive(ctx, a)
	w.WantIs(err, resultstore.ErrMalformed, "Arrive of member %d of %d", a.Index, a.Size)
}

// members returns the result of Members and fails the case on an error.
func (w *world) members(s resultstore.Gatherer, group task.ID, from, limit int) []resultstore.Record {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	got, err := s.Members(ctx, group, from, limit)
	w.Must(err, "Members")
	return got
}

// wantMembers fails the case unless Members returns the records want, in their order.
func (w *world) wantMembers(s resultstore.Gatherer, group task.ID, from, limit int, want ...resultstore.Record) {
	w.Helper()
	got := w.members(s, group, from, limit)
	if len(got) != len(want) {
		w.Fatalf("Members from %d, at most %d: %d of them, want %d", from, limit, len(got), len(want))
	}
	for i := range want {
		if diff := diffRecord(want[i], got[i]); diff != "" {
			w.Errorf("member %d (-arrived +read):\n%s", from+i, diff)
		}
	}
}

// begin calls Begin and fails the case unless it returns want.
func (w *world) begin(s resultstore.Gatherer, id task.ID, which string, ttl time.Duration, want bool) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	got, err := s.Begin(ctx, id, which, ttl)
	w.Must(err, "Begin")
	if got != want {
		w.Errorf("Begin of copy %q is %v, want %v", which, got, want)
	}
}
