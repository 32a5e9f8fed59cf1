package consumer_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/broker/sqlbroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/resultstore/sqlresults"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tx"
	"github.com/swarmiji/swarmiji/tx/sqltx"
)

// databases returns the URLs of the databases of the tests of SettleTx.
func databases(t testing.TB) map[string]string {
	return map[string]string{
		"sqlite":   "sqlite://" + filepath.Join(t.TempDir(), "app.db"),
		"postgres": testserver.RequirePostgres(t).URL(),
	}
}

// ledger is a table of effects in the database of the tasks.
type ledger struct {
	t     testing.TB
	db    *sql.DB
	table string
}

func newLedger(t testing.TB, url string) *ledger {
	l := &ledger{t: t, db: sqltest.OpenSQL(t, url), table: "effects_" + testserver.Namespace()}
	l.db.SetMaxOpenConns(4)
	if _, err := l.db.ExecContext(t.Context(), "CREATE TABLE "+l.table+" (id text NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	return l
}

// begin begins a transaction that adds an effect. It is rolled back at the end of the test.
func (l *ledger) begin(ctx context.Context, id string) *sql.Tx {
	own, err := l.db.BeginTx(context.WithoutCancel(ctx), nil)
	if err == nil {
		l.t.Cleanup(func() { _ = own.Rollback() })
		_, err = own.ExecContext(ctx, "INSERT INTO "+l.table+" (id) VALUES ($1)", id)
	}
	if err != nil {
		l.t.Errorf("the transaction of %s: %v", id, err)
	}
	return own
}

// count returns the number of effects.
func (l *ledger) count(id string) (n int) {
	l.t.Helper()
	if err := l.db.QueryRowContext(context.Background(), "SELECT count(*) FROM "+l.table+" WHERE id = $1", id).Scan(&n); err != nil {
		l.t.Fatal(err)
	}
	return n
}

// txSwarm is a producer and a consumer over one database.
type txSwarm struct {
	*ledger
	ns      string
	broker  *sqlbroker.Broker
	results *sqlresults.Store
	p       *producer.Producer
	c       *consumer.Consumer
}

// newTxSwarm returns a swarm. change may change the configuration of the consumer.
func newTxSwarm(t *testing.T, url string, change func(c *consumer.Config)) *txSwarm {
	t.Helper()
	ns, quiet := testserver.Namespace(), slog.New(slog.DiscardHandler)
	s := &txSwarm{ledger: newLedger(t, url), ns: ns}
	var err error
	db := sqltest.Open(t, url)
	if s.broker, err = sqlbroker.New(sqlbroker.Config{DB: db, Namespace: ns, Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	if s.results, err = sqlresults.New(sqlresults.Config{DB: db, Namespace: ns, Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	if s.p, err = producer.New(producer.Config{Broker: s.broker, Results: s.results, Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	cfg := consumer.Config{Broker: s.broker, Results: s.results, Logger: quiet, Queues: map[string]consumer.QueueConfig{"default": {Workers: 4}}}
	if change != nil {
		change(&cfg)
	}
	if s.c, err = consumer.New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		if err := errors.Join(s.p.Close(ctx), s.broker.Close(ctx), s.results.Close(ctx)); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// run runs the consumer until the returned function is called.
func (s *txSwarm) run(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// empty waits until no message is left.
func (s *txSwarm) empty(t *testing.T) {
	t.Helper()
	testwait.Until(t, "the queue is empty", func() bool {
		st, err := s.broker.Stats(t.Context(), "default")
		return err == nil && st.Ready+st.Held+st.Delayed == 0
	})
}

// TestSettleTxOutcomes has the outcome of each way in which a handler can end after SettleTx.
func TestSettleTxOutcomes(t *testing.T) {
	boom := errors.New("boom")
	type attempt struct {
		*txSwarm
		t   *testing.T
		id  string
		n   int64  // from 1 on
		end func() // ends an open transaction, after the handler
	}
	commit := func(ctx context.Context, a *attempt) error {
		own := a.begin(ctx, a.id)
		if err := task.SettleTx(ctx, sqltx.Wrap(own), "done"); err != nil {
			a.t.Errorf("SettleTx: %v", err)
		}
		return own.Commit()
	}
	rollback := func(ctx context.Context, a *attempt) error {
		own := a.begin(ctx, a.id)
		if err := task.SettleTx(ctx, sqltx.Wrap(own), "lost"); err != nil {
			a.t.Errorf("SettleTx: %v", err)
		}
		return own.Rollback()
	}
	// refused expects an error of a second SettleTx.
	refused := func(ctx context.Context, a *attempt, t tx.Tx, want error) {
		if err := task.SettleTx(ctx, t, "second"); !errors.Is(err, want) {
			a.t.Errorf("the second SettleTx: %v, want %v", err, want)
		}
	}
	for _, c := range []struct {
		name     string
		handle   func(ctx context.Context, a *attempt) (string, error)
		want     error  // of the future
		result   string // without an error
		attempts int64
		effects  int
	}{
		{"committed and nil", func(ctx context.Context, a *attempt) (string, error) { return "other", commit(ctx, a) }, nil, "done", 1, 1},
		{"committed and an error", func(ctx context.Context, a *attempt) (string, error) {
			return "", errors.Join(commit(ctx, a), boom)
		}, nil, "done", 1, 1},
		{"committed and a panic", func(ctx context.Context, a *attempt) (string, error) {
			_ = commit(ctx, a)
			panic(boom)
		}, nil, "done", 1, 1},
		{"committed and Retry", func(ctx context.Context, a *attempt) (string, error) {
			_ = commit(ctx, a)
			return "", task.Retry(boom)
		}, nil, "done", 1, 1},
		{"a result of another type, then committed", func(ctx context.Context, a *attempt) (string, error) {
			own := a.begin(ctx, a.id)
			if err := task.SettleTx(ctx, sqltx.Wrap(own), 42); !errors.Is(err, task.ErrBadResult) {
				a.t.Errorf("SettleTx with a number: %v, want ErrBadResult", err)
			}
			if err := task.SettleTx(ctx, sqltx.Wrap(own), "done"); err != nil {
				a.t.Errorf("SettleTx in the same transaction: %v", err)
			}
			return "", own.Commit()
		}, nil, "done", 1, 1},
		{"rolled back and nil", func(ctx context.Context, a *attempt) (string, error) {
			if a.n == 1 {
				return "other", rollback(ctx, a)
			}
			return "", commit(ctx, a)
		}, nil, "done", 2, 1},
		{"rolled back and nil, always", func(ctx context.Context, a *attempt) (string, error) { return "other", rollback(ctx, a) }, task.ErrNotCommitted, "", 3, 0},
		{"rolled back and an error", func(ctx context.Context, a *attempt) (string, error) {
			_ = rollback(ctx, a)
			return "", task.Fail(boom)
		}, boom, "", 1, 0},
		{"rolled back and a panic", func(ctx context.Context, a *attempt) (string, error) {
			if a.n == 1 {
				_ = rollback(ctx, a)
				panic(boom)
			}
			return "", commit(ctx, a)
		}, nil, "done", 2, 1},
		{"rolled back, and committed with another transaction", func(ctx context.Context, a *attempt) (string, error) {
			_ = rollback(ctx, a)
			return "", commit(ctx, a)
		}, nil, "done", 1, 1},
		{"twice in one transaction", func(ctx context.Context, a *attempt) (string, error) {
			own := a.begin(ctx, a.id)
			if err := task.SettleTx(ctx, sqltx.Wrap(own), "done"); err != nil {
				a.t.Errorf("SettleTx: %v", err)
			}
			refused(ctx, a, sqltx.Wrap(own), broker.ErrSettled)
			return "", own.Commit()
		}, nil, "done", 1, 1},
		{"again after the commit", func(ctx context.Context, a *attempt) (string, error) {
			err := commit(ctx, a)
			own := a.begin(ctx, "none")
			refused(ctx, a, sqltx.Wrap(own), broker.ErrSettled)
			return "", errors.Join(err, own.Rollback())
		}, nil, "done", 1, 1},
		{"two calls at once", func(ctx context.Context, a *attempt) (string, error) {
			own := a.begin(ctx, a.id)
			both := nested{Tx: sqltx.Wrap(own), fn: sync.OnceFunc(func() { refused(ctx, a, sqltx.Wrap(own), broker.ErrSettled) })}
			if err := task.SettleTx(ctx, both, "done"); err != nil {
				a.t.Errorf("SettleTx: %v", err)
			}
			return "", own.Commit()
		}, nil, "done", 1, 1},
		{"committed after the handler has returned", func(ctx context.Context, a *attempt) (string, error) {
			own := a.begin(ctx, a.id)
			if err := task.SettleTx(ctx, sqltx.Wrap(own), "done"); err != nil {
				a.t.Errorf("SettleTx: %v", err)
			}
			a.end = func() {
				// The consumer ends the settler a moment after the handler has returned.
				testwait.Until(a.t, "the second SettleTx is refused as one outside of a handler", func() bool {
					return errors.Is(task.SettleTx(ctx, sqltx.Wrap(own), "second"), task.ErrNoSettler)
				})
				if err := own.Commit(); err != nil {
					a.t.Errorf("Commit: %v", err)
				}
			}
			return "", boom
		}, nil, "done", 1, 1},
		{"rolled back after the handler has returned", func(ctx context.Context, a *attempt) (string, error) {
			if a.n > 1 {
				return "", commit(ctx, a)
			}
			own := a.begin(ctx, a.id)
			if err := task.SettleTx(ctx, sqltx.Wrap(own), "done"); err != nil {
				a.t.Errorf("SettleTx: %v", err)
			}
			a.end = func() { _ = own.Rollback() }
			return "", nil
		}, nil, "done", 2, 1},
		{"not called", func(_ context.Context, a *attempt) (string, error) { return "plain", nil }, nil, "plain", 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, url := range databases(t) {
				t.Run(name, func(t *testing.T) {
					s := newTxSwarm(t, url, nil)
					var n atomic.Int64
					ended := make(chan func(), 1)
					def := task.New[string, string]("settle", task.WithRetry(task.RetryPolicy{}), task.WithRetryDelay(0), task.WithMaxRetries(2))
					if err := def.Handle(s.c, func(ctx context.Context, id string) (string, error) {
						a := &attempt{txSwarm: s, t: t, id: id, n: n.Add(1)}
						defer func() {
							if a.end != nil {
								ended <- a.end
							}
						}()
						return c.handle(ctx, a)
					}); err != nil {
						t.Fatal(err)
					}
					stop := s.run(t)
					id := "task-" + testserver.Namespace()
					f, err := def.Submit(t.Context(), s.p, id, task.WithID(task.ID(id)))
					if err != nil {
						t.Fatal(err)
					}
					if strings.Contains(c.name, "after the handler") {
						end := <-ended
						testwait.Until(t, "the handler has returned", func() bool { return len(s.c.Active()) == 0 })
						end()
					}
					got, err := f.Get(testwait.Long(t))
					if c.want != nil {
						if err == nil || !errors.Is(err, c.want) && !strings.Contains(err.Error(), c.want.Error()) {
							t.Errorf("the task ended with %q, %v; want %v", got, err, c.want)
						}
					} else if err != nil || got != c.result {
						t.Errorf("the task ended with %q, %v; want %q", got, err, c.result)
					}
					s.empty(t)
					stop()
					if got := s.count(id); got != c.effects {
						t.Errorf("%d effects, want %d", got, c.effects)
					}
					if got := n.Load(); got != c.attempts {
						t.Errorf("%d attempts, want %d", got, c.attempts)
					}
				})
			}
		})
	}
}

// nested is a transaction that calls fn before a statement.
type nested struct {
	tx.Tx
	fn func()
}

func (n nested) Query(ctx context.Context, q string, args ...any) (tx.Rows, error) {
	n.fn()
	return n.Tx.Query(ctx, q, args...)
}

// counted is a transaction that counts its statements.
type counted struct {
	tx.Tx
	n int
}

func (c *counted) Exec(ctx context.Context, q string, args ...any) (int64, error) {
	c.n++
	return c.Tx.Exec(ctx, q, args...)
}

func (c *counted) Query(ctx context.Context, q string, args ...any) (tx.Rows, error) {
	c.n++
	return c.Tx.Query(ctx, q, args...)
}

// TestSettleTxStatements shows that the transaction is checked once for the result and the
// acknowledgement: two statements check it, and two write.
func TestSettleTxStatements(t *testing.T) {
	s := newTxSwarm(t, testserver.RequirePostgres(t).URL(), nil)
	statements := make(chan int, 1)
	def := task.New[string, string]("settle")
	if err := def.Handle(s.c, func(ctx context.Context, id string) (string, error) {
		own := s.begin(ctx, id)
		c := &counted{Tx: sqltx.Wrap(own)}
		err := task.SettleTx(ctx, c, "done")
		statements <- c.n
		return "", errors.Join(err, own.Commit())
	}); err != nil {
		t.Fatal(err)
	}
	defer s.run(t)()
	// The first one also checks that broker and store are in one database.
	for i, want := range []int{9, 4} {
		if _, err := def.Submit(t.Context(), s.p, fmt.Sprint("task ", i)); err != nil {
			t.Fatal(err)
		}
		if got := <-statements; got > want {
			t.Errorf("SettleTx number %d took %d statements, want at most %d", i, got, want)
		}
	}
	s.empty(t)
}

// TestSettleTxUnsupported shows that SettleTx refuses a task before it writes anything. The
// transaction continues, and the handler's return settles the task.
func TestSettleTxUnsupported(t *testing.T) {
	if err := task.SettleTx(t.Context(), nil, 1); !errors.Is(err, task.ErrNoSettler) {
		t.Errorf("outside of a handler: %v", err)
	}
	url := "sqlite://" + filepath.Join(t.TempDir(), "app.db")
	other := sqltest.OpenSQL(t, "sqlite://"+filepath.Join(t.TempDir(), "other.db"))
	for _, c := range []struct {
		name   string
		change func(c *consumer.Config)
		opts   []task.Option
		other  bool
	}{
		{"results elsewhere", func(c *consumer.Config) { c.Results = memresults.New(memresults.Config{}) }, nil, false},
		{"results in another file", func(c *consumer.Config) {
			at := "sqlite://" + filepath.Join(t.TempDir(), "results.db")
			store, err := sqlresults.New(sqlresults.Config{DB: sqltest.Open(t, at)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = store.Close(context.Background()) })
			c.Results = store
		}, nil, false},
		{"at most once", nil, []task.Option{task.WithIdempotent(false)}, false},
		{"another database", nil, nil, true},
		{"another database without results", nil, []task.Option{task.WithIgnoreResult(true)}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newTxSwarm(t, url, c.change)
			settled := make(chan error, 1)
			def := task.New[string, string]("settle", c.opts...)
			if err := def.Handle(s.c, func(ctx context.Context, id string) (string, error) {
				own := s.begin(ctx, id)
				at := own
				if c.other {
					var err error
					if at, err = other.BeginTx(ctx, nil); err != nil {
						return "", err
					}
					defer func() { _ = at.Rollback() }()
				}
				settled <- task.SettleTx(ctx, sqltx.Wrap(at), "done")
				return "plain", own.Commit()
			}); err != nil {
				t.Fatal(err)
			}
			stop := s.run(t)
			if _, err := def.Submit(t.Context(), s.p, "x"); err != nil {
				t.Fatal(err)
			}
			if err := <-settled; !errors.Is(err, broker.ErrUnsupported) {
				t.Errorf("SettleTx: %v, want ErrUnsupported", err)
			}
			s.empty(t)
			stop()
			if n := s.count("x"); n != 1 {
				t.Errorf("%d effects, want 1", n)
			}
		})
	}
}

// TestSettleTxMemory shows that SettleTx refuses a broker that is in no SQL database.
func TestSettleTxMemory(t *testing.T) {
	memory := membroker.New()
	s := newTxSwarm(t, "sqlite://"+filepath.Join(t.TempDir(), "app.db"), func(c *consumer.Config) { c.Broker = memory })
	settled := make(chan error, 1)
	def := task.New[string, string]("settle")
	if err := def.Handle(s.c, func(ctx context.Context, _ string) (string, error) {
		settled <- task.SettleTx(ctx, nil, "done")
		return "", nil
	}); err != nil {
		t.Fatal(err)
	}
	s.run(t)
	p, err := producer.New(producer.Config{Broker: memory})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := def.Submit(t.Context(), p, "x"); err != nil {
		t.Fatal(err)
	}
	if err := <-settled; !errors.Is(err, broker.ErrUnsupported) {
		t.Errorf("SettleTx: %v, want ErrUnsupported", err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestSettleTxSuccessors shows that the tasks after a settled one are sent if and only if its
// transaction commits. The members of a group arrive in it.
func TestSettleTxSuccessors(t *testing.T) {
	for name, url := range databases(t) {
		t.Run(name, func(t *testing.T) {
			s := newTxSwarm(t, url, nil)
			var n, next atomic.Int64
			def := task.New[int, int]("settle", task.WithRetry(task.RetryPolicy{}), task.WithRetryDelay(0))
			if err := def.Handle(s.c, func(ctx context.Context, i int) (int, error) {
				own := s.begin(ctx, fmt.Sprint(i))
				if err := task.SettleTx(ctx, sqltx.Wrap(own), i*i); err != nil {
					return 0, errors.Join(err, own.Rollback())
				}
				if n.Add(1)%2 == 1 { // each second transaction
					return 0, own.Rollback()
				}
				return 0, own.Commit()
			}); err != nil {
				t.Fatal(err)
			}
			sum := task.New[[]int, int]("sum")
			if err := sum.Handle(s.c, func(_ context.Context, all []int) (total int, err error) {
				next.Add(1)
				for _, i := range all {
					total += i
				}
				return total, nil
			}); err != nil {
				t.Fatal(err)
			}
			one := task.New[int, int]("one")
			if err := one.Handle(s.c, func(_ context.Context, i int) (int, error) {
				next.Add(1)
				return i + 1, nil
			}); err != nil {
				t.Fatal(err)
			}
			s.run(t)
			f, err := task.Chain(def, one).Submit(t.Context(), s.p, 3)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := f.Get(testwait.Long(t)); err != nil || got != 10 {
				t.Errorf("the chain: %d, %v; want 10", got, err)
			}
			g, err := task.Chain(task.Map(def), sum).Submit(t.Context(), s.p, []int{1, 2, 4})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := g.Get(testwait.Long(t)); err != nil || got != 21 {
				t.Errorf("the group: %d, %v; want 21", got, err)
			}
			s.empty(t)
			if got := next.Load(); got != 2 {
				t.Errorf("%d runs of following tasks, want 2", got)
			}
			for _, i := range []int{1, 2, 3, 4} {
				if got := s.count(fmt.Sprint(i)); got != 1 {
					t.Errorf("%d effects of %d, want 1", got, i)
				}
			}
		})
	}
}
