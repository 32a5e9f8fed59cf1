package runner_test

import (
	"context"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/jobs/sqljobs"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/task"
)

// pile is a Submitter that counts tasks and does not store them. While it is shut, it confirms no
// task.
type pile struct {
	mu   sync.Mutex
	n    int
	open chan struct{}
}

func (p *pile) Submit(ctx context.Context, _ task.Call) (task.Pending, error) {
	select {
	case <-p.open:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	return unending{}, nil
}

func (p *pile) submitted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

// unending is a handle of a task that never ends.
type unending struct{ task.Pending }

func (unending) Done() <-chan struct{} { return nil }

// heap returns the size of the heap.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestDispatchMemory shows that few jobs are claimed while the broker accepts no tasks, and that a
// submitted job holds no data.
func TestDispatchMemory(t *testing.T) {
	const jobsOfIt, each, most = 84, 512 << 10, 40 << 20
	store, err := sqljobs.New(sqljobs.Config{DB: sqltest.Open(t, "sqlite://"+filepath.Join(t.TempDir(), "jobs.db"))})
	if err != nil {
		t.Fatal(err)
	}
	s := newShop(t, store)
	data := []byte(`{"text":"` + strings.Repeat("x", each) + `"}`)
	for range jobsOfIt {
		if _, err := s.Create(t.Context(), jobs.Spec{Name: "work", Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	results := memresults.New(memresults.Config{})
	t.Cleanup(func() { _ = results.Close(context.Background()) })
	p := &pile{open: make(chan struct{})}
	r := s.runner(runner.Config{Submit: p, Results: results})
	dispatch(t, r, task.New[text, task.None]("work"))
	before := heap()
	stop := s.run(r)
	testwait.Until(t, "some are claimed", func() bool { return s.Service.Stats().Taken > 0 })
	<-testwait.Brief(t).Done() // time for claims that must not happen
	shut := heap() - before
	t.Logf("with %d claimed: %d MiB", s.Service.Stats().Taken, shut>>20)
	if n := s.Service.Stats().Taken; n*each > most {
		t.Errorf("%d jobs of %d KiB are claimed while none can be submitted", n, each>>10)
	}
	if shut > most {
		t.Errorf("%d MiB are held while none can be submitted", shut>>20)
	}
	close(p.open)
	testwait.Until(t, "all are submitted", func() bool { return p.submitted() == jobsOfIt && r.Stats().Submitted == jobsOfIt })
	after := heap() - before
	t.Logf("with all submitted: %d MiB", after>>20)
	if after > 16<<20 {
		t.Errorf("%d MiB are held for submitted jobs", after>>20)
	}
	stop()
}

type text struct {
	Text string `json:"text"`
}
