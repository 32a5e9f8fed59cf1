package open_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/sqlbroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/limit/sqllimit"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
)

// sqlURLs returns the URL of an empty database for each kind.
func sqlURLs(t *testing.T) map[string]string {
	t.Helper()
	p, err := testserver.RequirePostgres(t).Database(t.Context(), testserver.Namespace())
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{"sqlite": "sqlite://" + t.TempDir() + "/a,b.db", "postgres": p}
}

// TestTasksInSQL shows that the URL of a database alone carries tasks, their results and events,
// between two Swarms, and stores revocations and limits.
func TestTasksInSQL(t *testing.T) {
	for name, at := range sqlURLs(t) {
		t.Run(name, func(t *testing.T) {
			o := open.Options{Namespace: "a", Logger: slog.New(slog.DiscardHandler)}
			in, out := opened(t, at, o), opened(t, at, o)
			roundTrip(t, out, in)
			if in.Limiter == nil || in.Revocations == nil || in.Control != nil {
				t.Errorf("limiter %v, revocations %v, control %v", in.Limiter, in.Revocations, in.Control)
			}
			if err := out.Ping(t.Context()); err != nil {
				t.Errorf("Ping: %v", err)
			}
			withBus := opened(t, at, open.Options{Namespace: "a", Events: "mem://", Logger: o.Logger})
			roundTrip(t, withBus, withBus)
		})
	}
}

// TestRevokedInSQL revokes a task in one Swarm before a consumer of another one starts. The
// consumer finds the revocation in the database and skips the task.
func TestRevokedInSQL(t *testing.T) {
	for name, at := range sqlURLs(t) {
		t.Run(name, func(t *testing.T) {
			ctx := testwait.Long(t)
			o := open.Options{Namespace: "a", Logger: slog.New(slog.DiscardHandler)}
			out := opened(t, at, o)
			f, err := double.Submit(ctx, producing(t, out), 21)
			if err != nil {
				t.Fatal(err)
			}
			r, err := revoke.NewRevoker(revoke.RevokerConfig{Events: out.Revocations})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.Revoke(ctx, revoke.Options{}, f.ID()); err != nil && !errors.Is(err, revoke.ErrUnheard) {
				t.Fatal(err)
			}
			c, err := opened(t, at, o).Consumer(consumer.Config{})
			if err != nil {
				t.Fatal(err)
			}
			if err := double.Handle(c, func(_ context.Context, n int) (int, error) { return 2 * n, nil }); err != nil {
				t.Fatal(err)
			}
			running(t, c)
			if n, err := f.Get(ctx); !errors.Is(err, task.ErrRevoked) {
				t.Errorf("the revoked task returned %d, %v", n, err)
			}
		})
	}
}

// TestResultsInSQL stores results in a SQL database, named in the options, in the broker's URL, or
// alone. The namespace is that of the broker, or of the database's URL.
func TestResultsInSQL(t *testing.T) {
	for name, at := range sqlURLs(t) {
		t.Run(name, func(t *testing.T) {
			s := opened(t, "mem://?namespace=a&results="+url.QueryEscape(at), open.Options{})
			roundTrip(t, s, s)
			if err := s.Ping(t.Context()); err != nil {
				t.Errorf("Ping: %v", err)
			}
			r := resultstore.Record{ID: "kept", State: task.StateSucceeded}
			if err := s.Results.Save(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			more := "?"
			if strings.Contains(at, "?") {
				more = "&"
			}
			for in, want := range map[string]error{"": resultstore.ErrNotFound, more + "namespace=a": nil} {
				alone, err := open.Results(t.Context(), at+in, open.Options{})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := alone.Load(t.Context(), r.ID); !errors.Is(err, want) {
					t.Errorf("with %q: %v, want %v", in, err, want)
				}
				if err := alone.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
			o := opened(t, "mem://", open.Options{Namespace: "a", Results: at})
			if _, err := o.Results.Load(t.Context(), r.ID); err != nil {
				t.Errorf("named in the options: %v", err)
			}
		})
	}
}

// TestSQLAway shows that an unavailable database gives an error of one sentence, without a secret.
func TestSQLAway(t *testing.T) {
	at := testserver.UnusedAddr(t)
	s := opened(t, "mem://", open.Options{Results: "postgres://u:" + secret + "@" + at + "/db"})
	refused(t, s, broker.ErrUnavailable, "no PostgreSQL answers at "+at, "start one")
	file := filepath.Join(t.TempDir(), "none", "app.db")
	s = opened(t, "mem://", open.Options{Results: "sqlite://" + file})
	refused(t, s, resultstore.ErrUnavailable, file)
}

// TestSQLRefused shows that the URL of a result store is refused if it is invalid.
func TestSQLRefused(t *testing.T) {
	const at = "postgres://u:" + secret + "@host/db"
	for name, c := range map[string]struct {
		url  string
		o    open.Options
		want string
	}{
		"age of dead letters":    {"sqlite:app.db?dead_ttl=1", open.Options{}, "dead_ttl must be"},
		"parts of a part":        {"mem://", open.Options{Results: at + "?results=mem://"}, "belong to the broker's URL"},
		"retained results":       {"mem://", open.Options{Results: at + "?retain=1h"}, "belongs to the URL of the events"},
		"another namespace":      {"mem://", open.Options{Results: at + "?namespace=b", Namespace: "a"}, "differs"},
		"no namespace":           {"mem://", open.Options{Results: at + "?namespace=a.b"}, "Namespace must be"},
		"parameters of a file":   {"mem://", open.Options{Results: "sqlite:app.db?colour=red"}, "takes no parameters"},
		"nobody verifies":        {"mem://", open.Options{Results: at + "?sslmode=require"}, "verifies no certificate"},
		"TLS and no TLS":         {"mem://", open.Options{Results: at + "?sslmode=disable", TLS: &tls.Config{}}, "contradict"},
		"slash in the password":  {"mem://", open.Options{Results: "postgres://u:1/" + secret + "@host/db"}, "percent-encode"},
		"hash in the password":   {"mem://", open.Options{Results: "postgres://u:1#" + secret + "@host/db"}, "percent-encode"},
		"escape in the password": {"mem://", open.Options{Results: "postgres://u:%zz" + secret + "@host/db"}, "percent-encode"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := open.Open(t.Context(), c.url, c.o)
			if err == nil {
				_ = s.Close(t.Context())
				t.Fatal("it is opened")
			}
			if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), secret) {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
	// a file ignores the TLS of the broker
	s := opened(t, "mem://", open.Options{Results: "sqlite::memory:", TLS: &tls.Config{}})
	roundTrip(t, s, s)
}

// ExampleOpen_resultsInAFile stores results in a file, with any broker.
func ExampleOpen_resultsInAFile() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "results")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	s, err := open.Open(ctx, "mem://", open.Options{Results: "sqlite://" + filepath.ToSlash(dir) + "/app.db"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close(ctx)
	fmt.Println(s.Results.Save(ctx, resultstore.Record{ID: "task-1", State: task.StateSucceeded, Result: []byte("3")}))
	r, err := s.Results.Load(ctx, "task-1")
	fmt.Println(r.State, string(r.Result), err)
	// Output:
	// <nil>
	// succeeded 3 <nil>
}

// ExampleDatabase makes the tables of all adapters before the program starts, and gives the
// database to an adapter.
func ExampleDatabase() {
	ctx := context.Background()
	db, err := open.Database(ctx, "sqlite::memory:", open.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close(ctx)
	if err := db.Migrate(ctx); err != nil {
		fmt.Println(err)
		return
	}
	b, err := sqlbroker.New(sqlbroker.Config{DB: db})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close(ctx)
	fmt.Println(broker.Declare(ctx, b, broker.Queue{Name: "mail"}))
	// Output:
	// <nil>
}

// ExampleSwarm_Database limits calls with the connections of the Swarm.
func ExampleSwarm_Database() {
	ctx := context.Background()
	s, err := open.Open(ctx, "sqlite::memory:", open.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close(ctx)
	l, err := sqllimit.New(sqllimit.Config{DB: s.Database()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close(ctx)
	for _, holder := range []string{"a", "b"} {
		d, err := l.Acquire(ctx, holder, time.Minute, limit.Permit{Key: "report", Max: 1})
		fmt.Println(holder, d.Granted, err)
	}
	// Output:
	// a true <nil>
	// b false <nil>
}
