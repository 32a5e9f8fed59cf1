package sqlbroker_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/brokertest"
	"github.com/swarmiji/swarmiji/broker/sqlbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// urls returns the URL of a database for each kind.
func urls(t testing.TB) map[string]string {
	return map[string]string{
		"sqlite":   "sqlite://" + filepath.Join(memoryDir(t), "app.db"),
		"memory":   "sqlite::memory:",
		"postgres": testserver.RequirePostgres(t).URL(),
	}
}

// each runs fn as a subtest with a Broker over each kind of database, and with a ctx for its calls.
func each(t *testing.T, fn func(ctx context.Context, t *testing.T, b *sqlbroker.Broker)) {
	for name, url := range urls(t) {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			b := open(t, config(t, url, testserver.Namespace()))
			fn(ctx, t, b)
			if err := b.Close(ctx); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
}

// subscribed returns a subscription.
func subscribed(ctx context.Context, t *testing.T, b *sqlbroker.Broker, queue string, prefetch int) broker.Subscription {
	t.Helper()
	s, err := b.Subscribe(ctx, queue, broker.SubscribeOptions{Prefetch: prefetch})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// received returns the next delivery.
func received(ctx context.Context, t *testing.T, s broker.Subscription) broker.Delivery {
	t.Helper()
	d, err := s.Receive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A successor may have the pair (ID, Generation) of the delivery that it replaces. One statement
// removes the delivery and adds the successor. It must not take them for duplicates.
func TestRetryWithTheSamePair(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, b *sqlbroker.Broker) {
		s := subscribed(ctx, t, b, "q", 1)
		if err := b.Publish(ctx, "q", &broker.Message{ID: "a", Body: []byte("first")}); err != nil {
			t.Fatal(err)
		}
		d := received(ctx, t, s)
		if err := b.Retry(ctx, d, broker.Outgoing{Queue: "q", Message: &broker.Message{ID: "a", Body: []byte("second")}}); err != nil {
			t.Fatal(err)
		}
		d = received(ctx, t, s)
		if n, exact := d.Deliveries(); string(d.Message().Body) != "second" || n != 1 || !exact {
			t.Errorf("received %q, delivery %d", d.Message().Body, n)
		}
		if err := broker.AckSync(ctx, d); err != nil {
			t.Error(err)
		}
		if st, err := b.Stats(ctx, "q"); err != nil || st != (broker.Stats{}) {
			t.Errorf("Stats is %+v, %v", st, err)
		}
	})
}

// A released message has its old place, although the cursor of its consumer has passed it. The
// messages that a closed subscription returns have their old places too.
func TestReleasedMessageIsFirst(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, b *sqlbroker.Broker) {
		s := subscribed(ctx, t, b, "q", 1)
		for i := range 4 {
			if err := b.Publish(ctx, "q", &broker.Message{ID: fmt.Sprint(i)}); err != nil {
				t.Fatal(err)
			}
		}
		first, other := received(ctx, t, s), subscribed(ctx, t, b, "q", 1)
		second := received(ctx, t, other)
		if err := first.Release(ctx, 0); err != nil {
			t.Fatal(err)
		}
		if err := second.Ack(ctx); err != nil {
			t.Fatal(err)
		}
		for _, s := range []broker.Subscription{s, other} {
			if err := s.Close(ctx); err != nil {
				t.Fatal(err)
			}
		}
		last := subscribed(ctx, t, b, "q", 10)
		for _, want := range []string{"0", "2", "3"} {
			d := received(ctx, t, last)
			if d.Message().ID != want {
				t.Errorf("received %s, want %s", d.Message().ID, want)
			}
			if n, _ := d.Deliveries(); n > 2 {
				t.Errorf("delivery %d of %s: a message that Receive did not return counts", n, want)
			}
		}
	})
}

// A queue of another namespace in the same database is another queue.
func TestNamespaces(t *testing.T) {
	for name, url := range urls(t) {
		if name == "memory" {
			continue // each Broker has its own database
		}
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			one, two := open(t, config(t, url, testserver.Namespace())), open(t, config(t, url, testserver.Namespace()))
			defer func() {
				if err := one.Close(context.Background()); err != nil {
					t.Error(err)
				}
				if err := two.Close(context.Background()); err != nil {
					t.Error(err)
				}
			}()
			for _, b := range []*sqlbroker.Broker{one, two} {
				if err := b.Declare(ctx, broker.Queue{Name: "q"}); err != nil {
					t.Fatal(err)
				}
			}
			if err := one.Publish(ctx, "q", &broker.Message{ID: "a"}); err != nil {
				t.Fatal(err)
			}
			if st, err := two.Stats(ctx, "q"); err != nil || st.Ready != 0 {
				t.Errorf("Stats of the other namespace is %+v, %v", st, err)
			}
		})
	}
}

// New returns all faults of a configuration.
func TestConfigRefused(t *testing.T) {
	_, err := sqlbroker.New(sqlbroker.Config{
		Namespace: "a.b", MaxBody: -1, Lease: time.Millisecond, Poll: -1,
	})
	if err == nil {
		t.Fatal("it is accepted")
	}
	for _, want := range []string{"Namespace", "MaxBody", "Lease", "Poll", "DB must come from"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

// Audit names the settings with which a crash loses confirmed messages.
func TestAuditOfServer(t *testing.T) {
	t.Parallel()
	srv := testserver.OwnPostgres(t, testserver.PostgresConfig{})
	ctx := t.Context()
	b := open(t, config(t, srv.URL(), "n"))
	defer func() {
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if notes, err := b.Audit(ctx, ""); err != nil || notes != nil {
		t.Errorf("Audit is %q, %v", notes, err)
	}
	for _, query := range []string{"ALTER SYSTEM SET fsync = off", "ALTER SYSTEM SET synchronous_commit = off", "SELECT pg_reload_conf()"} {
		if err := srv.Exec(ctx, "postgres", query); err != nil {
			t.Fatal(err)
		}
	}
	testwait.Until(t, "Audit names both settings", func() bool {
		notes, err := b.Audit(ctx, "")
		return err == nil && len(notes) == 2 && strings.Contains(notes[0], "fsync") && strings.Contains(notes[1], "synchronous_commit")
	})
}

func BenchmarkSQLite(b *testing.B) {
	url := "sqlite://" + filepath.Join(b.TempDir(), "app.db")
	brokertest.Bench(b, func(testing.TB) *brokertest.Harness {
		ns := testserver.Namespace()
		return &brokertest.Harness{
			Open: func(t testing.TB) broker.Broker { return open(t, config(t, url, ns)) }, Promises: promises, Leases: 30 * time.Second,
		}
	})
}

func BenchmarkPostgres(b *testing.B) {
	srv := testserver.RequirePostgres(b)
	brokertest.Bench(b, func(testing.TB) *brokertest.Harness {
		ns := testserver.Namespace()
		return &brokertest.Harness{
			Open: func(t testing.TB) broker.Broker { return open(t, config(t, srv.URL(), ns)) }, Promises: promises, Leases: 30 * time.Second,
		}
	})
}

// The statements for each message use an index, whatever the number of messages.
func TestPlans(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, b *sqlbroker.Broker) {
		fairQueue(ctx, t, b, "fair")
		plans, err := sqlbroker.Plans(ctx, b)
		if err != nil {
			t.Fatal(err)
		}
		for name, plan := range plans {
			index := "pkey"
			switch {
			case name == "claim", name == "recover":
				index = "swarmiji_message_due"
			case name == "fair claimRows":
				index = "INTEGER PRIMARY KEY"
			case name == "fair bound of":
				index = "swarmiji_fair_message_bound"
			case name == "fair keys", name == "fair claim", name == "fair recover", name == "fair bound keys", name == "fair bound claim":
				index = "swarmiji_fair_message_ring"
			case name == "fair promote":
				index = "swarmiji_fair_message_delayed"
			case strings.HasPrefix(name, "fair") && strings.Contains(plan, "sqlite_autoindex"):
				index = "sqlite_autoindex_swarmiji_fair_message"
			case strings.Contains(plan, "sqlite_autoindex"):
				index = "sqlite_autoindex_swarmiji_message"
			}
			if !strings.Contains(plan, index) {
				t.Errorf("%s does not use %s:\n%s", name, index, plan)
			}
			for _, slow := range []string{"Seq Scan", "SCAN swarmiji_message", "SCAN swarmiji_fair_message", "Join Filter", "Materialize", "Hash Join", "Merge Join"} {
				if strings.Contains(plan, slow) {
					t.Errorf("%s has a %s:\n%s", name, slow, plan)
				}
			}
		}
	})
}
