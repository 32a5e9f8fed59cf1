package brokertest

import (
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
)

// findCases returns the cases of Finder.
func findCases() []testCase {
	return []testCase{
		{
			Area: "find", Name: "Find", Needs: []need{needsFind, needsDelays},
			Explain: "Find returns a message that is queued or delayed, with its time; ErrNotFound if it does not exist or a consumer holds it.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "find")
				f := w.finder(b)
				ctx, cancel := w.Ctx()
				defer cancel()
				at := time.Now().Add(time.Hour).Round(0) // a wall clock time
				w.publish(b, q, msg("a"), msg("b"))
				w.publishAt(b, q, msg("later"), at)
				for id, when := range map[string]time.Time{"a": {}, "b": {}, "later": at} {
					o, err := f.Find(ctx, q, id)
					w.Must(err, "Find(%q)", id)
					if diff := diffMessage(msg(id), o.Message); diff != "" || o.Queue != q {
						w.Errorf("Find(%q) in queue %q:\n%s", id, o.Queue, diff)
					}
					if d := o.At.Sub(when); d.Abs() > time.Millisecond {
						w.Errorf("Find(%q) has time %v, want %v", id, o.At, when)
					}
				}
				_, err := f.Find(ctx, q, "never")
				w.WantIs(err, broker.ErrNotFound, "Find of an id that was never published")
				d := w.receiveID(w.subscribe(b, q, 1), "a")
				_, err = f.Find(ctx, q, "a")
				w.WantIs(err, broker.ErrNotFound, "Find of a held message")
				w.WantIs(f.Delete(ctx, q, "a"), broker.ErrNotFound, "Delete of a held message")
				w.WantIs(f.Update(ctx, q, broker.Outgoing{Queue: q, Message: msg("a")}), broker.ErrNotFound, "Update of a held message")
				w.ack(d)
				_, err = f.Find(ctx, q, "a")
				w.WantIs(err, broker.ErrNotFound, "Find of an acknowledged message")
			},
		},
		{
			Area: "find", Name: "Delete", Needs: []need{needsFind, needsDelays},
			Explain: "Delete removes a message that is queued or delayed; ErrNotFound if it does not exist.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "delete")
				f := w.finder(b)
				ctx, cancel := w.Ctx()
				defer cancel()
				w.publish(b, q, msg("a"), msg("b"), msg("c"))
				w.publishAt(b, q, msg("later"), time.Now().Add(200*time.Millisecond))
				for _, id := range []string{"b", "later"} {
					w.Must(f.Delete(ctx, q, id), "Delete(%q)", id)
					w.WantIs(f.Delete(ctx, q, id), broker.ErrNotFound, "a second Delete(%q)", id)
				}
				s := w.subscribe(b, q, 0)
				w.drain(s, "a/0", "c/0")
				w.publish(b, q, msg("b"))
				w.drain(s, "b/0")
			},
		},
		{
			Area: "find", Name: "Update", Needs: []need{needsFind, needsDelays},
			Explain: "Update replaces a waiting message by one of the same ID, and may change its time: from now to later, from later to now.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "update")
				f := w.finder(b)
				ctx, cancel := w.Ctx()
				defer cancel()
				w.publish(b, q, msg("stays"), msg("waits"))
				w.publishAt(b, q, msg("comes"), time.Now().Add(time.Hour))
				at := time.Now().Add(300 * time.Millisecond)
				for id, when := range map[string]time.Time{"stays": {}, "waits": at, "comes": {}} {
					m := msg(id)
					m.Body = []byte("updated")
					w.Must(f.Update(ctx, q, broker.Outgoing{Queue: q, Message: m, At: when}), "Update(%q)", id)
				}
				w.WantIs(f.Update(ctx, q, broker.Outgoing{Queue: q, Message: msg("none")}), broker.ErrNotFound, "Update of no message")
				s := w.subscribe(b, q, 0)
				got := map[string]string{}
				for range 3 {
					d := w.receive(s)
					if d.Message().ID == "waits" {
						w.onTime(at, "a message moved by 300ms")
					}
					got[d.Message().ID] = string(d.Message().Body)
					w.ack(d)
				}
				if diff := cmp.Diff(map[string]string{"stays": "updated", "waits": "updated", "comes": "updated"}, got); diff != "" {
					w.Errorf("bodies after Update (-want +got):\n%s", diff)
				}
				w.nothing(s, "after all")
			},
		},
		{
			Area: "find", Name: "a missing queue is ErrNoQueue", Needs: []need{needsFind},
			Explain: "A queue that does not exist is ErrNoQueue, not ErrNotFound.",
			Run: func(w *world) {
				b := w.Open()
				f := w.finder(b)
				ctx, cancel := w.Ctx()
				defer cancel()
				_, err := f.Find(ctx, w.h.Prefix+"missing", "a")
				w.WantIs(err, broker.ErrNoQueue, "Find in a queue that does not exist")
				w.WantIs(f.Delete(ctx, w.h.Prefix+"missing", "a"), broker.ErrNoQueue, "Delete in a queue that does not exist")
			},
		},
	}
}

// finder returns b as a Finder. It fails the case at once if b is not a Finder.
func (w *world) finder(b broker.Broker) broker.Finder {
	w.Helper()
	f, ok := capability.As[broker.Finder](b)
	if !ok {
		w.Fatal("Find is promised and there is no broker.Finder")
	}
	return f
}
