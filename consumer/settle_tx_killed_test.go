package consumer_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/sqlbroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/resultstore/sqlresults"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tx/sqltx"
)

// Settings of a process with a consumer.
const (
	memberURL       = "SWARMIJI_CONSUMER_TEST_URL"
	memberNamespace = "SWARMIJI_CONSUMER_TEST_NAMESPACE"
	memberTable     = "SWARMIJI_CONSUMER_TEST_TABLE"
	memberWalk      = "SWARMIJI_CONSUMER_TEST_WALK"  // not "": its handler has checkpoints
	memberBatch     = "SWARMIJI_CONSUMER_TEST_BATCH" // not "": its handler gets batches
)

var settling = task.New[int, int]("settling", task.WithRetry(task.RetryPolicy{}), task.WithRetryDelay(0), task.WithMaxRetries(-1))

// member is a process with a consumer over a database.
type member struct {
	c     *consumer.Consumer
	db    *sql.DB
	table string
	end   func() error
}

// newMember returns the consumer of this process, whose environment names the database.
func newMember(queue consumer.QueueConfig, tuning consumer.Tuning) (*member, error) {
	url, ns, quiet := os.Getenv(memberURL), os.Getenv(memberNamespace), slog.New(slog.DiscardHandler)
	driver, source := "pgx", url
	if file, ok := strings.CutPrefix(url, "sqlite:"); ok {
		driver, source = "sqlite", "file:"+file+"?_txlock=immediate&_pragma=busy_timeout(5000)"
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		return nil, err
	}
	handle, err := sqltest.New(url)
	if err != nil {
		return nil, err
	}
	b, err := sqlbroker.New(sqlbroker.Config{DB: handle, Namespace: ns, Logger: quiet})
	if err != nil {
		return nil, err
	}
	results, err := sqlresults.New(sqlresults.Config{DB: handle, Namespace: ns, Logger: quiet})
	if err != nil {
		return nil, err
	}
	c, err := consumer.New(consumer.Config{
		Broker: b, Results: results, Logger: quiet, Tuning: tuning, Queues: map[string]consumer.QueueConfig{"default": queue},
	})
	if err != nil {
		return nil, err
	}
	return &member{c: c, db: db, table: os.Getenv(memberTable), end: func() error {
		ctx := context.Background()
		return errors.Join(b.Close(ctx), results.Close(ctx), handle.Close(ctx), db.Close())
	}}, nil
}

// runMember runs the consumer of this process until it is told to stop or killed.
func runMember() error {
	ctx, stop := suite.UntilStopped()
	defer stop()
	if os.Getenv(memberWalk) != "" {
		return runWalker(ctx)
	}
	start := settlingConsumer
	if os.Getenv(memberBatch) != "" {
		start = batchConsumer
	}
	m, err := start()
	if err != nil {
		return err
	}
	return errors.Join(m.c.Run(ctx), m.end())
}

// settlingConsumer returns a consumer whose handler has its effect and settles its task in one
// transaction. It prints a line for each commit.
func settlingConsumer() (*member, error) {
	m, err := newMember(consumer.QueueConfig{Workers: 8, Prefetch: 16, Lease: time.Second},
		consumer.Tuning{MaxCrashes: -1}) // the kills are not the fault of a task
	if err != nil {
		return nil, err
	}
	db, table := m.db, m.table
	pause := func() { <-time.After(rand.N(2 * time.Millisecond)) }
	return m, settling.Handle(m.c, func(ctx context.Context, i int) (int, error) {
		own, err := db.BeginTx(ctx, nil)
		if err != nil {
			return 0, err
		}
		defer func() { _ = own.Rollback() }()
		if _, err := own.ExecContext(ctx, "INSERT INTO "+table+" (id) VALUES ($1)", fmt.Sprint(i)); err != nil {
			return 0, err
		}
		pause()
		if _, err := own.ExecContext(ctx, "UPDATE "+table+"_sum SET n = n + $1", i); err != nil {
			return 0, err
		}
		if err := task.SettleTx(ctx, sqltx.Wrap(own), i*2); err != nil {
			return 0, err
		}
		pause()
		if i%10 == 0 && rand.N(2) == 0 {
			return 0, nil // rolled back
		}
		if err := own.Commit(); err != nil {
			return 0, err
		}
		fmt.Println("committed")
		pause()
		return 0, errors.New("too late to fail")
	})
}

// TestSettleTxKilled kills consumers with SIGKILL. Each task has its effect exactly once, and a
// record of its success.
func TestSettleTxKilled(t *testing.T) {
	kills := 5
	if testserver.IsThorough() {
		kills = 50
	}
	tasks := 20 * (kills + 2)
	dir, err := os.MkdirTemp("/dev/shm", "settle") //nolint:usetesting // commits on a disk are slow
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for name, url := range map[string]string{"sqlite": "sqlite://" + filepath.Join(dir, "app.db"), "postgres": testserver.RequirePostgres(t).URL()} {
		t.Run(name, func(t *testing.T) {
			s := newTxSwarm(t, url, nil)
			if _, err := s.db.ExecContext(t.Context(), "CREATE TABLE "+s.table+"_sum (n bigint NOT NULL)"); err != nil {
				t.Fatal(err)
			}
			if _, err := s.db.ExecContext(t.Context(), "INSERT INTO "+s.table+"_sum VALUES (0)"); err != nil {
				t.Fatal(err)
			}
			sum := 0
			for i := range tasks {
				sum += i
				if _, err := settling.Submit(t.Context(), s.p, i, task.WithID(task.ID(fmt.Sprint("task-", i)))); err != nil {
					t.Fatal(err)
				}
			}
			var committed atomic.Int64
			var mu sync.Mutex
			var said []string
			processes := suite.NewProcesses(t, func(node, line string) {
				if line == "committed" {
					committed.Add(1)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				said = append(said, node+": "+line)
			}, memberURL+"="+url, memberNamespace+"="+s.ns, memberTable+"="+s.table)
			alive := []*suite.Process{processes.Start(), processes.Start()}
			for i := range kills {
				target := min(committed.Load()+10, int64(tasks-10))
				testwait.Until(t, "tasks are settled", func() bool { return committed.Load() >= target })
				<-time.After(rand.N(10 * time.Millisecond))
				alive[i%2].Kill()
				alive[i%2] = processes.Start()
			}
			testwait.Until(t, "all tasks have ended", func() bool {
				st, err := s.broker.Stats(t.Context(), "default")
				return err == nil && st.Ready+st.Held+st.Delayed == 0
			})
			for _, p := range alive {
				if err := p.Stop(); err != nil {
					t.Errorf("%s: %v", p.Node, err)
				}
			}
			var rows, different, got int
			row := s.db.QueryRowContext(t.Context(), "SELECT count(*), count(DISTINCT id), (SELECT n FROM "+s.table+"_sum) FROM "+s.table)
			if err := row.Scan(&rows, &different, &got); err != nil {
				t.Fatal(err)
			}
			if rows != tasks || different != tasks || got != sum {
				t.Errorf("%d effects of %d tasks with the sum %d, want one of each of %d with the sum %d", rows, different, got, tasks, sum)
			}
			for i := range tasks {
				id := task.ID(fmt.Sprint("task-", i))
				if rec, err := s.results.Load(t.Context(), id); err != nil || rec.State != task.StateSucceeded {
					t.Errorf("%s: %s, %v", id, rec.State, err)
				}
			}
			if st, err := s.broker.Stats(t.Context(), "default"); err != nil || st != (broker.Stats{}) {
				t.Errorf("the queue has %+v, %v", st, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if len(said) > 0 {
				t.Errorf("the consumers say %q", said)
			}
			t.Logf("%d tasks, %d commits were reported, %d kills", tasks, committed.Load(), kills)
		})
	}
}
