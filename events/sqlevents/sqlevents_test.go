package sqlevents_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/sqlevents"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/task"
)

// each runs a test on an empty database of each kind.
func each(t *testing.T, test func(t *testing.T, url string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { test(t, fileURL(t)) })
	t.Run("postgres", func(t *testing.T) {
		url, err := testserver.RequirePostgres(t).Database(t.Context(), testserver.Namespace())
		if err != nil {
			t.Fatal(err)
		}
		test(t, url+"&pool_max_conns=4")
	})
}

// beside opens another connection to the database.
func beside(t *testing.T, url string) *sqlconn.Conn {
	t.Helper()
	c := sqltest.Conn(t, url)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// number returns the number that a query returns.
func number(t *testing.T, c *sqlconn.Conn, query string) (n int) {
	t.Helper()
	err := c.View(testwait.Long(t), func(ctx context.Context, tx *sqlconn.Tx) error { return tx.Row(ctx, query).Scan(&n) })
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// do runs a statement.
func do(t *testing.T, c *sqlconn.Conn, query string) {
	t.Helper()
	err := c.Update(testwait.Long(t), func(ctx context.Context, tx *sqlconn.Tx) error {
		_, err := tx.Exec(ctx, query)
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

const (
	messages  = "SELECT count(*) FROM swarmiji_event"
	listening = "SELECT count(*) FROM swarmiji_event_listener"
)

func publish(t *testing.T, b *sqlevents.Bus, typ string, n int) {
	t.Helper()
	for i := range n {
		if err := b.Publish(t.Context(), events.Event{Type: typ, TaskID: task.ID(fmt.Sprint(i))}); err != nil {
			t.Fatal(err)
		}
	}
}

func subscribe(t *testing.T, b *sqlevents.Bus, types ...string) events.Subscription {
	t.Helper()
	s, err := b.Subscribe(testwait.Long(t), events.Filter{Types: types})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// receive waits for the next event and fails the test unless it has this type.
func receive(t *testing.T, s events.Subscription, typ string) events.Event {
	t.Helper()
	e, err := s.Receive(testwait.Long(t))
	if err != nil || e.Type != typ {
		t.Fatalf("received %q, %v; want %q", e.Type, err, typ)
	}
	return e
}

// TestUnwantedEventsAreNotWritten shows that a publisher writes only events whose type a listener
// in any process wants, and stops when the listener ends.
func TestUnwantedEventsAreNotWritten(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		publisher, listener, conn := opened(t, config(t, url, "a")), opened(t, config(t, url, "a")), beside(t, url)
		s := subscribe(t, listener, "wanted", "also")
		publish(t, publisher, events.TaskStarted, 300)
		publish(t, publisher, "wanted", 1)
		receive(t, s, "wanted") // the events before it were sent, or not, by then
		if n := number(t, conn, "SELECT count(*) FROM swarmiji_event WHERE live = 1"); n != 1 {
			t.Errorf("%d messages are in the table, want the one with the wanted event", n)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		testwait.Until(t, "the listener has no row", func() bool { return number(t, conn, listening) == 0 })
		testwait.Until(t, "an event is not written", func() bool {
			before := number(t, conn, messages)
			last := open(t, config(t, url, "a"))
			publish(t, last, "wanted", 1)
			if err := last.Close(testwait.Long(t)); err != nil { // sends the waiting event
				t.Fatal(err)
			}
			return number(t, conn, messages) == before
		})
		if d := publisher.Dropped(); d != 0 {
			t.Errorf("%d unwanted events count as dropped", d)
		}
	})
}

// TestKeptEventsAreAlwaysWritten shows that events of kept types are stored although no listener
// exists, without the other events of their messages.
func TestKeptEventsAreAlwaysWritten(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		c := config(t, url, "a")
		c.Retain = events.Retention{Age: time.Hour, Types: []string{events.TaskRevoke}}
		publisher, conn := open(t, c), beside(t, url)
		publish(t, publisher, events.TaskStarted, 20)
		publish(t, publisher, events.TaskRevoke, 3)
		publish(t, publisher, events.TaskStarted, 20)
		if err := publisher.Close(testwait.Long(t)); err != nil {
			t.Fatal(err)
		}
		if n := number(t, conn, "SELECT CAST(sum(kept) AS bigint) FROM swarmiji_event"); n != 3 {
			t.Errorf("%d kept events, want 3", n)
		}
		if n := number(t, conn, "SELECT count(*) FROM swarmiji_event WHERE live = 1"); n != 0 {
			t.Errorf("%d messages for listeners that do not exist", n)
		}
		s, err := opened(t, c).Replay(testwait.Long(t), events.Filter{}, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if e := receive(t, s, events.TaskRevoke); e.TaskID != task.ID(fmt.Sprint(i)) {
				t.Errorf("event %d is of task %s", i, e.TaskID)
			}
		}
	})
}

// TestNextEvent subscribes while another process publishes without a pause. It knew a moment ago
// that no listener exists. The one event that it publishes after Subscribe has returned arrives.
func TestNextEvent(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		for range 3 {
			c := config(t, url, testserver.Namespace())
			publisher, listener := opened(t, c), opened(t, c)
			subscribed, ended := make(chan struct{}), make(chan error, 1)
			go func() {
				for {
					typ, last := "before", false
					select {
					case <-subscribed:
						typ, last = "after", true
					default:
					}
					if err := publisher.PublishNow(events.Event{Type: typ}); err != nil || last {
						ended <- err
						return
					}
				}
			}()
			testwait.Until(t, "the publisher has asked", func() bool { return sqlevents.Asked(publisher) })
			s := subscribe(t, listener, "other", "after")
			close(subscribed)
			receive(t, s, "after")
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestOpenTransaction shows that an old transaction that stays open delays no reader.
func TestOpenTransaction(t *testing.T) {
	url, err := testserver.RequirePostgres(t).Database(t.Context(), testserver.Namespace())
	if err != nil {
		t.Fatal(err)
	}
	c := config(t, url, "a")
	c.Retain = events.Retention{Age: time.Hour}
	publisher, listener, conn := opened(t, c), opened(t, c), beside(t, url)
	do(t, conn, "CREATE TABLE of_a_user (n int)")
	live := subscribe(t, listener)
	held, release := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- conn.Update(testwait.Long(t), func(ctx context.Context, tx *sqlconn.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO of_a_user VALUES (1)"); err != nil { // it has an id now
				return err
			}
			close(held)
			<-release
			return nil
		})
	}()
	<-held
	publish(t, publisher, "during", 1)
	receive(t, live, "during")
	kept, err := listener.Replay(testwait.Long(t), events.Filter{}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	receive(t, kept, "during")
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestCommitOrder shows that a message waits for the commit of an earlier one, so that a reader
// does not pass over the earlier message.
func TestCommitOrder(t *testing.T) {
	url, err := testserver.RequirePostgres(t).Database(t.Context(), testserver.Namespace())
	if err != nil {
		t.Fatal(err)
	}
	publisher, listener, conn := opened(t, config(t, url, "a")), opened(t, config(t, url, "a")), beside(t, url)
	s := subscribe(t, listener)
	message, err := events.Encode([]events.Event{{Type: "first"}})
	if err != nil {
		t.Fatal(err)
	}
	err = conn.Update(testwait.Long(t), func(ctx context.Context, tx *sqlconn.Tx) error {
		if err := sqlevents.AddIn(ctx, tx, publisher, message); err != nil {
			return err
		}
		publish(t, publisher, "second", 1)
		testwait.Until(t, "the second message waits", func() bool {
			return number(t, conn, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = "+
				"(SELECT oid FROM pg_database WHERE datname = current_database())") == 1
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	receive(t, s, "first")
	receive(t, s, "second")
}

// TestSweep shows that a bus that publishes deletes expired messages and listeners of all
// namespaces. A reader counts exactly the kept events that it has missed.
func TestSweep(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		c := config(t, url, "a")
		c.Retain, c.Batch.MaxBytes = events.Retention{Age: time.Hour}, 1 // a message for each event
		old, conn := open(t, c), beside(t, url)
		const n = sqlevents.SweepBatch + 50
		first, err := old.Replay(testwait.Long(t), events.Filter{}, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		publish(t, old, "old", n)
		testwait.Until(t, "all messages are written", func() bool { return number(t, conn, messages) == n })
		for range 20 { // one page has 16
			receive(t, first, "old")
		}
		do(t, conn, "UPDATE swarmiji_event SET expires = 1")
		do(t, conn, "INSERT INTO swarmiji_event_listener (namespace, id, types, begun, until) VALUES ('dead', '1', '', 1, 1)")
		late, err := old.Replay(testwait.Long(t), events.Filter{}, time.Time{})
		if err != nil {
			t.Fatal(err)
		}

		c.Namespace = "b"
		other := opened(t, c)
		testwait.Until(t, "only new messages are left", func() bool {
			publish(t, other, "new", 1)
			return number(t, conn, "SELECT count(*) FROM swarmiji_event WHERE namespace = 'a'") == 0 && number(t, conn, listening) == 0
		})
		publish(t, old, "last", 1)
		for { // rows of a page that it had read before
			e, err := first.Receive(testwait.Long(t))
			if err != nil {
				t.Fatal(err)
			}
			if e.Type == "last" {
				break
			}
		}
		receive(t, late, "last")
		if d := first.(events.DropCounter).Dropped(); d != n-32 {
			t.Errorf("a reader of two pages has missed %d events, want %d", d, n-32)
		}
		if d := late.(events.DropCounter).Dropped(); d != 0 {
			t.Errorf("a reader that began after the end of the events has missed %d", d)
		}
		if err := old.Close(testwait.Long(t)); err != nil {
			t.Fatal(err)
		}
	})
}

// TestEndedLease shows that a listener whose lease has ended, as after a long fault, logs a warning
// and is written for again.
func TestEndedLease(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		var log bytes.Buffer
		c := config(t, url, "a")
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		listener, conn := opened(t, c), beside(t, url)
		s := subscribe(t, listener, "x")
		if err := sqlevents.Renew(t.Context(), listener); err != nil || log.Len() > 0 {
			t.Fatalf("%v, %s", err, &log)
		}
		do(t, conn, "DELETE FROM swarmiji_event_listener")
		if err := sqlevents.Renew(t.Context(), listener); err != nil || !strings.Contains(log.String(), "was interrupted") {
			t.Errorf("%v, %s", err, &log)
		}
		publish(t, opened(t, config(t, url, "a")), "x", 1)
		receive(t, s, "x")
	})
}

// TestNextListener shows that publishers keep writing for a bus while one listener soon follows
// another, for longer than the bus stays registered without one.
func TestNextListener(t *testing.T) {
	t.Parallel() // it mostly waits
	url := fileURL(t)
	listener, conn := opened(t, config(t, url, "a")), beside(t, url)
	const begun = "SELECT COALESCE(max(begun), 0) FROM swarmiji_event_listener"
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	last, ended := 0, time.Now()
	for range int(sqlevents.Linger/time.Second) + 3 {
		s := subscribe(t, listener, "x")
		n := number(t, conn, begun)
		if quiet := time.Since(ended); last != 0 && n != last && quiet < sqlevents.Linger {
			t.Fatalf("publishers began anew %v after the last listener", quiet)
		}
		last, ended = n, time.Now()
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-tick.C
	}
}

// TestNew shows that New returns all problems of a configuration.
func TestNew(t *testing.T) {
	_, err := sqlevents.New(sqlevents.Config{Namespace: "a.b", Buffer: -1, Retain: events.Retention{Age: -1}})
	for _, want := range []string{"Namespace", "Buffer", "age", "DB must come from"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	b := opened(t, config(t, "sqlite:"+t.TempDir()+"/none/app.db", ""))
	if _, err := b.Subscribe(t.Context(), events.Filter{}); !errors.Is(err, events.ErrUnavailable) {
		t.Errorf("Subscribe without a directory: %v", err)
	}
}
