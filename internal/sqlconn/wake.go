package sqlconn

import (
	"context"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/internal/wake"
)

// DefaultPoll is how often a SQLite file is looked at for changes by other processes while somebody watches.
const DefaultPoll = 10 * time.Millisecond

// Watcher is told of changes. Make one with [Conn.Watch].
type Watcher struct {
	wakes  *wakes
	poll   time.Duration
	topics []string
	c      wake.Signal
	heard  func(topic string) // of Listen, in place of the rest
}

// Watch returns a Watcher of topics, which [Tx.Notify] names; without topics, of all. It is woken for changes by this process at
// once, and for those by others soon: PostgreSQL sends word, up to 5 ms after a commit, and a SQLite file is looked at every
// poll (0: 10 ms), where any change of the database counts, since it does not tell which. It may be woken for nothing, and a word may be lost with a connection,
// so that whoever waits also looks by itself from time to time. It must be closed.
func (c *Conn) Watch(poll time.Duration, topics ...string) *Watcher {
	if poll <= 0 {
		poll = DefaultPoll
	}
	w := &Watcher{wakes: c.wake, poll: poll, topics: topics, c: wake.New()}
	c.wake.add(w)
	return w
}

// Listen calls heard for changes by others: by other processes, and by other Conns of this one. topic is what [Tx.Notify] named there, "" for any
// change. How soon that is, and how sure, is as with [Conn.Watch]. heard is called by one goroutine at a time, and returns at once, since
// what comes next waits for it. stop ends the listening, without waiting for a call that is under way; it is idempotent.
func (c *Conn) Listen(poll time.Duration, heard func(topic string)) (stop func()) {
	if poll <= 0 {
		poll = DefaultPoll
	}
	w := &Watcher{wakes: c.wake, poll: poll, heard: heard}
	c.wake.add(w)
	return w.Close
}

// C has a value when there was a change since the last one was taken. It is never closed.
func (w *Watcher) C() <-chan struct{} { return w.c }

// Close ends the watching. It is idempotent.
func (w *Watcher) Close() { w.wakes.remove(w) }

func (w *Watcher) wake() {
	select {
	case w.c <- struct{}{}:
	default:
	}
}

// wakes are the watchers of a Conn. While there are any, one goroutine listens to other processes.
type wakes struct {
	listen func(ctx context.Context, w *wakes)

	mu      sync.Mutex
	byTopic map[string]map[*Watcher]struct{}
	all     map[*Watcher]struct{} // that watch every topic
	open    map[*Watcher]struct{}
	faster  wake.Signal // has a value when a watcher came that polls more often
	cancel  context.CancelFunc
	running sync.WaitGroup
	closed  bool
}

func newWakes(listen func(ctx context.Context, w *wakes)) *wakes {
	return &wakes{
		listen: listen, byTopic: make(map[string]map[*Watcher]struct{}), all: make(map[*Watcher]struct{}),
		open: make(map[*Watcher]struct{}), faster: wake.New(),
	}
}

func (s *wakes) add(w *Watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.open[w] = struct{}{}
	if len(w.topics) == 0 && w.heard == nil {
		s.all[w] = struct{}{}
	}
	for _, t := range w.topics {
		if s.byTopic[t] == nil {
			s.byTopic[t] = make(map[*Watcher]struct{})
		}
		s.byTopic[t][w] = struct{}{}
	}
	if s.cancel == nil {
		var ctx context.Context
		ctx, s.cancel = context.WithCancel(context.Background())
		s.running.Go(func() { s.listen(ctx, s) })
		return
	}
	s.faster.Notify()
}

func (s *wakes) remove(w *Watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, w)
	delete(s.all, w)
	for _, t := range w.topics {
		delete(s.byTopic[t], w)
		if len(s.byTopic[t]) == 0 {
			delete(s.byTopic, t)
		}
	}
	if len(s.open) == 0 && s.cancel != nil {
		s.cancel()
		s.cancel = nil
	}
}

// topics wakes the watchers of some topics.
func (s *wakes) topics(topics []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range topics {
		for w := range s.byTopic[t] {
			w.wake()
		}
	}
	for w := range s.all {
		w.wake()
	}
}

// everybody wakes all watchers: something has changed, or may have.
func (s *wakes) everybody() {
	s.mu.Lock()
	for w := range s.open {
		if w.heard == nil {
			w.wake()
		}
	}
	s.mu.Unlock()
	s.tell("")
}

// foreign wakes the watchers of a topic that another process has named.
func (s *wakes) foreign(topic string) {
	s.topics([]string{topic})
	s.tell(topic)
}

// tell tells those that listen to others. They are called without the lock, so that they may end themselves.
func (s *wakes) tell(topic string) {
	var all []func(string)
	s.mu.Lock()
	for w := range s.open {
		if w.heard != nil {
			all = append(all, w.heard)
		}
	}
	s.mu.Unlock()
	for _, heard := range all {
		heard(topic)
	}
}

// interval is how often to look; 0: nobody watches.
func (s *wakes) interval() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var d time.Duration
	for w := range s.open {
		if d == 0 || w.poll < d {
			d = w.poll
		}
	}
	return d
}

// close ends listening. It is idempotent.
func (s *wakes) close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	if s.cancel != nil {
		s.cancel()
		s.cancel = nil
	}
	s.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		s.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// watch implements database: it looks at the file's number of changes.
func (l *lite) watch(ctx context.Context, w *wakes) {
	if l.plan.file == "" {
		return
	}
	var last int64
	t := traces{file: l.plan.file}
	for {
		if d := w.interval(); d > 0 && !w.faster.Wait(ctx, d) {
			return
		}
		if !t.changed() {
			continue
		}
		now, err := l.group.version(ctx)
		if err != nil {
			return // closed
		}
		if now != last { // the first time too: something may have changed since the watchers came
			w.everybody()
		}
		last = now
	}
}
