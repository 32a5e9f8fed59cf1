package resultstoretest

import (
	"context"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/resultstore"
)

// closeCases returns the cases of the behaviour of Close.
func closeCases() []testCase {
	return []testCase{
		{
			Area: "close", Name: "a closed store",
			Explain: "After Close every call returns ErrClosed, so that a late caller learns the reason. Further calls of Close do nothing.",
			Run: func(w *world) {
				s := w.Open()
				w.listen(w.Open(), w.node("n"))
				w.Close(s)
				w.Close(s)
				ctx, cancel := w.Ctx()
				defer cancel()
				r := w.succeeded(w.node("n"))
				w.WantIs(s.Save(ctx, r), resultstore.ErrClosed, "Save")
				_, err := s.Load(ctx, r.ID)
				w.WantIs(err, resultstore.ErrClosed, "Load")
				w.WantIs(s.Delete(ctx, r.ID), resultstore.ErrClosed, "Delete")
				if n, ok := capability.As[resultstore.Notifier](s); ok {
					_, err := n.Notify(ctx, w.node("n"))
					w.WantIs(err, resultstore.ErrClosed, "Notify")
				}
				if r, ok := capability.As[resultstore.Replier](s); ok {
					_, err := r.Replies(ctx, w.node("n"))
					w.WantIs(err, resultstore.ErrClosed, "Replies")
				}
			},
		},
		{
			Area: "close", Name: "its streams end",
			Explain: "Close releases all resources: a waiting Receive returns ErrClosed. Otherwise its goroutine would leak.",
			Needs:   []need{needsNotify},
			Run: func(w *world) {
				s := w.Open()
				n := w.notify(s, w.node("n"))
				ended := make(chan error, 1)
				go func() { _, err := n.Receive(context.Background()); ended <- err }()
				w.Close(s)
				w.WantIs(suite.Ends(w.World, ended, "Receive after the store was closed"), resultstore.ErrClosed, "Receive")
				w.closeStream(n)
			},
		},
		{
			Area: "close", Name: "other processes go on",
			Explain: "Close ends only the view of this process and removes no record.",
			Needs:   []need{needsRecords},
			Run: func(w *world) {
				a, b := w.Open(), w.Open()
				r := w.succeeded("")
				w.save(a, r)
				w.Close(a)
				w.wantLoad(b, r, "a record of a process that has closed")
				later := w.succeeded("")
				w.save(b, later)
				w.wantLoad(w.Open(), later, "a record in a process that came later")
			},
		},
		{
			Area: "close", Name: "a context that has ended",
			Explain: "No call blocks after its ctx has ended, and no call with an ended ctx reports a success that it cannot know.",
			Run: func(w *world) {
				s := w.Open()
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
					err := w.Clean(suite.Ends(w.World, done, call+" with an ended context"))
					if call != "Delete" && err == nil {
						w.Errorf("%s with an ended context reported success", call)
					}
				}
			},
		},
	}
}
