package sqljobs

import (
	"strings"
	"sync"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// topic is how a name is told to other processes.
const topic = "job "

// watchers are those who want to know what has got a time to be handed out.
type watchers struct {
	mu     sync.Mutex
	all    map[*func(names []string)]struct{}
	stop   func() // ends hearing of other processes; nil: nobody does
	closed bool
}

// Watch implements [jobstore.Store].
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

func (w *watchers) remove(wake *func([]string)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, wake)
	if len(w.all) == 0 && w.stop != nil {
		w.stop()
		w.stop = nil
	}
}

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

// tell wakes all of them, without the lock.
func (w *watchers) tell(names []string) {
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

// heard is told of another process's change.
func (s *Store) heard(what string) {
	if name, ok := strings.CutPrefix(what, topic); ok {
		s.watch.tell([]string{name})
	} else if what == "" {
		s.watch.tell(nil)
	}
}

// woken wakes for what a transaction has given a time.
func (s *Store) woken(t *tx) {
	if len(t.given) > 0 {
		s.watch.tell(t.given)
	}
}

// any reports whether anybody watches.
func (w *watchers) any() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.all) > 0
}
