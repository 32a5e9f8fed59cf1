package bedrock

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
)

// make40 creates 40 jobs named foo with size bytes of data.
func make40(t *testing.T, s *serving, size int) {
	t.Helper()
	specs := make([]jobs.Spec, 40)
	for i := range specs {
		specs[i] = jobs.Spec{Name: "foo", Data: []byte(`{"text":"` + strings.Repeat("x", size) + `"}`)}
	}
	if _, err := s.c.Service.CreateAll(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
}

// idsOf returns the ids of the jobs in an answer.
func idsOf(t *testing.T, got said) []jobs.ID {
	t.Helper()
	var list struct{ Jobs []struct{ JobID jobs.ID } }
	if err := json.Unmarshal([]byte(got.Body), &list); got.Status != ok || err != nil {
		t.Fatal(got.Status, err)
	}
	ids := make([]jobs.ID, len(list.Jobs))
	for i, j := range list.Jobs {
		ids[i] = j.JobID
	}
	return ids
}

// inState returns the number of jobs named foo in a state.
func inState(t *testing.T, s *serving, state jobs.State) int {
	t.Helper()
	all, err := s.c.Service.List(t.Context(), jobs.Filter{Name: "foo", States: []jobs.State{state}})
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// claims counts the transactions that claim jobs.
type claims struct {
	jobs.Store
	n atomic.Int64
}

func (s *claims) Single(ctx context.Context, fn func(ctx context.Context, tx jobstore.Tx) error) error {
	s.n.Add(1)
	return s.Store.Single(ctx, fn)
}

// TestGetJobsOfSmallJobs shows that GetJobs claims 1,000 small jobs in at most 20 transactions. If
// MaxMemory is small the batches are smaller.
func TestGetJobsOfSmallJobs(t *testing.T) {
	for name, c := range map[string]struct {
		memory int64
		want   int64
	}{
		"default": {0, 20}, // 4, 8, 16, 32, and 15 of at most 64
		"64 MiB":  {64 << 20, 65},
	} {
		t.Run(name, func(t *testing.T) {
			store, err := memjobs.New(memjobs.Config{})
			if err != nil {
				t.Fatal(err)
			}
			counted := &claims{Store: store}
			s := serve(t, Config{Service: over(t, counted), MaxMemory: c.memory})
			specs := make([]jobs.Spec, 1000)
			for i := range specs {
				specs[i] = jobs.Spec{Name: "foo", Data: []byte(`{"value":1}`)}
			}
			if _, err := s.c.Service.CreateAll(t.Context(), specs); err != nil {
				t.Fatal(err)
			}
			before := counted.n.Load()
			got := idsOf(t, dial(t, s.addr).ask("GetJobs\nname: foo\nnumResults: 1000\n\n"))
			if n := counted.n.Load() - before; len(got) != 1000 || n > c.want {
				t.Errorf("%d jobs in %d transactions, want at most %d", len(got), n, c.want)
			}
		})
	}
}

// TestGetJobsTooSlow shows that GetJobs answers with the jobs of its first batch if its time ends
// while the store claims the second one.
func TestGetJobsTooSlow(t *testing.T) {
	for name, wait := range map[string]string{"at once": "", "may wait": "Connection: wait\n"} {
		t.Run(name, func(t *testing.T) {
			s, store := holder(t, Config{Timeout: 300 * time.Millisecond})
			make40(t, s, 0)
			var n atomic.Int64
			release := make(chan struct{})
			defer close(release)
			hold := func(context.Context) error {
				if n.Add(1) == 2 {
					<-release
				}
				return nil
			}
			store.hold.Store(&hold)
			c := dial(t, s.addr)
			got := idsOf(t, c.ask("GetJobs\nname: foo\nnumResults: 40\ntimeout: 300\n"+wait+"\n"))
			if len(got) != firstBatch || inState(t, s, jobs.Running) != len(got) {
				t.Errorf("got %v, and %d are running", got, inState(t, s, jobs.Running))
			}
		})
	}
}

// TestGetJobsWithoutRoom shows that GetJobs claims one job at a time while others use the memory
// for claims, and waits for nothing.
func TestGetJobsWithoutRoom(t *testing.T) {
	s := jobsServer(t, Config{})
	make40(t, s, 0)
	_, leave := s.memory.claim(jobs.MaxTake)
	for range 2 {
		n, leave := s.memory.claim(2)
		defer leave()
		if n != 1 {
			t.Fatalf("%d more jobs may be claimed", n)
		}
	}
	c := dial(t, s.addr)
	if got := idsOf(t, c.ask("GetJobs\nname: foo\nnumResults: 40\n\n")); len(got) != 40 {
		t.Errorf("got %v", got)
	}
	leave()
	if n := s.memory.claims.Load(); n != 2 {
		t.Errorf("memory for %d jobs is held, want 2", n)
	}
}

// TestQueryWithoutRoom shows that Query reads one job at a time if only the memory for one is free,
// and that it otherwise waits.
func TestQueryWithoutRoom(t *testing.T) {
	s := jobsServer(t, Config{})
	make40(t, s, 0)
	_, leave, err := s.memory.pages.some(t.Context(), cap(s.memory.pages.units)-1)
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, s.addr)
	if got := c.ask("Query\nquery: select * from jobs\n\n"); strings.Count(got.Body, `"foo"`) != 40 {
		t.Errorf("%+v", got)
	}
	_, leaveLast, err := s.memory.pages.some(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	c.ask("Query\nquery: select * from jobs\ntimeout: 10\n\n").wantStatus(t, statusLate)
	leaveLast()
	leave()
	if n := len(s.memory.pages.units); n != 0 {
		t.Errorf("%d units are held", n)
	}
}

// TestGetJobsWaitsWithoutRoom shows that clients that wait for jobs reserve no memory.
func TestGetJobsWaitsWithoutRoom(t *testing.T) {
	s := jobsServer(t, Config{})
	waiting := make([]*client, 5)
	for i := range waiting {
		waiting[i] = dial(t, s.addr)
		waiting[i].send("GetJobs\nname: foo\nnumResults: 40\nConnection: wait\n\n")
	}
	testwait.Until(t, "they wait", func() bool { return s.c.Service.Stats().Waiting == int64(len(waiting)) })
	if n := s.memory.claims.Load(); n > 0 {
		t.Errorf("memory for %d jobs is held", n)
	}
	make40(t, s, 0)
	seen := map[jobs.ID]bool{}
	for _, c := range waiting {
		if inState(t, s, jobs.Queued) == 0 && len(seen) == 40 {
			break
		}
		for _, id := range idsOf(t, c.next()) {
			if seen[id] {
				t.Errorf("%d was handed out twice", id)
			}
			seen[id] = true
		}
	}
	if len(seen) != 40 {
		t.Errorf("%d of 40 were handed out", len(seen))
	}
}

// TestGetJobsGivenBack shows that the jobs of many batches are given back if their answer cannot be
// delivered, and are claimed once more.
func TestGetJobsGivenBack(t *testing.T) {
	s := jobsServer(t, Config{})
	make40(t, s, 150<<10)
	deaf := dial(t, s.addr)
	_ = deaf.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	testwait.Until(t, "it is served", func() bool { return s.Stats().Connections == 1 })
	s.each(func(c *conn) { _ = c.tcp.Conn.(*net.TCPConn).SetWriteBuffer(8 << 10) })
	deaf.send("GetJobs\nname: foo\nnumResults: 40\n\n")
	// inState reads all data, so it is not polled.
	testwait.Until(t, "they are taken", func() bool { return s.c.Service.Stats().Taken == 40 })
	if n := inState(t, s, jobs.Running); n != 40 {
		t.Errorf("%d are running", n)
	}
	_ = deaf.Conn.(*net.TCPConn).SetLinger(0) // the client resets the connection
	_ = deaf.Close()
	testwait.Until(t, "they are given back", func() bool { return s.c.Service.Stats().GivenBack == 40 })
	if n := inState(t, s, jobs.Queued); n != 40 {
		t.Errorf("%d are queued", n)
	}
	if n := s.Stats().GivenBack; n != 40 {
		t.Errorf("%d were given back", n)
	}
	if got := idsOf(t, dial(t, s.addr).ask("GetJobs\nname: foo\nnumResults: 40\n\n")); len(got) != 40 {
		t.Errorf("%d were handed out", len(got))
	}
	testwait.Until(t, "no memory is held", func() bool { return s.Stats().Memory == 0 })
}
