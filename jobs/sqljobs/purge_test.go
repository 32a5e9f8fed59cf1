package sqljobs_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// TestPurgeTakesLittleMemory shows that a purge of large jobs reads none of their data. It
// returns large early answers a few at a time.
func TestPurgeTakesLittleMemory(t *testing.T) {
	each(t, func(t *testing.T, dsn string) {
		s := open(t, dsn)
		large := bytes.Repeat([]byte("x"), 1<<20-100)
		past := time.Now().Add(-time.Minute)
		const n = 20 // with all early answers at once, a purge would hold 20 MiB
		for i := range n {
			j := job("large", 1, past)
			j.State, j.Due, j.Expires = jobstore.Failed, time.Time{}, past
			j.Data = fmt.Appendf(nil, `{"x":"%s"}`, large)
			save(t, s, j)
			if err := s.Update(bound(t), func(ctx context.Context, tx jobstore.Tx) error {
				return tx.SaveEarly(ctx, &jobstore.EarlyAnswer{Name: "n", Key: fmt.Sprint(i), Result: fmt.Appendf(nil, `"%s"`, large), Expires: past})
			}); err != nil {
				t.Fatal(err)
			}
		}
		var most uint64
		heap := func() uint64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		before := heap()
		unknown := 0
		service, err := jobs.New(jobs.Config{Store: s, OnAnswer: func(jobs.Answer, jobs.Receipt) {
			if unknown++; unknown%10 == 1 {
				most = max(most, heap())
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := service.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		var start, end runtime.MemStats
		runtime.ReadMemStats(&start)
		gone, err := service.Purge(bound(t))
		runtime.ReadMemStats(&end)
		if err != nil || gone != n || unknown != n {
			t.Errorf("%d jobs and %d early answers were purged, %v", gone, unknown, err)
		}
		t.Logf("%d MiB were in use for early answers, %d allocated in all", (most-before)>>20, (end.TotalAlloc-start.TotalAlloc)>>20)
		if held := int64(most - before); held > 14<<20 {
			t.Errorf("a purge holds %d MiB", held>>20)
		}
		if took := end.TotalAlloc - start.TotalAlloc; took > 4*n<<20 {
			t.Errorf("a purge of jobs allocates %d MiB", took>>20)
		}
	})
}
