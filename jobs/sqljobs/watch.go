package sqljobs

import (
	"strings"
	"sync"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// topic is the prefix of notifications about jobs.
const topic = "job "

// watchers holds the callbacks that are called when jobs get a new due time. Safe for concurrent
// use.
type watchers struct {
	mu     sync.Mutex
	all    map[*func(names []string)]struct{}
	stop   func() // ends listening to other processes; nil: not listening
	closed bool
}

// Watch calls wake after each commit, by any process, that may make a job, a deferral or a lease
// due, until stop is called. The names are the words of these records (such as
// [jobstore.Row.Word]). nil means that notifications may be lost. wake is called without a lock,
// in the goroutine that committed, or in that which listens to other processes. Calls may run at
// the same time, and one may still run after stop. It implements [jobstore.Store].
//
// Watch takes w.mu and returns at once. The first watcher starts to listen to other processes, the
// last one ends it. After Close, Watch does nothing.
func (s *Store) Watch(wake func(names []string)) (stop func()) {
	w := &s.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return func() {}
	}
	if w.stop == nil {
		w.stop = s.conn.Listen(sqlconn.DefaultPoll, s.heard)
	}
	if w.all == nil {
		w.all = make(map[*func([]string)]struct{})
	}
	w.all[&wake] = struct{}{}
	return func() { w.remove(&wake) }
}

// remove removes a callback. After the last one it ends listening to other processes. A call of the
// callback may still run. It takes w.mu.
func (w *watchers) remove(wake *func([]string)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, wake)
	if len(w.all) == 0 && w.stop != nil {
		w.stop()
		w.stop = nil
	}
}

// close removes all callbacks and ends listening to other processes, for good. It takes w.mu.
func (w *watchers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	clear(w.all)
	if w.stop != nil {
		w.stop()
		w.stop = nil
	}
}

// wakeAll calls all callbacks with the names, one after the other, in this goroutine. It takes
// w.mu, but does not hold it during the calls.
func (w *watchers) wakeAll(names []string) {
	w.mu.Lock()
	if len(w.all) == 0 {
		w.mu.Unlock()
		return
	}
	all := make([]func([]string), 0, len(w.all))
	for wake := range w.all {
		all = append(all, *wake)
	}
	w.mu.Unlock()
	for _, wake := range all {
		wake(names)
	}
}

// heard handles a notification from another process: it calls the watchers with the word in the
// notification. An empty text means that notifications may be lost: it calls the watchers with nil.
// Notifications with another prefix than topic are ignored. One goroutine of the connection calls
// it.
func (s *Store) heard(what string) {
	if name, ok := strings.CutPrefix(what, topic); ok {
		s.watch.wakeAll([]string{name})
	} else if what == "" {
		s.watch.wakeAll(nil)
	}
}

// wakeWatchers calls the watchers of this process with the wake-up words that the committed
// transaction t has noted, in this goroutine. Without words it calls no watcher.
func (s *Store) wakeWatchers(t *tx) {
	if len(t.given) > 0 {
		s.watch.wakeAll(t.given)
	}
}

// any reports whether any callback is registered. It takes w.mu.
func (w *watchers) any() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.all) > 0
}
