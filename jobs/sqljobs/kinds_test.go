package sqljobs_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
)

// TestManyKeysBesideUniqueNames shows that transactions that create a unique job do not deadlock
// with transactions that create very many unique keys.
func TestManyKeysBesideUniqueNames(t *testing.T) {
	dsn := ownDatabase(t)
	conn := watching(t, dsn)
	var all sync.WaitGroup
	var ends []func() error
	begun := time.Now()
	for n := range 4 {
		store := open(t, dsn)
		service, err := jobs.New(jobs.Config{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, func() error { return errors.Join(service.Close(bound(t)), store.Close(bound(t))) })
		all.Go(func() {
			for round := range 3 {
				specs := []jobs.Spec{{Name: fmt.Sprint("unique-", n), Unique: true}}
				for i := range 600 {
					specs = append(specs, jobs.Spec{Name: "work", UniqueKey: fmt.Sprint("k-", n, "-", round, "-", i)})
				}
				if _, err := service.CreateAll(bound(t), specs); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for _, end := range ends { // the server counts a session's deadlocks when the session ends
		if err := end(); err != nil {
			t.Error(err)
		}
	}
	if deadlocks := deadlocksOf(t, conn); deadlocks > 0 {
		t.Errorf("%d deadlocks in 12 calls, in %s", deadlocks, time.Since(begun).Round(time.Millisecond))
	}
}
