package sqlresults_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/sqlresults"
	"github.com/swarmiji/swarmiji/task"
)

// TestSavesShareStatements shows that calls of Save that wait at the same time share transactions
// on PostgreSQL. The newer of two records of a task stays, whichever comes first.
func TestSavesShareStatements(t *testing.T) {
	// not parallel: the suite ends the sessions of all clients
	const tasks = 300
	db, n := sqltest.Counting(t, database(t, testserver.RequirePostgres(t)))
	s := opened(t, sqlresults.Config{DB: db})
	save(t, s, done("", -1))
	before := n.Load()
	var all sync.WaitGroup
	for i := range tasks {
		all.Go(func() { save(t, s, done("node", i)) })
		if i%30 == 0 {
			older := done("", i)
			older.State, older.Deliveries, older.Result = task.StateRetrying, 0, nil
			all.Go(func() {
				if err := s.Save(within(t, 30*time.Second), older); err != nil && !errors.Is(err, resultstore.ErrStale) {
					t.Errorf("Save of the older record: %v", err)
				}
			})
		}
	}
	all.Wait()
	if made := n.Load() - before; made > tasks/2 {
		t.Errorf("%d transactions for %d calls: the calls must share them", made, tasks)
	}
	for i := range tasks {
		r, err := s.Load(within(t, 30*time.Second), done("", i).ID)
		if err != nil || r.State != task.StateSucceeded || string(r.Result) != "3" {
			t.Errorf("task %d: %s with %q, %v", i, r.State, r.Result, err)
		}
	}
}

// TestSaveBesideTransaction shows that a record which an open transaction of a handler has written
// delays only its own Save.
func TestSaveBesideTransaction(t *testing.T) {
	// not parallel: the suite ends the sessions of all clients
	url, ctx := database(t, testserver.RequirePostgres(t)), testwait.Long(t)
	s := opened(t, sqlresults.Config{DB: sqltest.Open(t, url)})
	save(t, s, done("", -1))
	own := sqltest.Begin(t, url)
	if err := s.SaveTx(ctx, own.Tx, done("", 0)); err != nil {
		t.Fatal(err)
	}
	same := make(chan error, 1)
	go func() { same <- s.Save(ctx, done("", 0)) }()
	for i, begun := 1, time.Now(); time.Since(begun) < 3*time.Second; i++ {
		short, cancel := context.WithTimeout(ctx, 10*time.Second)
		if err := s.Save(short, done("", i)); err != nil {
			t.Fatalf("Save of another record, number %d: %v", i, err)
		}
		cancel()
		<-time.After(10 * time.Millisecond) // more calls show no more
	}
	select {
	case err := <-same:
		t.Errorf("Save of the record in the transaction returned before its end: %v", err)
	default:
	}
	if err := own.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-same; err != nil {
		t.Errorf("Save of the same record: %v", err)
	}
}
