package sqlconn

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestPollInterval shows that a SQLite file is polled at the interval of its watchers for a second.
// After a second without a change or a new watcher it is polled less often. If the system reports
// writes, it is polled once a second.
func TestPollInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWakes(func(context.Context, *Wakes) {})
		want := func(when string, d time.Duration) {
			t.Helper()
			if got := s.interval(false); got != d {
				t.Errorf("%s the interval is %v, want %v", when, got, d)
			}
			if d > 0 {
				d = reportedPoll
			}
			if got := s.interval(true); got != d {
				t.Errorf("%s the interval is %v where the system reports writes, want %v", when, got, d)
			}
		}
		notified := func(when string, n int) {
			t.Helper()
			if got := len(s.faster); got != n {
				t.Errorf("%s there are %d notifications of a shorter interval, want %d", when, got, n)
			}
			for len(s.faster) > 0 {
				<-s.faster
			}
		}
		want("without watchers", 0)
		conn := &Conn{}
		s.add(&Watcher{conn: conn, poll: DefaultPoll})
		want("with a new watcher", DefaultPoll)
		time.Sleep(quickTime + 1)
		want("a second later", slowPoll)
		s.own([]string{"a"}, conn)
		notified("after a change", 1)
		want("after a change", DefaultPoll)
		time.Sleep(quickTime / 2)
		s.own([]string{"a"}, conn)
		notified("after another change", 0)
		time.Sleep(quickTime)
		want("a second after the last change", DefaultPoll)
		time.Sleep(1)
		want("more than a second after it", slowPoll)
		slow := &Watcher{conn: conn, poll: time.Minute}
		s.add(slow)
		want("with another watcher", DefaultPoll)
	})
}
