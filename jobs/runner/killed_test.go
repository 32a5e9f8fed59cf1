package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/jobs/sqljobs"
)

// memberURL names the environment variable with the database of a member process.
const memberURL = "SWARMIJI_JOBS_TEST_URL"

const (
	killedJobs  = 80
	killedKills = 3
)

// memberService returns the service of a member process. leave closes the service and its store.
func memberService() (service *jobs.Service, leave func(), err error) {
	db, err := sqltest.New(os.Getenv(memberURL))
	if err != nil {
		return nil, nil, err
	}
	store, err := sqljobs.New(sqljobs.Config{DB: db})
	if err != nil {
		return nil, nil, err
	}
	service, err = jobs.New(jobs.Config{Store: store, Logger: quiet})
	if err != nil {
		return nil, nil, errors.Join(err, store.Close(context.Background()))
	}
	return service, func() {
		_ = service.Close(context.Background())
		_ = store.Close(context.Background())
		_ = db.Close(context.Background())
	}, nil
}

// member runs jobs until it is dismissed or killed. It writes "run ID TOKEN" when an attempt
// begins, and "late" when it has lost a job because it was too slow for its lease.
func member() error {
	ctx, stop := suite.UntilStopped()
	defer stop()
	service, leave, err := memberService()
	if err != nil {
		return err
	}
	defer leave()
	r, err := runner.New(runner.Config{
		Service: service, Workers: 3, Lease: 2 * time.Second, Logger: quiet,
		OnReport: func(p runner.Report) {
			if p.Problem == runner.ProblemLost {
				_, _ = fmt.Println("late") //nolint:forbidigo // as below
			}
		},
	})
	if err != nil {
		return err
	}
	began := func(c context.Context) error {
		h, _ := runner.FromContext(c)
		_, err := fmt.Println("run", h.ID, h.Token) //nolint:forbidigo // it is how the parent hears of it
		return err
	}
	if err := errors.Join(
		work.Handle(r, func(c context.Context, at state) (any, error) {
			if err := began(c); err != nil {
				return nil, err
			}
			if err := runner.Progress(c, state{at.N + 1}); err != nil {
				return nil, err
			}
			<-time.After(5 * time.Millisecond) // time in which the process can be killed
			return nil, nil
		}),
		sum.Handle(r, func(c context.Context, at state) (state, error) {
			return state{at.N + 1}, began(c)
		}),
	); err != nil {
		return err
	}
	return r.Run(ctx)
}

// TestRunnerKilled kills runners with SIGKILL while they work on a shared SQLite file. Every job
// runs, and each run ends once. Only jobs of killed runners run again.
func TestRunnerKilled(t *testing.T) {
	t.Parallel()
	url := "sqlite://" + t.TempDir() + "/jobs.db"
	store, err := sqljobs.New(sqljobs.Config{DB: sqltest.Open(t, url)})
	if err != nil {
		t.Fatal(err)
	}
	s := newShop(t, store)
	specs := make([]jobs.Spec, killedJobs)
	for i := range specs {
		specs[i] = jobs.Spec{Name: "work"}
	}
	if _, err := s.CreateAll(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	repeated := s.put(jobs.Spec{Name: "sum", Repeat: "FINISHED, +0 SECONDS"}) // as often as possible

	var mu sync.Mutex
	// the node that began an attempt, by job and token
	began, odd, late := map[string]string{}, []string(nil), 0
	processes := suite.NewProcesses(t, func(node, line string) {
		mu.Lock()
		defer mu.Unlock()
		if line == "late" {
			late++
			return
		}
		if !strings.HasPrefix(line, "run ") || began[line] != "" { // each token is used once
			odd = append(odd, node+": "+line)
			return
		}
		began[line] = node
	}, memberURL+"="+url)
	said := func() (int, []string) {
		mu.Lock()
		defer mu.Unlock()
		return len(began), odd
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !ok(); <-time.After(5 * time.Millisecond) {
			if n, odd := said(); len(odd) > 0 || time.Now().After(end) {
				t.Fatalf("%s: not in time; %d attempts; the children say %q", what, n, odd)
			}
		}
	}
	alive := []*suite.Process{processes.Start(), processes.Start()}
	for i := range killedKills {
		before, _ := said()
		until("attempts of those that live", func() bool { n, _ := said(); return n >= before+12 })
		<-time.After(rand.N(10 * time.Millisecond))
		alive[i%2].Kill()
		alive[i%2] = processes.Start()
	}
	until("the end of all jobs", func() bool {
		left, err := s.List(t.Context(), jobs.Filter{Name: "work", Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		return len(left) == 0
	})
	before := s.job(repeated).Run
	until("the repeated job goes on", func() bool { return s.job(repeated).Run > before })
	for _, m := range alive {
		if err := m.Stop(); err != nil {
			t.Errorf("%s: %v", m.Node, err)
		}
	}

	j := s.job(repeated)
	var at state
	if err := json.Unmarshal(j.Data, &at); err != nil || j.State != jobs.Queued && int64(at.N) != j.Run-1 || j.State == jobs.Queued && int64(at.N) != j.Run {
		t.Errorf("%s: %s after %d runs, which is not one end for each (%v)", j.State, j.Data, j.Run, err)
	}
	killed := map[string]bool{}
	for _, m := range processes.All() {
		if m.Killed {
			killed[m.Node] = true
		}
	}
	attempts, again, taken := map[string]int{}, 0, 0
	for line, node := range began {
		var id string
		var token int
		if _, err := fmt.Sscanf(line, "run %s %d", &id, &token); err != nil {
			t.Fatal(err)
		}
		attempts[id]++
		if next := fmt.Sprintf("run %s %d", id, token+1); id == fmt.Sprint(int64(repeated)) || began[next] == "" {
			continue
		}
		again++
		if !killed[node] {
			taken++
		}
	}
	if _, odd := said(); len(odd) > 0 || len(killed) != killedKills || len(attempts) != killedJobs+1 {
		t.Errorf("%d killed, %d jobs, %q", len(killed), len(attempts), odd)
	}
	if taken > late {
		t.Errorf("%d jobs ran again that no killed runner held, and %d were taken from one that was late for its lease", taken, late)
	}
	t.Logf("%d attempts of %d jobs again; %d runs of the repeated one", again, killedJobs, j.Run)
}
