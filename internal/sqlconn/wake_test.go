package sqlconn_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// heard reports whether a watcher is notified within the given time.
func heard(w *sqlconn.Watcher, within time.Duration) bool {
	select {
	case <-w.C(): // checked separately: select picks any ready case, also with 0
		return true
	default:
	}
	select {
	case <-w.C():
		return true
	case <-time.After(within):
		return false
	}
}

// change inserts a row and notifies a topic.
func change(t *testing.T, c *sqlconn.Conn, topic string) {
	t.Helper()
	err := c.Update(testwait.Long(t), func(ctx context.Context, tx *sqlconn.Tx) error {
		tx.Notify(topic)
		_, err := tx.Exec(ctx, "INSERT INTO t (id) SELECT count(*) FROM t")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestWatch shows that a change notifies the watchers of its topic, at once in the same process and
// later in others.
func TestWatch(t *testing.T) {
	eachURL(t, func(t *testing.T, dsn string) {
		here, there := open(t, sqlconn.Config{URL: dsn}), open(t, sqlconn.Config{URL: dsn})
		mine, all := here.Watch(0, "a", "b"), here.Watch(0)
		defer mine.Close()
		defer all.Close()
		far := there.Watch(0, "a")
		defer far.Close()
		testwait.UntilNil(t, "the other process hears", func() error {
			change(t, here, "a")
			if !heard(far, 500*time.Millisecond) {
				return errors.New("nothing")
			}
			return nil
		})
		for name, w := range map[string]*sqlconn.Watcher{"of the topic": mine, "of all": all} {
			if !heard(w, 20*time.Second) {
				t.Errorf("the watcher %s in the same process was not woken", name)
			}
		}
		testwait.UntilNil(t, "this process hears of the other", func() error {
			for heard(mine, 0) {
			}
			change(t, there, "b")
			if !heard(mine, 500*time.Millisecond) {
				return errors.New("nothing")
			}
			return nil
		})
		mine.Close()
		mine.Close()
		all.Close()
	})
}

// TestWatchFromTheStart shows that a change by another process directly after Watch is noticed,
// before the first poll of the file.
func TestWatchFromTheStart(t *testing.T) {
	eachURL(t, func(t *testing.T, dsn string) {
		here, there := open(t, sqlconn.Config{URL: dsn}), open(t, sqlconn.Config{URL: dsn})
		change(t, there, "a")
		for range 5 {
			w := here.Watch(50*time.Millisecond, "a")
			change(t, there, "a")
			if !heard(w, 20*time.Second) {
				t.Error("a change right after Watch is not heard of")
			}
			w.Close()
		}
	})
}

// TestReportedWrites shows that a SQLite file need not be polled: each change is heard of although
// each poll comes after twice the time of the one before.
func TestReportedWrites(t *testing.T) {
	dsn := "sqlite://" + filepath.Join(t.TempDir(), "app.db")
	here, there := open(t, sqlconn.Config{URL: dsn}), open(t, sqlconn.Config{URL: dsn})
	run(t, here, "CREATE TABLE t (id bigint)")
	w := here.Watch(time.Hour)
	defer w.Close()
	for range 25 { // the last poll alone would come after half a day
		change(t, there, "a")
		if !heard(w, 20*time.Second) {
			t.Fatal("a change was not reported")
		}
	}
}

// TestNotWoken shows that a rolled-back transaction notifies no watcher. On PostgreSQL, another
// topic does not either.
func TestNotWoken(t *testing.T) {
	p := testserver.RequirePostgres(t)
	dsn := pgURL(t, p)
	here, there := open(t, sqlconn.Config{URL: dsn}), open(t, sqlconn.Config{URL: dsn})
	run(t, here, "CREATE TABLE t (id bigint)")
	far, near := there.Watch(0, "a"), here.Watch(0, "a")
	defer far.Close()
	defer near.Close()
	testwait.UntilNil(t, "the other process hears", func() error {
		change(t, here, "a")
		if !heard(far, 500*time.Millisecond) {
			return errors.New("nothing")
		}
		return nil
	})
	<-near.C()
	// earlier notifications may come late on a busy machine
	for heard(far, time.Second) || heard(near, 0) {
	}
	_ = here.Update(testwait.Long(t), func(_ context.Context, tx *sqlconn.Tx) error {
		tx.Notify("a")
		return errMine
	})
	change(t, here, "b")
	change(t, there, "b")
	if heard(far, 300*time.Millisecond) || heard(near, 0) {
		t.Error("woken by a transaction that was rolled back, or by another topic")
	}
}

// TestWatchOutlivesTheServer shows that watchers are notified once after the server was down, and
// then work again.
func TestWatchOutlivesTheServer(t *testing.T) {
	p := testserver.OwnPostgres(t, testserver.PostgresConfig{})
	here, there := open(t, sqlconn.Config{URL: p.URL()}), open(t, sqlconn.Config{URL: p.URL()})
	run(t, here, "CREATE TABLE t (id bigint)")
	far := there.Watch(0, "a")
	defer far.Close()
	if !heard(far, 20*time.Second) {
		t.Fatal("it does not look when it begins to listen")
	}
	p.Kill()
	if err := p.Restart(testwait.Long(t)); err != nil {
		t.Fatal(err)
	}
	if !heard(far, 20*time.Second) {
		t.Error("it does not look when it listens again")
	}
	testwait.UntilNil(t, "it hears again", func() error {
		change(t, here, "a")
		if !heard(far, 500*time.Millisecond) {
			return errors.New("nothing")
		}
		return nil
	})
}

// TestBurst shows that many changes are sent in few notifications, and that the last change is not
// missed.
func TestBurst(t *testing.T) {
	p := testserver.RequirePostgres(t)
	dsn := pgURL(t, p)
	here, there := open(t, sqlconn.Config{URL: dsn}), open(t, sqlconn.Config{URL: dsn})
	run(t, here, "CREATE TABLE t (id bigint)")
	far := there.Watch(0)
	defer far.Close()
	if !heard(far, 20*time.Second) {
		t.Fatal("it does not look when it begins to listen")
	}
	topics := make([]string, 300) // three times the topics of one notification
	for i := range topics {
		topics[i] = testserver.Namespace()
	}
	topics[0] = string(make([]byte, 8000))
	sqlconn.Tell(here, topics)
	if !heard(far, 20*time.Second) {
		t.Error("a burst is not told at all")
	}
}

// TestListen shows that Listen reports topics of other Conns and not those of its own Conn.
func TestListen(t *testing.T) {
	eachURL(t, func(t *testing.T, dsn string) {
		here, there := open(t, sqlconn.Config{URL: dsn}), open(t, sqlconn.Config{URL: dsn})
		words := make(chan string, 1000)
		stop := there.Listen(0, func(topic string) { words <- topic })
		defer stop()
		testwait.UntilNil(t, "another one's change is heard", func() error {
			change(t, here, "a")
			select {
			case topic := <-words:
				if topic != "" && topic != "a" {
					t.Errorf("heard %q", topic)
				}
				return nil
			case <-time.After(500 * time.Millisecond):
				return errors.New("nothing")
			}
		})
		for quiet := false; !quiet; { // notifications of the first part come late
			select {
			case <-words:
			case <-time.After(300 * time.Millisecond):
				quiet = true
			}
		}
		mine := there.Watch(0, "b")
		defer mine.Close()
		change(t, there, "b")
		if !heard(mine, 20*time.Second) {
			t.Error("a watcher beside it was not woken")
		}
		select {
		case topic := <-words:
			t.Errorf("heard %q of its own change", topic)
		case <-time.After(100 * time.Millisecond):
		}
		stop()
		stop()
	})
}
