package brokertest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
)

// listCases returns the cases of QueueLister, Lister and DeadFinder.
func listCases() []testCase {
	return []testCase{
		{
			Area: "list", Name: "which queues exist", Needs: []need{needsNames},
			Explain: "Queues returns the names of the queues that exist, sorted, to every Broker of the namespace.",
			Run: func(w *world) {
				b := w.Open()
				var want []string
				for _, n := range []string{"b", "a.b", "a", "Z-9_x"} {
					q := w.queue(b, n)
					w.publish(b, q, msg("in-"+n))
					want = append(want, q)
				}
				slices.Sort(want)
				ctx, cancel := w.Ctx()
				defer cancel()
				for _, b := range []broker.Broker{b, w.Open()} {
					all, err := broker.Queues(ctx, b)
					w.Must(err, "Queues")
					var got []string
					for _, q := range all {
						if strings.HasPrefix(q, w.h.Prefix) {
							got = append(got, q)
						}
					}
					if !slices.Equal(got, want) {
						w.Errorf("the queues are %q, want %q", got, want)
					}
				}
			},
		},
		{
			Area: "list", Name: "waiting messages", Needs: []need{needsList},
			Explain: "List returns the waiting messages in the order of their delivery, page by page, to every Broker. It counts no delivery and moves nothing.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "waiting")
				ms := msgs("m", 7)
				begin := time.Now()
				w.publish(b, q, ms...)
				for range 2 {
					w.wantPages(w.Open(), q, broker.PlaceWaiting, 3, ms...)
				}
				for _, l := range w.pages(b, q, broker.PlaceWaiting, 100) {
					if late := l.At.Sub(begin); !l.At.IsZero() && late.Abs() > w.Slack {
						w.Errorf("%s waits since %v, %v from the time of publishing", name(l.Message), l.At, late)
					}
				}
				s := w.subscribe(b, q, 0)
				for range ms {
					d := w.receive(s)
					w.wantFirst(d, "a message that was listed")
					w.ack(d)
				}
				w.wantPages(b, q, broker.PlaceWaiting, 3)
			},
		},
		{
			Area: "list", Name: "the most urgent first", Needs: []need{needsList, needsPriorities},
			Explain: "Waiting messages come in the order of their delivery: the most urgent level first. A page may end within a level or at its end.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "levels", 10, 100, 1000)
				byLevel := map[int][]*broker.Message{}
				for i := range 4 {
					for _, p := range []int{500, 100, 0} {
						m := msg(fmt.Sprintf("p%d-%d", p, i))
						m.Priority = p
						w.publish(b, q, m)
						byLevel[p] = append(byLevel[p], m)
					}
				}
				want := slices.Concat(byLevel[0], byLevel[100], byLevel[500])
				for _, limit := range []int{1, 4, 5, 12, 13} {
					w.wantPages(b, q, broker.PlaceWaiting, limit, want...)
				}
			},
		},
		{
			Area: "list", Name: "delayed messages", Needs: []need{needsList, needsDelays},
			Explain: "Delayed messages have their times, and are no waiting ones. At its time a message waits.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "delayed")
				w.wantPages(b, q, broker.PlaceDelayed, 2)
				at := map[string]time.Time{}
				var ms []*broker.Message
				for i := range 5 {
					m := msg(fmt.Sprintf("m-%d", i))
					at[m.ID] = time.Now().Add(time.Duration(i+1) * time.Hour).Round(0) // a wall clock time
					w.publishAt(b, q, m, at[m.ID])
					ms = append(ms, m)
				}
				w.wantPages(w.Open(), q, broker.PlaceDelayed, 2, ms...)
				for _, l := range w.pages(b, q, broker.PlaceDelayed, 100) {
					if d := l.At.Sub(at[l.Message.ID]); d.Abs() > time.Millisecond {
						w.Errorf("%s is listed for %v, want %v", name(l.Message), l.At, at[l.Message.ID])
					}
				}
				w.wantPages(b, q, broker.PlaceWaiting, 2)
				soon := msg("soon")
				w.publishAt(b, q, soon, time.Now().Add(50*time.Millisecond))
				w.Until("the due message waits", func() bool { return len(w.pages(b, q, broker.PlaceWaiting, 10)) == 1 })
				w.wantPages(b, q, broker.PlaceDelayed, 100, ms...)
			},
		},
		{
			Area: "list", Name: "held messages", Needs: []need{needsList},
			Explain: "Held messages are those that consumers have not settled; they do not wait, and when they are settled they are in neither place.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "held")
				w.publish(b, q, msgs("m", 9)...)
				s := w.subscribe(b, q, 5)
				ds := w.receiveN(s, 5)
				held := w.idsOf(w.Open(), q, broker.PlaceHeld, 2)
				waiting := w.idsOf(b, q, broker.PlaceWaiting, 3)
				if len(held) != 5 || len(waiting) != 4 {
					w.Fatalf("%q are held and %q wait, want 5 and 4", held, waiting)
				}
				for _, d := range ds {
					if !slices.Contains(held, d.Message().ID) {
						w.Errorf("%s is held and not listed", name(d.Message()))
					}
				}
				w.closeSub(s)
				w.ack(ds...)
				w.Until("no message is held", func() bool { return len(w.idsOf(b, q, broker.PlaceHeld, 100)) == 0 })
				if n := len(w.idsOf(b, q, broker.PlaceWaiting, 100)); n != 4 {
					w.Errorf("%d messages wait, want 4", n)
				}
			},
		},
		{
			Area: "list", Name: "dead letters", Needs: []need{needsDeadLetters},
			Explain: "The function List shows dead letters by page on every broker that has them, the oldest first, with their reasons. They stay.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "dead")
				at := time.Now().Add(-time.Minute).Truncate(time.Millisecond)
				var ms []*broker.Message
				for i := range 5 {
					m := msg(fmt.Sprintf("m-%d", i))
					w.put(b, q, broker.Dead{Message: m, Reason: "why", Stack: "stack", Attempts: 2, At: at})
					ms = append(ms, m)
				}
				for range 2 {
					w.wantPages(w.Open(), q, broker.PlaceDead, 2, ms...)
				}
				for _, l := range w.pages(b, q, broker.PlaceDead, 100) {
					if l.Dead == nil || !l.At.Equal(l.Dead.At) || l.Dead.Message.ID != l.Message.ID {
						w.Fatalf("%s is listed as %+v", name(l.Message), l)
					}
					w.wantNotes(*l.Dead, broker.Dead{Queue: q, Reason: "why", Stack: "stack", Attempts: 2, At: at})
				}
				w.listDead(b, q, 10, 5)
			},
		},
		{
			Area: "list", Name: "wrong questions", Needs: []need{needsList},
			Explain: "An unknown place and a malformed cursor are ErrMalformed, whatever the place. A Limit above MaxPage counts as MaxPage, and below 1 as DefaultPage.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "wrong")
				l, _ := capability.As[broker.Lister](b)
				ctx, cancel := w.Ctx()
				defer cancel()
				for _, place := range []broker.Place{"", "gone", "WAITING"} {
					_, err := l.List(ctx, q, broker.ListQuery{Place: place})
					w.WantIs(err, broker.ErrMalformed, "List of place %q", place)
				}
				for _, place := range broker.Places() {
					for _, cursor := range []string{"x", "-1", "-1.-1.-1", "99999999999999999999", "\x00", "é.1"} {
						_, err := l.List(ctx, q, broker.ListQuery{Place: place, Cursor: cursor})
						w.WantIs(err, broker.ErrMalformed, "List of place %q with cursor %q", place, cursor)
					}
				}
				w.publish(b, q, msgs("m", broker.DefaultPage+1)...)
				for limit, most := range map[int]int{0: broker.DefaultPage, -5: broker.DefaultPage, 1 << 40: broker.MaxPage} {
					p, err := l.List(ctx, q, broker.ListQuery{Place: broker.PlaceWaiting, Limit: limit})
					w.Must(err, "List with the limit %d", limit)
					if n := len(p.Messages); n > most || n == 0 {
						w.Errorf("a page with the limit %d has %d messages", limit, n)
					}
				}
			},
		},
		{
			Area: "list", Name: "a missing queue is ErrNoQueue", Needs: []need{needsList, needsQueues},
			Explain: "List of a queue that does not exist is ErrNoQueue for each place, and does not create the queue.",
			Run: func(w *world) {
				b := w.Open()
				ctx, cancel := w.Ctx()
				defer cancel()
				for range 2 {
					for _, place := range broker.Places() {
						_, err := broker.List(ctx, b, w.h.Prefix+"missing", broker.ListQuery{Place: place})
						w.WantIs(err, broker.ErrNoQueue, "List of the %s messages of a queue that does not exist", place)
					}
				}
			},
		},
		{
			Area: "list", Name: "what a broker cannot tell is ErrUnsupported",
			Explain: "The functions Queues and List return ErrUnsupported where the broker has neither the interface nor another way.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "unsupported")
				ctx, cancel := w.Ctx()
				defer cancel()
				if _, err := broker.Queues(ctx, b); !w.h.Promises.Queues {
					w.WantIs(err, broker.ErrUnsupported, "Queues")
				}
				for _, place := range broker.Places() {
					_, err := broker.List(ctx, b, q, broker.ListQuery{Place: place})
					if w.h.Promises.List || place == broker.PlaceDead && w.h.Promises.DeadLetters {
						w.Must(err, "List of the %s messages", place)
					} else {
						w.WantIs(err, broker.ErrUnsupported, "List of the %s messages", place)
					}
				}
			},
		},
		{
			Area: "list", Name: "dead letters by id", Needs: []need{needsDeadByID},
			Explain: "ScanDeadID shows only the letters of one id, the oldest first, and removes them as ScanDead does. Ids that begin alike are different ids.",
			Run: func(w *world) {
				b := w.Open()
				f, _ := capability.As[broker.DeadFinder](b)
				q := w.queue(b, "by-id")
				next := msg("a")
				next.Generation = 1
				for _, m := range []*broker.Message{msg("b"), msg("a"), msg("a.b"), msg("aa"), next, msg("a/1")} {
					w.put(b, q, broker.Dead{Message: m, Reason: "why"})
				}
				ctx, cancel := w.Ctx()
				defer cancel()
				scan := func(id string, action broker.DeadAction, want ...string) {
					w.Helper()
					var got []string
					w.Must(f.ScanDeadID(ctx, q, id, func(d *broker.Dead) broker.DeadAction {
						got = append(got, name(d.Message))
						return action
					}), "ScanDeadID(%q)", id)
					if !slices.Equal(got, want) {
						w.Errorf("the letters of id %q are %q, want %q", id, got, want)
					}
				}
				scan("a", broker.DeadKeep, "a/0", "a/1")
				scan("a", broker.DeadStop, "a/0")
				scan("a.b", broker.DeadKeep, "a.b/0")
				for _, id := range []string{"c", "", "*", ">", "a.*", strings.Repeat("x", 300), "x\x00y"} {
					scan(id, broker.DeadKeep)
				}
				scan("a", broker.DeadRemove, "a/0", "a/1")
				scan("a", broker.DeadKeep)
				w.scans(b, q, nil, "b", "a.b", "aa", "a/1")
				if !w.h.Promises.OpenQueues {
					err := f.ScanDeadID(ctx, w.h.Prefix+"missing", "a", func(*broker.Dead) broker.DeadAction { return broker.DeadKeep })
					w.WantIs(err, broker.ErrNoQueue, "ScanDeadID of a queue that does not exist")
				}
			},
		},
	}
}

// pages returns the messages of all pages of a place, read with the given limit. It expects that no
// page has more messages. An error of List fails the case at once.
func (w *world) pages(b broker.Broker, queue string, place broker.Place, limit int) (all []broker.Listed) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	q := broker.ListQuery{Place: place, Limit: limit}
	for {
		p, err := broker.List(ctx, b, queue, q)
		w.Must(err, "List(%q, %+v)", queue, q)
		if len(p.Messages) > limit {
			w.Errorf("a page with the limit %d has %d messages", limit, len(p.Messages))
		}
		all = append(all, p.Messages...)
		if p.Next == "" || w.Failed() {
			return all
		}
		if p.Next == q.Cursor {
			w.Fatalf("the page after cursor %q has the same cursor", q.Cursor)
		}
		q.Cursor = p.Next
	}
}

// idsOf returns the ids of the messages of all pages of a place.
func (w *world) idsOf(b broker.Broker, queue string, place broker.Place, limit int) (ids []string) {
	w.Helper()
	for _, l := range w.pages(b, queue, place, limit) {
		ids = append(ids, l.Message.ID)
	}
	return ids
}

// wantPages polls until the pages of a place, read with the given limit, hold the messages want in
// their order. A server may show a message a moment late. It fails the case at once if the suite's
// patience ends first, and expects that each message is unchanged.
func (w *world) wantPages(b broker.Broker, queue string, place broker.Place, limit int, want ...*broker.Message) {
	w.Helper()
	var got []*broker.Message
	ok := w.Poll(func() bool {
		got = nil
		for _, l := range w.pages(b, queue, place, limit) {
			got = append(got, l.Message)
		}
		return slices.Equal(names(got...), names(want...))
	})
	if !ok {
		w.Fatalf("the %s messages of queue %q are %q, want %q", place, queue, names(got...), names(want...))
	}
	for i, m := range want {
		if diff := diffMessage(m, got[i]); diff != "" {
			w.Errorf("%s is listed as another message:\n%s", name(m), diff)
		}
	}
}
