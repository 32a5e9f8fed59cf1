package resultstoretest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// faultCases returns the cases of faults of the server and the connection.
func faultCases() []testCase {
	return []testCase{
		{
			Area: "fault", Name: "a severed connection",
			Explain: "A store survives a lost connection. Calls during the loss wait until ctx ends or return ErrUnavailable. Later calls succeed without help from the caller.",
			Needs:   []need{needsRecords, needsSever},
			Run: func(w *world) {
				s := w.Open()
				for range 3 {
					r := w.succeeded("")
					w.save(s, r)
					w.h.Sever(w.TB, s)
					w.Until("Load after a severed connection", func() bool {
						ctx, cancel := context.WithTimeout(context.Background(), w.Patience/4)
						defer cancel()
						got, err := s.Load(ctx, r.ID)
						if err == nil && diffRecord(r, got) != "" {
							w.Errorf("another record came back (-saved +loaded):\n%s", diffRecord(r, got))
						}
						if errors.Is(w.Clean(err), resultstore.ErrNotFound) {
							w.Fatalf("a lost connection was taken for a lost record: %v", err)
						}
						return err == nil
					})
					again := w.succeeded("")
					w.saveThrough(s, again)
					w.wantLoad(s, again, "a record saved after a severed connection")
				}
			},
		},
		{
			Area: "fault", Name: "the stream outlives a severed connection",
			Explain: "A stream of notifications survives lost connections, so that waiting futures need no change. Every confirmed record arrives on a reply queue, because its submitter has no other source.",
			Needs:   []need{needsNotify, needsSever},
			Run: func(w *world) {
				submitter, worker := w.Open(), w.Open()
				node := w.node("n")
				n := w.notify(submitter, node)
				w.streamWorks(n, worker, node)
				for range 2 {
					w.streamThrough(n, worker, node, func() {
						w.h.Sever(w.TB, submitter)
						w.h.Sever(w.TB, worker)
					})
				}
			},
		},
		{
			Area: "fault", Name: "the stream outlives a restart",
			Explain: "A stream of notifications also survives a restart of the server.",
			Needs:   []need{needsNotify, needsRestart},
			Run: func(w *world) {
				submitter, worker := w.Open(), w.Open()
				node := w.node("n")
				n := w.notify(submitter, node)
				w.streamWorks(n, worker, node)
				w.streamThrough(n, worker, node, func() { w.h.Restart(w.TB) })
			},
		},
		{
			Area: "fault", Name: "records outlive a restart",
			Explain: "Save of a durable store returns only when the record survives the end of the server.",
			Needs:   []need{needsRecords, needsRestart, needsDurable},
			Run: func(w *world) {
				s := w.Open()
				kept := make([]resultstore.Record, 50)
				for i := range kept {
					kept[i] = w.succeeded("")
				}
				w.save(s, kept...)
				w.h.Restart(w.TB)
				fresh := w.Open()
				for _, r := range kept {
					w.wantLoad(fresh, r, "a record from before the restart")
				}
				w.saveThrough(s, w.succeeded(""))
			},
		},
		{
			Area: "fault", Name: "no server",
			Explain: "Without a server a call returns when its ctx ends at the latest, with ctx's error or ErrUnavailable. It never returns success, or an ErrNotFound that it cannot know. When the server is back the same store works again.",
			Needs:   []need{needsDown},
			Run: func(w *world) {
				s, submitter := w.Open(), w.Open()
				node := w.node("n")
				w.listen(submitter, node)
				known := w.succeeded(node)
				w.save(s, known)
				up := w.h.Down(w.TB)
				r := w.succeeded(node)
				w.unavailable("Save", func(ctx context.Context) error { return s.Save(ctx, r) })
				if !w.h.Promises.RepliesOnly {
					w.unavailable("Load", func(ctx context.Context) error { _, err := s.Load(ctx, known.ID); return err })
				}
				up()
				w.saveThrough(s, w.succeeded(node))
				if !w.h.Promises.RepliesOnly {
					w.wantLoad(s, known, "a record from before")
				}
			},
		},
	}
}

// streamWorks expects that a saved record arrives on the stream.
func (w *world) streamWorks(n resultstore.Notifications, worker resultstore.ResultStore, node string) {
	w.Helper()
	r := w.succeeded(node)
	w.save(worker, r)
	if got := w.receive(n); got.ID != r.ID {
		w.Errorf("received %s, want %s", show(got), show(r))
	}
}

// streamThrough calls fault, saves records for node with worker, and waits until one of them
// arrives on the stream n. Then it receives the others that arrive. If the store promises
// RepliesOnly and Durable it also saves records before the fault, and all records must arrive. It
// fails the case otherwise.
func (w *world) streamThrough(n resultstore.Notifications, worker resultstore.ResultStore, node string, fault func()) {
	w.Helper()
	waiting := map[task.ID]bool{}
	save := func(k int) {
		for range k {
			r := w.succeeded(node)
			w.saveThrough(worker, r)
			waiting[r.ID] = true
		}
	}
	if w.h.Promises.RepliesOnly && w.h.Promises.Durable {
		save(20)
		fault()
		save(20)
		w.drain(n, waiting)
		return
	}
	fault()
	w.Until("a notification after the fault", func() bool {
		save(1)
		ctx, cancel := context.WithTimeout(context.Background(), w.Quiet)
		defer cancel()
		r, err := n.Receive(ctx)
		if err != nil {
			w.WantIs(err, context.DeadlineExceeded, "Receive through a fault")
		}
		return waiting[r.ID]
	})
	for { // receive the remaining earlier records
		ctx, cancel := context.WithTimeout(context.Background(), w.Quiet)
		_, err := n.Receive(ctx)
		cancel()
		if err != nil {
			return
		}
	}
}

// unavailable expects that a call without a server returns when its ctx ends at the latest, with
// ErrUnavailable or ctx's error.
func (w *world) unavailable(name string, call func(ctx context.Context) error) {
	w.Helper()
	const deadline = 500 * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	began := time.Now()
	done := make(chan error, 1)
	go func() { done <- call(ctx) }()
	err := w.Clean(suite.Ends(w.World, done, name+" without a server"))
	if took := time.Since(began); took > deadline+w.Slack {
		w.Errorf("%s without a server returned after %v, its ctx ended after %v", name, took, deadline)
	}
	if !errors.Is(err, resultstore.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
		w.Errorf("%s without a server: got error %v, want ErrUnavailable or the ctx's", name, err)
	}
}

// Bench measures Save alone, and Save with the notification of its submitter. Both are
// subbenchmarks of b; open makes the Harness of each.
func Bench(b *testing.B, open func(t testing.TB) *Harness) {
	b.Helper()
	b.Run("save", func(b *testing.B) { bench(b, open(b), false) })
	b.Run("save and receive", func(b *testing.B) { bench(b, open(b), true) })
}

// bench measures Save of a new terminal record, and also its receipt if receive is true. It skips
// the measurement if receive is true and the adapter does not promise Notify.
func bench(b *testing.B, h *Harness, receive bool) {
	if receive && !h.Promises.Notify {
		b.Skip("the adapter does not promise Notify")
	}
	w := newWorld(b, h)
	defer w.CloseAll()
	submitter, worker := w.Open(), w.Open()
	var n resultstore.Notifications
	if receive || h.Promises.RepliesOnly {
		n = w.notify(submitter, w.node("n"))
	}
	r := w.succeeded(w.node("n"))
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		r.ID = w.id()
		w.Must(worker.Save(ctx, r), "Save")
		if receive {
			_, err := n.Receive(ctx)
			w.Must(err, "Receive")
		}
	}
}
