package sqlresults_test

import (
	"context"
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

// TestArriveBesideTransaction shows that members leave connections to other calls while an open
// transaction of a handler has locked their group. They arrive after its end.
func TestArriveBesideTransaction(t *testing.T) {
	// not parallel: the suite ends the sessions of all clients
	url := testserver.RequirePostgres(t).URL() + "&pool_max_conns=2"
	s := open(t, sqlresults.Config{DB: sqltest.Open(t, url), Namespace: testserver.Namespace()})
	ctx := testwait.Long(t)
	defer func() {
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	member := func(i int) resultstore.Arrival {
		return resultstore.Arrival{Group: "group", Index: i, Size: 5, Record: resultstore.Record{ID: task.ID("member"), State: task.StateSucceeded}}
	}
	own := sqltest.Begin(t, testserver.RequirePostgres(t).URL())
	if _, err := s.ArriveTx(ctx, own.Tx, member(0)); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := 1; i < 5; i++ {
		all.Go(func() {
			if _, err := s.Arrive(ctx, member(i)); err != nil {
				t.Errorf("Arrive: %v", err)
			}
		})
	}
	// Long enough for the members to take all connections, and far below the time of the test.
	for begun := time.Now(); time.Since(begun) < 3*time.Second; {
		short, cancel := context.WithTimeout(ctx, 10*time.Second)
		if err := s.Save(short, resultstore.Record{ID: "other", State: task.StateStarted}); err != nil {
			t.Fatalf("Save of another record: %v", err)
		}
		cancel()
		<-time.After(10 * time.Millisecond) // more calls show no more
	}
	if err := own.Commit(); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if g, err := s.Group(ctx, "group"); err != nil || g.Done != 5 {
		t.Errorf("the group is %+v, %v; want 5 members", g, err)
	}
}
