package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tx/sqltx"
)

const (
	batchTasks  = 100
	batchPoison = 150 // the task that ends its process
)

// inserting is a task that inserts a row. Tasks 10, 20 and 30 fail in their first attempt.
var inserting = task.New[int, int]("inserting", task.WithRetryDelay(0))

// batchConsumer returns a consumer whose handler inserts the rows of a batch and settles its tasks
// in one transaction. It prints a line for each call. Task 150 ends the process.
func batchConsumer() (*member, error) {
	m, err := newMember(consumer.QueueConfig{Workers: batchTasks, Lease: 2 * time.Second}, consumer.Tuning{AbsentAfter: time.Second})
	if err != nil {
		return nil, err
	}
	o := task.BatchOptions{Max: batchTasks, Wait: time.Second}
	return m, inserting.HandleBatch(m.c, o, func(ctx context.Context, batch []*task.BatchItem[int, int]) error {
		own, err := m.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = own.Rollback() }()
		var all []string
		for _, item := range batch {
			all = append(all, fmt.Sprint(item.Args))
		}
		fmt.Println("call", strings.Join(all, " "))
		for _, item := range batch {
			r, _ := task.FromContext(item.Context())
			if item.Args == batchPoison {
				fmt.Println("dies")
				return syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
			if item.Args%10 == 0 && item.Args <= 30 && r.Retries == 0 {
				item.Return(0, task.Retry(errors.New("bad row")))
				continue
			}
			if _, err := own.ExecContext(ctx, "INSERT INTO "+m.table+" (id) VALUES ($1)", fmt.Sprint(item.Args)); err != nil {
				return err
			}
			if err := task.SettleTx(item.Context(), sqltx.Wrap(own), 2*item.Args); err != nil {
				return err
			}
		}
		return own.Commit()
	})
}

// TestBatchKilled has two batches of 100 tasks that SettleTx settles in one transaction each. Three
// tasks of the first one fail, and are retried alone. A task of the second one ends its process
// again and again. It ends alone in quarantine, as a dead letter. The others have one effect each.
func TestBatchKilled(t *testing.T) {
	t.Parallel() // it mostly waits for verdicts about dead processes

	dir, err := os.MkdirTemp("/dev/shm", "batch") //nolint:usetesting // commits on a disk are slow
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for name, url := range map[string]string{"sqlite": "sqlite://" + filepath.Join(dir, "app.db"), "postgres": testserver.RequirePostgres(t).URL()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTxSwarm(t, url, nil)
			submit := func(from int) {
				for i := from; i < from+batchTasks; i++ {
					if _, err := inserting.Submit(t.Context(), s.p, i, task.WithID(task.ID(fmt.Sprint("insert-", i)))); err != nil {
						t.Fatal(err)
					}
				}
			}
			submit(0)
			var mu sync.Mutex
			var calls, said []string
			died := make(chan struct{}, 100)
			processes := suite.NewProcesses(t, func(node, line string) {
				mu.Lock()
				defer mu.Unlock()
				switch tasks, call := strings.CutPrefix(line, "call "); {
				case call:
					calls = append(calls, tasks)
				case line == "dies":
					died <- struct{}{}
				default:
					said = append(said, node+": "+line)
				}
			}, memberURL+"="+url, memberNamespace+"="+s.ns, memberTable+"="+s.table, memberBatch+"=1")
			alive := processes.Start()
			s.empty(t)
			submit(batchTasks)
			deaths := 0
			testwait.Until(t, "the poison is dead-lettered, and the others have ended", func() bool {
				select {
				case <-died:
					deaths++
					alive.Kill() // waits for its end
					alive = processes.Start()
				default:
				}
				st, err := s.broker.Stats(t.Context(), "default")
				return err == nil && st.Dead == 1 && st.Ready+st.Held+st.Delayed == 0
			})
			if err := alive.Stop(); err != nil {
				t.Error(err)
			}
			letters, err := broker.ListDead(t.Context(), s.broker, "default", 10)
			if err != nil || len(letters) != 1 || letters[0].Message.ID != fmt.Sprint("insert-", batchPoison) || !strings.Contains(letters[0].Reason, task.ErrPoison.Error()) {
				t.Errorf("dead letters %+v, %v", letters, err)
			}
			var rows, different int
			if err := s.db.QueryRowContext(t.Context(), "SELECT count(*), count(DISTINCT id) FROM "+s.table).Scan(&rows, &different); err != nil {
				t.Fatal(err)
			}
			if rows != 2*batchTasks-1 || different != rows {
				t.Errorf("%d rows of %d tasks, want one of each of %d", rows, different, batchTasks-1)
			}
			for i := range 2 * batchTasks {
				rec, err := s.results.Load(t.Context(), task.ID(fmt.Sprint("insert-", i)))
				if want := map[bool]task.State{true: task.StateFailed, false: task.StateSucceeded}[i == batchPoison]; err != nil || rec.State != want {
					t.Errorf("task %d: %s, %v", i, rec.State, err)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if len(said) > 0 {
				t.Errorf("the consumers say %q", said)
			}
			// the first start is noted only if a lease was lost before
			if deaths < 2 || deaths > 4 {
				t.Errorf("%d processes died, want 3, or one more or less", deaths)
			}
			sizes, first, last := map[int]int{}, map[string]string{}, map[string]string{}
			for _, call := range calls {
				all := strings.Fields(call)
				sizes[len(all)]++
				for _, id := range all {
					if first[id] == "" {
						first[id] = call
					}
					last[id] = call
				}
			}
			for _, id := range []string{"10", "20", "30", fmt.Sprint(batchPoison)} {
				if last[id] != id || first[id] == id {
					t.Errorf("the calls with task %s: first %q, last %q; want it alone at last", id, first[id], last[id])
				}
			}
			t.Logf("%d deaths, calls by size: %v", deaths, sizes)
		})
	}
}
