package runner_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/jobs/sqljobs"
	"github.com/swarmiji/swarmiji/open"
	_ "github.com/swarmiji/swarmiji/open/all"
	"github.com/swarmiji/swarmiji/task"
)

// TestDispatchOverServers dispatches jobs of a SQLite file over Redis, with results in the same
// file. One of two runners stops during the work.
func TestDispatchOverServers(t *testing.T) {
	t.Parallel()
	url := "sqlite://" + t.TempDir() + "/app.db"
	store, err := sqljobs.New(sqljobs.Config{DB: sqltest.Open(t, url)})
	if err != nil {
		t.Fatal(err)
	}
	s := newShop(t, store)
	swarm, err := open.Open(t.Context(), testserver.RequireRedis(t).URL(), open.Options{Results: url, Namespace: testserver.Namespace(), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := swarm.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	b, results := swarm.Broker, swarm.Results
	here, there := newRoad(t, b, results), newRoad(t, b, results)

	c := here.consumer(s.Service)
	var mu sync.Mutex
	ran := map[task.ID]int{}
	handle(t, c, sum, func(c ctx, at state) (state, error) {
		q, _ := task.FromContext(c)
		mu.Lock()
		defer mu.Unlock()
		ran[q.ID]++
		return state{at.N + 1000}, runner.Progress(c, state{at.N})
	})
	here.consume(c)

	const n = 60
	specs := make([]jobs.Spec, n)
	for i := range specs {
		specs[i] = jobs.Spec{Name: "sum", Data: fmt.Appendf(nil, `{"n":%d}`, i), Repeat: "FINISHED, +1 DAY"}
	}
	made, err := s.CreateAll(t.Context(), specs)
	if err != nil {
		t.Fatal(err)
	}
	var stops []func()
	var runners []*runner.Runner
	for _, road := range []*road{here, there} {
		r := s.runner(runner.Config{Submit: road, Results: results, Outstanding: 20, Sweep: 200 * time.Millisecond, Service: serve(t, store)})
		dispatch(t, r, sum)
		stops, runners = append(stops, s.run(r)), append(runners, r)
	}
	ended := func() int {
		over, err := s.Rows(t.Context(), jobs.Filter{Name: "sum", States: []jobs.State{jobs.Queued}})
		if err != nil {
			t.Fatal(err)
		}
		count := 0
		for i := range over {
			if over[i].Run == 1 {
				count++
			}
		}
		return count
	}
	until := func(count int) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ended() < count; <-time.After(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d of %d jobs have ended", ended(), n)
			}
		}
	}
	until(n / 4)
	stops[0]() // the other runner finds the tasks that it dispatched
	until(n)
	for i, m := range made {
		s.is(m.ID, jobs.Queued, fmt.Sprintf(`{"n":%d}`, 1000+i))
	}
	stops[1]()
	for i, r := range runners {
		if st := r.Stats(); st.Lost != 0 || st.Failed != 0 {
			t.Errorf("runner %d: %+v", i, st)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(ran) != n {
		t.Errorf("%d tasks", len(ran))
	}
	for id, times := range ran {
		if times != 1 {
			t.Errorf("%s ran %d times", id, times)
		}
	}
}
