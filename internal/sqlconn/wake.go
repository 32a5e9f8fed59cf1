package sqlconn

import (
	"context"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/internal/wake"
)

// DefaultPoll is the default interval at which a SQLite file is polled for changes by other
// processes while there are watchers.
const DefaultPoll = 10 * time.Millisecond

const (
	// quickTime is the time after a change, or a new watcher, in which a SQLite file is polled at the
	// interval of its watchers. Another change, such as an answer, often follows.
	quickTime = time.Second
	// slowPoll is the shortest interval after that. It limits the cost of an idle process.
	slowPoll = 100 * time.Millisecond
	// reportedPoll is the longest interval while the operating system reports writes to the file.
	reportedPoll = time.Second
	// firstPoll is the time between a reported write and the next poll. A report comes before the
	// commit is visible, so that further polls follow, each after twice the time.
	firstPoll = time.Millisecond
)

// Watcher receives notifications about changes. Create it with [Conn.Watch].
type Watcher struct {
	conn   *Conn
	poll   time.Duration
	topics []string
	c      wake.Signal
	heard  func(topic string) // for Listen; then topics and c are unused
}

// Watch returns a Watcher of the topics that [Tx.Notify] names, or of all topics if none is given.
// Close it after use.
//
// The Watcher is notified of changes by this process at once. Changes by other processes follow
// later. PostgreSQL sends a notification at most 5 ms after a commit. A write to a SQLite file is
// reported by the operating system. Where it reports nothing, the file is polled: every poll for a
// second after a change, then every 100 ms. Any change counts, since the file does not show the
// topic. Default for poll: 10ms.
//
// A Watcher may be notified without a change. A notification may be lost with a connection, so the
// caller must also check by itself at intervals.
func (c *Conn) Watch(poll time.Duration, topics ...string) *Watcher {
	if poll <= 0 {
		poll = DefaultPoll
	}
	return c.watch(&Watcher{conn: c, poll: poll, topics: topics, c: wake.New()})
}

// Listen calls heard for changes by other processes and by other Conns of this process. topic is
// the topic of [Tx.Notify], or "" for any change. Delay and reliability are as with [Conn.Watch].
//
// heard is called by one goroutine at a time. It must return at once, since the next notifications
// wait for it. stop ends the calls. It does not wait for a running call. It is idempotent.
func (c *Conn) Listen(poll time.Duration, heard func(topic string)) (stop func()) {
	if poll <= 0 {
		poll = DefaultPoll
	}
	return c.watch(&Watcher{conn: c, poll: poll, heard: heard}).Close
}

// watch registers w and returns it. After Close it does nothing. It takes c.mu.
func (c *Conn) watch(w *Watcher) *Watcher {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.watchers[w] = struct{}{}
		c.db.wake.add(w)
	}
	return w
}

// C returns a channel that has a value if there was a change since the last value was received. It
// is never closed.
func (w *Watcher) C() <-chan struct{} { return w.c }

// Close ends the notifications. It is idempotent.
func (w *Watcher) Close() {
	w.conn.mu.Lock()
	delete(w.conn.watchers, w)
	w.conn.mu.Unlock()
	w.conn.db.wake.remove(w)
}

// wake gives the channel of w a value unless it has one. It does not block. A watcher of Listen has
// no channel; tell calls its function.
func (w *Watcher) wake() {
	select {
	case w.c <- struct{}{}:
	default:
	}
}

// Wakes holds the watchers of a DB. While there are watchers, one goroutine listens to other
// processes. Safe for concurrent use.
type Wakes struct {
	listen func(ctx context.Context, w *Wakes)

	mu      sync.Mutex
	byTopic map[string]map[*Watcher]struct{}
	all     map[*Watcher]struct{} // watchers of every topic
	open    map[*Watcher]struct{}
	quick   time.Time   // until then the file is polled at the interval of the watchers
	faster  wake.Signal // has a value if the interval may have become shorter
	cancel  context.CancelFunc
	running sync.WaitGroup
	closed  bool
}

// newWakes returns Wakes without watchers. listen is the body of the listening goroutine; it must
// return when its ctx ends.
func newWakes(listen func(ctx context.Context, w *Wakes)) *Wakes {
	return &Wakes{
		listen: listen, byTopic: make(map[string]map[*Watcher]struct{}), all: make(map[*Watcher]struct{}),
		open: make(map[*Watcher]struct{}), faster: wake.New(),
	}
}

// add registers w, also under its topics. It starts the listening goroutine if it is not running;
// otherwise it wakes that goroutine to use the poll interval of w. After close it does nothing. It
// takes s.mu.
func (s *Wakes) add(w *Watcher) {
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
	s.quick = time.Now().Add(quickTime)
	if s.cancel == nil {
		var ctx context.Context
		ctx, s.cancel = context.WithCancel(context.Background())
		s.running.Go(func() { s.listen(ctx, s) })
		return
	}
	s.faster.Notify()
}

// hurry makes the file be polled at the interval of the watchers for quickTime, since changes often
// follow each other. It takes s.mu.
func (s *Wakes) hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.After(s.quick) {
		s.faster.Notify()
	}
	s.quick = now.Add(quickTime)
}

// remove removes w. If no watcher is left it ends the listening goroutine, without a wait. It takes
// s.mu.
func (s *Wakes) remove(w *Watcher) {
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

// topics notifies the watchers of the topics, and the watchers of all topics. It takes s.mu.
func (s *Wakes) topics(topics []string) {
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

// own handles a change that the Conn from has committed: it notifies the watchers of the topics,
// and calls the functions of Listen of all other Conns. It takes s.mu, but does not hold it during
// these calls.
func (s *Wakes) own(topics []string, from *Conn) {
	s.hurry()
	s.topics(topics)
	for _, t := range topics {
		s.callListeners(t, from)
	}
}

// NotifyAll notifies all watchers that something has or may have changed. It takes s.mu.
func (s *Wakes) NotifyAll() {
	s.mu.Lock()
	for w := range s.open {
		if w.heard == nil {
			w.wake()
		}
	}
	s.mu.Unlock()
	s.callListeners("", nil)
}

// Foreign notifies the watchers of a topic that another process has sent, and calls the functions
// of Listen with it. It takes s.mu, but does not hold it during these calls.
func (s *Wakes) Foreign(topic string) {
	s.topics([]string{topic})
	s.callListeners(topic, nil)
}

// callListeners calls the functions of Listen with the topic, except those of the Conn except. It
// takes s.mu only to collect them, so a function may call stop.
func (s *Wakes) callListeners(topic string, except *Conn) {
	var all []func(string)
	s.mu.Lock()
	for w := range s.open {
		if w.heard != nil && w.conn != except {
			all = append(all, w.heard)
		}
	}
	s.mu.Unlock()
	for _, heard := range all {
		heard(topic)
	}
}

// interval returns the longest time until the next poll, or 0 without watchers. If the system
// reports writes, it is reportedPoll. Otherwise it is the shortest interval of the watchers, but at
// least slowPoll if the last change is longer ago than quickTime. It takes s.mu.
func (s *Wakes) interval(reported bool) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var d time.Duration
	for w := range s.open {
		if d == 0 || w.poll < d {
			d = w.poll
		}
	}
	switch {
	case d == 0:
		return 0
	case reported:
		return reportedPoll
	case time.Now().After(s.quick):
		return max(d, slowPoll)
	}
	return d
}

// close stops listening and waits for the end of the listening goroutine. Returns ctx's error if
// ctx ends first. It is idempotent. It takes s.mu, but does not hold it while it waits.
func (s *Wakes) close(ctx context.Context) error {
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

// LogWatch watches the log of a SQLite file for writes. A write is reported before the commit that
// it belongs to is visible. Not safe for concurrent use.
type LogWatch interface {
	// Add begins to watch the log, if it is not watched, and reports whether it is. It is not as long
	// as the log does not exist, or where the system offers no reports.
	Add() bool
	// Wait waits for a report, for a notification of s, or for d. It reports whether the log was
	// written. ok is false if ctx ended first.
	Wait(ctx context.Context, s wake.Signal, d time.Duration) (written, ok bool)
	Close()
}

// Watch implements Database. It waits for a report of a write to the file's log, or for the next
// poll: soon after a report, then each time after twice as long, up to what interval says. If the
// file seems changed it asks the database for its number of changes. If that number is another, it
// notifies the watchers. It blocks until ctx ends or the database is closed; for a database in
// memory it returns at once.
func (l *lite) Watch(ctx context.Context, w *Wakes) {
	if l.file == "" {
		return
	}
	log := l.watchLog(l.file + "-wal")
	defer log.Close()
	var last int64
	var pause time.Duration
	t := traces{file: l.file}
	for {
		longest := w.interval(log.Add())
		if longest == 0 {
			return // without watchers, ctx has ended
		}
		pause = min(max(2*pause, firstPoll), longest)
		written, ok := log.Wait(ctx, w.faster, pause)
		if !ok {
			return
		}
		if t.changed() {
			now, err := l.group.version(ctx)
			if err != nil {
				return // closed
			}
			if now != last { // also the first time: the data may have changed since the watchers were added
				w.hurry()
				w.NotifyAll()
			}
			last = now
		}
		if written {
			pause = 0
			if !wake.Sleep(ctx, firstPoll) { // a commit makes several reports
				return
			}
		}
	}
}
