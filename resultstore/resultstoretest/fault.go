package resultstoretest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

func faultCases() []testCase {
	return []testCase{
		{
			area: "fault", name: "a severed connection",
			explain: "A store outlives a lost connection: calls made meanwhile wait within their ctx or fail with ErrUnavailable, and later ones succeed without anybody's help.",
			needs:   []need{needsRecords, needsSever},
			run: func(w *world) {
				s := w.open()
				for range 3 {
					r := w.succeeded("")
					w.save(s, r)
					w.h.Sever(w.TB, s)
					w.until("Load after a severed connection", func() bool {
						ctx, cancel := context.WithTimeout(context.Background(), w.patience/4)
						defer cancel()
						got, err := s.Load(ctx, r.ID)
						if err == nil && diffRecord(r, got) != "" {
							w.Errorf("another record came back (-saved +loaded):\n%s", diffRecord(r, got))
						}
						if errors.Is(w.clean(err), resultstore.ErrNotFound) {
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
			area: "fault", name: "the stream outlives a severed connection",
			explain: "A stream of notifications outlives lost connections: futures that wait need not know. With a reply queue it is all there is, so then nothing saved with success may be missing.",
			needs:   []need{needsNotify, needsSever},
			run: func(w *world) {
				submitter, worker := w.open(), w.open()
				node := w.node("n")
				n := w.notify(submitter, node)
				w.goesOn(n, worker, node)
				for range 2 {
					w.streamThrough(n, worker, node, func() {
						w.h.Sever(w.TB, submitter)
						w.h.Sever(w.TB, worker)
					})
				}
			},
		},
		{
			area: "fault", name: "the stream outlives a restart",
			explain: "A stream of notifications outlives a restart of the server as well.",
			needs:   []need{needsNotify, needsRestart},
			run: func(w *world) {
				submitter, worker := w.open(), w.open()
				node := w.node("n")
				n := w.notify(submitter, node)
				w.goesOn(n, worker, node)
				w.streamThrough(n, worker, node, func() { w.h.Restart(w.TB) })
			},
		},
		{
			area: "fault", name: "records outlive a restart",
			explain: "A durable store's Save returns when the record would survive the server's end.",
			needs:   []need{needsRecords, needsRestart, needsDurable},
			run: func(w *world) {
				s := w.open()
				kept := make([]resultstore.Record, 50)
				for i := range kept {
					kept[i] = w.succeeded("")
				}
				w.save(s, kept...)
				w.h.Restart(w.TB)
				fresh := w.open()
				for _, r := range kept {
					w.wantLoad(fresh, r, "a record from before the restart")
				}
				w.saveThrough(s, w.succeeded(""))
			},
		},
		{
			area: "fault", name: "no server",
			explain: "Without a server a call ends with its ctx, with that error or ErrUnavailable, and never with success or a ErrNotFound that nobody can know; when the server is back the same store works again.",
			needs:   []need{needsDown},
			run: func(w *world) {
				s, submitter := w.open(), w.open()
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

// goesOn expects that the stream works at all.
func (w *world) goesOn(n resultstore.Notifications, worker resultstore.ResultStore, node string) {
	w.Helper()
	r := w.succeeded(node)
	w.save(worker, r)
	if got := w.receive(n); got.ID != r.ID {
		w.Errorf("received %s, want %s", show(got), show(r))
	}
}

// streamThrough saves records before and after a fault and expects the stream to go on. Where there is nothing but the
// stream, every record that Save confirmed must come.
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
	w.until("a notification after the fault", func() bool {
		save(1)
		ctx, cancel := context.WithTimeout(context.Background(), w.slack)
		defer cancel()
		r, err := n.Receive(ctx)
		if err != nil {
			w.wantIs(err, context.DeadlineExceeded, "Receive through a fault")
		}
		return waiting[r.ID]
	})
	for { // what is left of before
		ctx, cancel := context.WithTimeout(context.Background(), w.slack)
		_, err := n.Receive(ctx)
		cancel()
		if err != nil {
			return
		}
	}
}

// unavailable expects that a call without a server ends with its ctx at the latest, with an error of that class.
func (w *world) unavailable(name string, call func(ctx context.Context) error) {
	w.Helper()
	const deadline = 500 * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	began := time.Now()
	done := make(chan error, 1)
	go func() { done <- call(ctx) }()
	err := w.clean(ends(w, done, name+" without a server"))
	if took := time.Since(began); took > deadline+w.slack {
		w.Errorf("%s without a server returned after %v, its ctx ended after %v", name, took, deadline)
	}
	if !errors.Is(err, resultstore.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
		w.Errorf("%s without a server: got error %v, want ErrUnavailable or the ctx's", name, err)
	}
}

// Bench measures Save alone, and Save with the notification of its submitter.
func Bench(b *testing.B, open func(t testing.TB) *Harness) {
	b.Helper()
	b.Run("save", func(b *testing.B) { bench(b, open(b), false) })
	b.Run("save and receive", func(b *testing.B) { bench(b, open(b), true) })
}

func bench(b *testing.B, h *Harness, receive bool) {
	if receive && !h.Promises.Notify {
		b.Skip("the adapter does not promise Notify")
	}
	w := newWorld(b, h)
	defer w.close()
	submitter, worker := w.open(), w.open()
	var n resultstore.Notifications
	if receive || h.Promises.RepliesOnly {
		n = w.notify(submitter, w.node("n"))
	}
	r := w.succeeded(w.node("n"))
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		r.ID = w.id()
		w.must(worker.Save(ctx, r), "Save")
		if receive {
			_, err := n.Receive(ctx)
			w.must(err, "Receive")
		}
	}
}
