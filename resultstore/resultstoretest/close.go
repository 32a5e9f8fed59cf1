package resultstoretest

import (
	"context"

	"github.com/swarmiji/swarmiji/resultstore"
)

func closeCases() []testCase {
	return []testCase{
		{
			area: "close", name: "a closed store",
			explain: "After Close every call returns ErrClosed, so that a late caller is told what is wrong; Close is idempotent.",
			run: func(w *world) {
				s := w.open()
				w.listen(w.open(), w.node("n"))
				w.closeStore(s)
				w.closeStore(s)
				ctx, cancel := w.ctx()
				defer cancel()
				r := w.succeeded(w.node("n"))
				w.wantIs(s.Save(ctx, r), resultstore.ErrClosed, "Save")
				_, err := s.Load(ctx, r.ID)
				w.wantIs(err, resultstore.ErrClosed, "Load")
				w.wantIs(s.Delete(ctx, r.ID), resultstore.ErrClosed, "Delete")
				if n, ok := s.(resultstore.Notifier); ok {
					_, err := n.Notify(ctx, w.node("n"))
					w.wantIs(err, resultstore.ErrClosed, "Notify")
				}
			},
		},
		{
			area: "close", name: "its streams end",
			explain: "Close releases all resources: a Receive that waits returns ErrClosed, else its goroutine would stay for ever.",
			needs:   []need{needsNotify},
			run: func(w *world) {
				s := w.open()
				n := w.notify(s, w.node("n"))
				ended := make(chan error, 1)
				go func() { _, err := n.Receive(context.Background()); ended <- err }()
				w.closeStore(s)
				w.wantIs(ends(w, ended, "Receive after the store was closed"), resultstore.ErrClosed, "Receive")
				w.closeStream(n)
			},
		},
		{
			area: "close", name: "other processes go on",
			explain: "Close ends this process's view and nobody else's, and takes no record with it.",
			needs:   []need{needsRecords},
			run: func(w *world) {
				a, b := w.open(), w.open()
				r := w.succeeded("")
				w.save(a, r)
				w.closeStore(a)
				w.wantLoad(b, r, "a record of a process that has closed")
				later := w.succeeded("")
				w.save(b, later)
				w.wantLoad(w.open(), later, "a record in a process that came later")
			},
		},
		{
			area: "close", name: "a context that has ended",
			explain: "A ctx bounds every wait: with one that has ended no call stays, and none reports a success it cannot know.",
			run: func(w *world) {
				s := w.open()
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				done := make(chan error, 3)
				r := w.succeeded(w.node("n"))
				go func() {
					done <- s.Save(ctx, r)
					_, err := s.Load(ctx, r.ID)
					done <- err
					done <- s.Delete(ctx, r.ID)
				}()
				for _, call := range []string{"Save", "Load", "Delete"} {
					err := w.clean(ends(w, done, call+" with an ended context"))
					if call != "Delete" && err == nil {
						w.Errorf("%s with an ended context reported success", call)
					}
				}
			},
		},
	}
}
