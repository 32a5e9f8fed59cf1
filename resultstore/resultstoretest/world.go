package resultstoretest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// world is what a case works with: a namespace, the stores opened in it, and bounded waits.
type world struct {
	testing.TB
	h               *Harness
	slack, patience time.Duration

	mu     sync.Mutex
	opened []resultstore.ResultStore
	ids    int
}

func newWorld(t testing.TB, h *Harness) *world {
	w := &world{TB: t, h: h, slack: h.Slack, patience: h.Patience}
	if w.slack == 0 {
		w.slack = 500 * time.Millisecond
	}
	if w.patience == 0 {
		w.patience = 30 * time.Second
	}
	return w
}

// open connects as another process would.
func (w *world) open() resultstore.ResultStore {
	w.Helper()
	s := w.h.Open(w.TB)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opened = append(w.opened, s)
	return s
}

// close closes every store of the case.
func (w *world) close() {
	w.Helper()
	w.mu.Lock()
	opened := w.opened
	w.opened = nil
	w.mu.Unlock()
	for _, s := range opened {
		w.closeStore(s)
	}
}

func (w *world) closeStore(s resultstore.ResultStore) {
	w.Helper()
	ctx, cancel := w.ctx()
	defer cancel()
	if err := w.clean(s.Close(ctx)); err != nil {
		w.Errorf("ResultStore.Close: %v", err)
	}
}

// ctx is a context that ends with the suite's patience.
func (w *world) ctx() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), w.patience)
}

// clean returns err and fails the case if the secret is in it.
func (w *world) clean(err error) error {
	w.Helper()
	if err != nil && w.h.Secret != "" && strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), w.h.Secret) {
		w.Errorf("the text of a %T holds the password", err)
	}
	return err
}

// must fails the case at once if err is not nil.
func (w *world) must(err error, format string, args ...any) {
	w.Helper()
	if w.clean(err) != nil {
		w.Fatalf("%s: %v", fmt.Sprintf(format, args...), err)
	}
}

// wantIs checks the class of an error.
func (w *world) wantIs(err, want error, format string, args ...any) {
	w.Helper()
	if !errors.Is(w.clean(err), want) {
		w.Errorf("%s: got error %v, want one that is %v", fmt.Sprintf(format, args...), err, want)
	}
}

// id returns a task's id that no other call gave.
func (w *world) id() task.ID {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids++
	return task.ID(fmt.Sprintf("%stask-%d", w.h.Prefix, w.ids))
}

// node returns the full id of a submitter.
func (w *world) node(name string) string { return w.h.Prefix + name }

// save saves and expects success.
func (w *world) save(s resultstore.ResultStore, rs ...resultstore.Record) {
	w.Helper()
	ctx, cancel := w.ctx()
	defer cancel()
	for _, r := range rs {
		w.must(s.Save(ctx, r), "Save of %s", show(r))
	}
}

// trySave saves and returns the error.
func (w *world) trySave(s resultstore.ResultStore, r resultstore.Record) error {
	w.Helper()
	ctx, cancel := w.ctx()
	defer cancel()
	return w.clean(s.Save(ctx, r))
}

// saveThrough saves while connections are being lost: it repeats what failed until it is recorded.
func (w *world) saveThrough(s resultstore.ResultStore, r resultstore.Record) {
	w.Helper()
	w.until("Save of "+show(r)+" through a lost connection", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), w.patience/4)
		defer cancel()
		return w.clean(s.Save(ctx, r)) == nil
	})
}

// load loads and expects to find.
func (w *world) load(s resultstore.ResultStore, id task.ID) resultstore.Record {
	w.Helper()
	ctx, cancel := w.ctx()
	defer cancel()
	r, err := s.Load(ctx, id)
	w.must(err, "Load(%q)", id)
	return r
}

// wantLoad loads and compares.
func (w *world) wantLoad(s resultstore.ResultStore, want resultstore.Record, format string, args ...any) {
	w.Helper()
	if diff := diffRecord(want, w.load(s, want.ID)); diff != "" {
		w.Errorf("%s (-saved +loaded):\n%s", fmt.Sprintf(format, args...), diff)
	}
}

// wantNone expects that there is no record.
func (w *world) wantNone(s resultstore.ResultStore, id task.ID, format string, args ...any) {
	w.Helper()
	ctx, cancel := w.ctx()
	defer cancel()
	_, err := s.Load(ctx, id)
	w.wantIs(err, resultstore.ErrNotFound, format, args...)
}

// remove deletes and expects success.
func (w *world) remove(s resultstore.ResultStore, id task.ID) {
	w.Helper()
	ctx, cancel := w.ctx()
	defer cancel()
	w.must(s.Delete(ctx, id), "Delete(%q)", id)
}

// notify opens a stream. It ends with the store at the latest.
func (w *world) notify(s resultstore.ResultStore, node string) resultstore.Notifications {
	w.Helper()
	n, ok := s.(resultstore.Notifier)
	if !ok {
		w.Fatalf("%T is no Notifier", s)
	}
	ctx, cancel := w.ctx()
	defer cancel()
	stream, err := n.Notify(ctx, node)
	w.must(err, "Notify(%q)", node)
	return stream
}

// receive waits for the next record.
func (w *world) receive(n resultstore.Notifications) resultstore.Record {
	w.Helper()
	ctx, cancel := w.ctx()
	defer cancel()
	r, err := n.Receive(ctx)
	w.must(err, "Receive")
	return r
}

// nothing expects that no record comes for as long as the suite looks.
func (w *world) nothing(n resultstore.Notifications, format string, args ...any) {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), w.slack)
	defer cancel()
	r, err := n.Receive(ctx)
	if err == nil {
		w.Fatalf("%s: received %s", fmt.Sprintf(format, args...), show(r))
	}
	w.wantIs(err, context.DeadlineExceeded, "Receive while there is nothing")
}

func (w *world) closeStream(n resultstore.Notifications) {
	w.Helper()
	ctx, cancel := w.ctx()
	defer cancel()
	w.must(n.Close(ctx), "Notifications.Close")
}

// listen opens a stream for a node where records of a task can only be had so, and otherwise does nothing; a reply queue
// that nobody holds takes no records.
func (w *world) listen(s resultstore.ResultStore, node string) {
	w.Helper()
	if w.h.Promises.RepliesOnly {
		w.notify(s, node)
	}
}

// ends waits for a value that another goroutine promised.
func ends[T any](w *world, ch <-chan T, what string) T {
	w.Helper()
	t := time.NewTimer(w.patience)
	defer t.Stop()
	select {
	case v := <-ch:
		return v
	case <-t.C:
		w.Fatalf("%s: not within %v", what, w.patience)
		panic("unreachable")
	}
}

// until polls cond until it holds.
func (w *world) until(what string, cond func() bool) {
	w.Helper()
	deadline := time.NewTimer(w.patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			w.Fatalf("%s: not within %v", what, w.patience)
		}
	}
}

// show names a record in failures.
func show(r resultstore.Record) string {
	return fmt.Sprintf("%s %s (%d,%d)", r.ID, r.State, r.Generation, r.Deliveries)
}

// diffRecord compares what was saved with what came back.
func diffRecord(saved, got resultstore.Record) string {
	saved.TTL = 0
	for _, at := range []*time.Time{&saved.StartedAt, &saved.FinishedAt} {
		if !at.IsZero() {
			*at = at.Truncate(time.Millisecond)
		}
	}
	if n := len(saved.Result); n > 4<<10 { // the difference of large slices takes seconds, and nobody reads it
		if !bytes.Equal(saved.Result, got.Result) {
			return fmt.Sprintf("the result of %d bytes came back as another one of %d bytes", n, len(got.Result))
		}
		got.Result = saved.Result[:0]
		saved.Result = nil
	}
	return cmp.Diff(saved, got, cmpopts.EquateEmpty())
}
