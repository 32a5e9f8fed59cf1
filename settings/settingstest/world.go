package settingstest

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/settings"
)

// world is the environment of one case. Its methods fail the case after an error.
type world struct {
	*suite.World[settings.Store]
	h *Harness
}

// newWorld returns the world of a case. It opens no store.
func newWorld(t testing.TB, h *Harness) *world {
	return &world{h: h, World: suite.NewWorld(t, suite.Config[settings.Store]{
		Port: "Store", Open: h.Open, Secret: h.Secret, Patience: h.Patience,
	})}
}

// put calls Put with data and this revision and returns the new revision. It fails the case on an
// error, or if the new revision is not larger.
func (w *world) put(s settings.Store, key, data string, revision uint64) uint64 {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	n, err := s.Put(ctx, key, []byte(data), revision)
	w.Must(err, "Put %s", key)
	if n <= revision {
		w.Fatalf("Put %s returned revision %d after %d", key, n, revision)
	}
	return n
}

// remove deletes the value with this revision and fails the case on an error.
func (w *world) remove(s settings.Store, key string, revision uint64) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	w.Must(s.Delete(ctx, key, revision), "Delete %s", key)
}

// refuses expects that Put and Delete over this revision return [settings.ErrConflict].
func (w *world) refuses(s settings.Store, key string, revision uint64) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	_, err := s.Put(ctx, key, []byte("late"), revision)
	w.WantIs(err, settings.ErrConflict, "Put %s over revision %d", key, revision)
	w.WantIs(s.Delete(ctx, key, revision), settings.ErrConflict, "Delete %s of revision %d", key, revision)
}

// get returns the data of a key and its revision; "" and 0 if it has no value. It fails the case on
// another error.
func (w *world) get(s settings.Store, key string) (string, uint64) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	v, err := s.Get(ctx, key)
	if errors.Is(err, settings.ErrNotFound) {
		return "", 0
	}
	w.Must(err, "Get %s", key)
	if v.Key != key || v.Revision == 0 {
		w.Fatalf("Get %s returned the key %s with revision %d", key, v.Key, v.Revision)
	}
	return string(v.Data), v.Revision
}

// list returns the values whose keys begin with prefix, as pairs of key and data. It fails the case
// on an error.
func (w *world) list(s settings.Store, prefix string) [][2]string {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	values, err := s.List(ctx, prefix)
	w.Must(err, "List %q", prefix)
	var pairs [][2]string
	for _, v := range values {
		pairs = append(pairs, [2]string{v.Key, string(v.Data)})
	}
	return pairs
}

// wantList fails the case unless a store lists these pairs of key and data below a prefix. Without
// the promise Exact it first waits until the list is right.
func (w *world) wantList(s settings.Store, prefix string, want ...[2]string) {
	w.Helper()
	if !w.h.Promises.Exact {
		w.Until("the list of values", func() bool { return cmp.Equal(want, w.list(s, prefix)) })
	}
	if diff := cmp.Diff(want, w.list(s, prefix)); diff != "" {
		w.Fatalf("List %q (-want +got):\n%s", prefix, diff)
	}
}

// sees fails the case unless a store has the data want for a key, and returns the revision. Without
// the promise Exact it first waits until the store has the data.
func (w *world) sees(s settings.Store, key, want string) uint64 {
	w.Helper()
	if !w.h.Promises.Exact {
		w.Until("the value "+want+" of "+key, func() bool { got, _ := w.get(s, key); return got == want })
	}
	got, revision := w.get(s, key)
	if got != want {
		w.Fatalf("%s is %q, want %q", key, got, want)
	}
	return revision
}

// watch opens a watch and returns the counter of its calls. The watch ends with the case.
func (w *world) watch(s settings.Store) *atomic.Int64 {
	n := new(atomic.Int64)
	w.Cleanup(s.Watch(func() { n.Add(1) }))
	return n
}
