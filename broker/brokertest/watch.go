package brokertest

import (
	"sync"
	"sync/atomic"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
)

// watchCases returns the cases of Watcher.
func watchCases() []testCase {
	return []testCase{
		{
			Area: "watch", Name: "the present state", Needs: []need{needsWatch},
			Explain: "Watch calls fn with the current state: Connected after a successful call.",
			Run: func(w *world) {
				b := w.Open()
				w.publish(b, w.queue(b, "present"), msg("a"))
				l := w.listen(b)
				w.Until("Connected", func() bool { return l.last() == broker.Connected })
			},
		},
		{
			Area: "watch", Name: "each change", Needs: []need{needsWatch, needsDown},
			Explain: "Watch calls fn at each change, one call at a time: Disconnected with its cause when the connection is lost, Connected when it is restored, and never after stop.",
			Run: func(w *world) {
				b := w.Open()
				w.publish(b, w.queue(b, "change"), msg("a"))
				l, gone := w.listen(b), w.listen(b)
				w.Until("Connected", func() bool { return l.last() == broker.Connected && gone.last() == broker.Connected })
				gone.stop()
				n := gone.count()
				up := sync.OnceFunc(w.h.Down(w.TB))
				defer up()
				w.Until("Disconnected", func() bool { return l.last() == broker.Disconnected })
				if l.reason() == nil {
					w.Error("a Disconnected state has no reason")
				}
				_ = w.Clean(l.reason())
				up()
				w.Until("Connected again", func() bool { return l.last() == broker.Connected })
				if gone.count() != n {
					w.Error("fn was called after stop")
				}
			},
		},
	}
}

// listener records the states that Watch reports, with their errors. stop is that of Watch.
type listener struct {
	stop   func()
	inside atomic.Int32

	mu     sync.Mutex
	states []broker.ConnState
	errs   []error
}

// listen watches b until the end of the case and returns the listener that records the states. It
// expects that one call is made at a time. It fails the case at once if b is not a Watcher.
func (w *world) listen(b broker.Broker) *listener {
	w.Helper()
	watcher, ok := capability.As[broker.Watcher](b)
	if !ok {
		w.Fatal("Watch is promised and there is no broker.Watcher")
	}
	l := &listener{}
	l.stop = watcher.Watch(func(s broker.ConnState, err error) {
		if l.inside.Add(1) > 1 {
			w.Error("fn is called twice at a time")
		}
		defer l.inside.Add(-1)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.states, l.errs = append(l.states, s), append(l.errs, err)
	})
	w.Cleanup(l.stop)
	return l
}

// last returns the last reported state, "" before the first. It takes l.mu.
func (l *listener) last() broker.ConnState {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.states) == 0 {
		return ""
	}
	return l.states[len(l.states)-1]
}

// reason returns the error of the last Disconnected state, nil without one. It takes l.mu.
func (l *listener) reason() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.states) - 1; i >= 0; i-- {
		if l.states[i] == broker.Disconnected {
			return l.errs[i]
		}
	}
	return nil
}

// count returns the number of reported states. It takes l.mu.
func (l *listener) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.states)
}
