package resultstoretest

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// world holds the namespace of a case, the stores opened in it, and helpers with limited waits.
type world struct {
	*suite.World[resultstore.ResultStore]
	h *Harness

	mu  sync.Mutex
	ids int
}

// newWorld returns the world of a case, without stores.
func newWorld(t testing.TB, h *Harness) *world {
	return &world{h: h, World: suite.NewWorld(t, suite.Config[resultstore.ResultStore]{
		Port: "ResultStore", Open: h.Open, Secret: h.Secret, Slack: h.Slack, Quiet: h.Quiet, Patience: h.Patience,
	})}
}

// id returns a new task id with the Prefix of the harness. It takes w.mu. Safe for concurrent use.
func (w *world) id() task.ID {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids++
	return task.ID(fmt.Sprintf("%stask-%d", w.h.Prefix, w.ids))
}

// node returns the full node id of a submitter.
func (w *world) node(name string) string { return w.h.Prefix + name }

// save saves each record and fails the case on an error.
func (w *world) save(s resultstore.ResultStore, rs ...resultstore.Record) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	for _, r := range rs {
		w.Must(s.Save(ctx, r), "Save of %s", show(r))
	}
}

// trySave saves a record and returns the error. It fails the case if the error contains the secret.
func (w *world) trySave(s resultstore.ResultStore, r resultstore.Record) error {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	return w.Clean(s.Save(ctx, r))
}

// saveThrough repeats Save until it succeeds, for cases that lose connections.
func (w *world) saveThrough(s resultstore.ResultStore, r resultstore.Record) {
	w.Helper()
	w.Until("Save of "+show(r)+" through a lost connection", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), w.Patience/4)
		defer cancel()
		return w.Clean(s.Save(ctx, r)) == nil
	})
}

// load returns the record of a task and fails the case if Load fails.
func (w *world) load(s resultstore.ResultStore, id task.ID) resultstore.Record {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	r, err := s.Load(ctx, id)
	w.Must(err, "Load(%q)", id)
	return r
}

// wantLoad loads the record and reports a difference to want.
func (w *world) wantLoad(s resultstore.ResultStore, want resultstore.Record, format string, args ...any) {
	w.Helper()
	if diff := diffRecord(want, w.load(s, want.ID)); diff != "" {
		w.Errorf("%s (-saved +loaded):\n%s", fmt.Sprintf(format, args...), diff)
	}
}

// wantNone expects ErrNotFound from Load.
func (w *world) wantNone(s resultstore.ResultStore, id task.ID, format string, args ...any) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	_, err := s.Load(ctx, id)
	w.WantIs(err, resultstore.ErrNotFound, format, args...)
}

// remove deletes the record of a task and fails the case on an error.
func (w *world) remove(s resultstore.ResultStore, id task.ID) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	w.Must(s.Delete(ctx, id), "Delete(%q)", id)
}

// notify opens a stream of notifications or replies for node. Closing the store ends it.
func (w *world) notify(s resultstore.ResultStore, node string) resultstore.Notifications {
	w.Helper()
	if w.h.Promises.RepliesOnly {
		return w.replies(s, node)
	}
	ctx, cancel := w.Ctx()
	defer cancel()
	stream, err := suite.Offer[resultstore.Notifier](w, s).Notify(ctx, node)
	w.Must(err, "Notify(%q)", node)
	return stream
}

// replies opens the stream of a reply queue for node. Closing the store ends it.
func (w *world) replies(s resultstore.ResultStore, node string) resultstore.Replies {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	stream, err := suite.Offer[resultstore.Replier](w, s).Replies(ctx, node)
	w.Must(err, "Replies(%q)", node)
	return stream
}

// receive waits for the next record and returns it. It fails the case on an error.
func (w *world) receive(n resultstore.Notifications) resultstore.Record {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	r, err := n.Receive(ctx)
	w.Must(err, "Receive")
	return r
}

// nothing fails the case if a record arrives within Quiet.
func (w *world) nothing(n resultstore.Notifications, format string, args ...any) {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), w.Quiet)
	defer cancel()
	r, err := n.Receive(ctx)
	if err == nil {
		w.Fatalf("%s: received %s", fmt.Sprintf(format, args...), show(r))
	}
	w.WantIs(err, context.DeadlineExceeded, "Receive while there is nothing")
}

// closeStream closes a stream and fails the case on an error.
func (w *world) closeStream(n resultstore.Notifications) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	w.Must(n.Close(ctx), "Notifications.Close")
}

// listen opens a stream for node if the store is a reply queue, because a queue without a reader
// accepts no records. Otherwise it does nothing.
func (w *world) listen(s resultstore.ResultStore, node string) {
	w.Helper()
	if w.h.Promises.RepliesOnly {
		w.notify(s, node)
	}
}

// show returns the text for a record in failure messages.
func show(r resultstore.Record) string {
	return fmt.Sprintf("%s %s (%d,%d)", r.ID, r.State, r.Generation, r.Deliveries)
}

// diffRecord returns the difference between a saved and a returned record, or "". It ignores TTL
// and cuts times to milliseconds.
func diffRecord(saved, got resultstore.Record) string {
	saved.TTL = 0
	for _, at := range []*time.Time{&saved.StartedAt, &saved.FinishedAt, &saved.Progress.At} {
		if !at.IsZero() {
			*at = at.Truncate(time.Millisecond)
		}
	}
	if n := len(saved.Result); n > 4<<10 { // cmp.Diff of large slices takes seconds and is unreadable
		if !bytes.Equal(saved.Result, got.Result) {
			return fmt.Sprintf("the result of %d bytes came back as another one of %d bytes", n, len(got.Result))
		}
		got.Result = saved.Result[:0]
		saved.Result = nil
	}
	return cmp.Diff(saved, got, cmpopts.EquateEmpty())
}
