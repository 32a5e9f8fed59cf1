package sqljobs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/jobs"
)

// TestManyKeyedJobsLeaveRoomForOthers shows that a transaction with many keys leaves locks for
// other programs. One transaction creates 6,000 jobs, each with its own key and name. The server
// has half of its default locks. Another program takes 2,000 locks at the same time.
func TestManyKeyedJobsLeaveRoomForOthers(t *testing.T) {
	p, err := testserver.StartPostgres(t.Context(), testserver.PostgresConfig{Conf: "max_connections = 100\nmax_locks_per_transaction = 32"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	service, other := serviceOf(t, open(t, p.URL())), watching(t, p.URL())
	specs := make([]jobs.Spec, 6000) // the server has place for some 4,500 locks
	for i := range specs {
		specs[i] = jobs.Spec{Name: fmt.Sprint("work-", i), UniqueKey: fmt.Sprint("k-", i)}
	}
	locks := make([]int64, 2000)
	for i := range locks {
		locks[i] = int64(i)
	}
	ended := make(chan struct{})
	var bystander sync.WaitGroup
	bystander.Go(func() {
		for {
			if err := other.Update(bound(t), func(ctx context.Context, tx *sqlconn.Tx) error {
				_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(k) FROM unnest(CAST($1 AS bigint[])) AS k", locks)
				return err
			}); err != nil {
				t.Errorf("another program: %v", err)
				return
			}
			select {
			case <-ended:
				return
			case <-time.After(20 * time.Millisecond): // leaves the processor to the call, which has 30 s
			}
		}
	})
	made, err := service.CreateAll(bound(t), specs)
	close(ended)
	bystander.Wait()
	if err != nil || len(made) != len(specs) {
		t.Fatalf("%d jobs were created, %v", len(made), err)
	}
}

// TestManyKeysExclude shows that no key gets two jobs. Several processes create many jobs with the
// same keys, or one of these jobs, in any order.
func TestManyKeysExclude(t *testing.T) {
	each(t, func(t *testing.T, dsn string) {
		const keys = 1200
		var made [keys]int
		var mu sync.Mutex
		var all sync.WaitGroup
		for n := range 4 {
			service := serviceOf(t, open(t, dsn))
			specs := make([]jobs.Spec, keys)
			for i := range specs {
				specs[i] = jobs.Spec{Name: "work", UniqueKey: fmt.Sprint("k-", i)}
			}
			if n%2 == 1 {
				slices.Reverse(specs)
			}
			create := func(some []jobs.Spec) {
				_, err := service.CreateAll(bound(t), some)
				if err != nil {
					if !errors.Is(err, jobs.ErrKeyTaken) {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				defer mu.Unlock()
				for _, spec := range some {
					var i int
					_, _ = fmt.Sscanf(spec.UniqueKey, "k-%d", &i)
					made[i]++
				}
			}
			all.Go(func() {
				for i := range 10 {
					create(specs[i*100 : i*100+1])
				}
				create(specs)
				create(specs[keys/2:])
			})
		}
		all.Wait()
		for i, n := range made {
			if n > 1 || n == 0 && i%100 == 0 && i < 1000 { // two processes create only these keys
				t.Errorf("key %d has %d jobs", i, n)
			}
		}
	})
}
