package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/queue"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/jobs/sqljobs"
)

// memberPart names the environment variable with the part of a member process: "answers", or runs
// jobs.
const memberPart = "SWARMIJI_JOBS_TEST_PART"

const (
	askedJobs  = 100
	askedKills = 3
)

// order is the data of the jobs in these tests. Every fourth is refused at first, and every fifth
// gets no answer.
type order struct {
	N       int  `json:"n"`
	Attempt int  `json:"attempt"`
	Got     bool `json:"got,omitempty"`
}

func (o order) key() string { return fmt.Sprintf("order-%d-%d", o.N, o.Attempt) }

// orders returns the type of these jobs. It passes requests and handled answers to say.
func orders(say func(line string)) runner.Type[order, bool] {
	return runner.Type[order, bool]{
		Name: "order", Key: order.key, Timeout: 2 * time.Second,
		Request: func(_ ctx, o order) error {
			say("ask " + o.key())
			<-time.After(time.Millisecond) // time in which the process can be killed
			return nil
		},
		Response: func(_ ctx, o order, yes bool) (order, error) {
			say("look " + o.key())
			<-time.After(time.Millisecond)
			o.Got = yes
			return o, nil
		},
		Retry: func(_ ctx, f *runner.Failure[order]) bool {
			f.Data.Attempt++
			f.At = time.Now()
			return f.Attempt < 20
		},
	}
}

// asker is a member process that runs orders.
func asker() error {
	ctx, stop := suite.UntilStopped()
	defer stop()
	service, leave, err := memberService()
	if err != nil {
		return err
	}
	defer leave()
	r, err := runner.New(runner.Config{
		Service: service, Workers: 4, Lease: 600 * time.Millisecond, Logger: quiet, Queue: &queue.Queue{Name: "orders", Limit: 40},
	})
	if err != nil {
		return err
	}
	kind := orders(func(line string) {
		fmt.Println(line) //nolint:forbidigo // it is how the parent hears of it
	})
	if err := kind.Register(r); err != nil {
		return err
	}
	return r.Run(ctx)
}

// orderBook is the external service, which answers the requests.
type orderBook struct {
	*shop
	busy     sync.WaitGroup
	mu       sync.Mutex
	asked    map[string]int
	looked   map[string]int
	accepted map[int][]int // attempts with an accepted answer that is not a refusal, by job
	odd      []string
}

func (b *orderBook) hear(node, line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	what, key, _ := strings.Cut(line, " ")
	switch what {
	case "ask":
		b.asked[key]++
		b.busy.Go(func() { b.answer(key) })
	case "look":
		b.looked[key]++
	default:
		b.odd = append(b.odd, node+": "+line)
	}
}

// answer answers a request according to its number: late, twice, never, or with a refusal.
func (b *orderBook) answer(key string) {
	var o order
	if _, err := fmt.Sscanf(key, "order-%d-%d", &o.N, &o.Attempt); err != nil {
		b.t.Error(err)
	}
	<-time.After(rand.N(30 * time.Millisecond))
	if o.N%5 == 0 && o.Attempt == 0 {
		return
	}
	for range 1 + o.N%2 {
		if o.N%4 == 0 && o.Attempt == 0 { // a job before its next attempt accepts another refusal, too
			if _, err := b.Reject(context.Background(), "order", key, errors.New("not today")); err != nil {
				b.t.Errorf("the refusal of %s: %v", key, err)
			}
			continue
		}
		r, err := b.Complete(context.Background(), "order", key, true)
		if err != nil {
			b.t.Errorf("the answer to %s: %v", key, err)
		}
		if r.Kind == jobs.Accepted {
			b.mu.Lock()
			b.accepted[o.N] = append(b.accepted[o.N], o.Attempt)
			b.mu.Unlock()
		}
	}
}

// TestAnswersKilled kills runners of a queue with SIGKILL while they send requests and handle
// answers, over a shared database. No job is lost, every request is sent at least once, and each
// job ends once.
// Promises: Q37.
func TestAnswersKilled(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		killAskers(t, "sqlite://"+t.TempDir()+"/jobs.db")
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		// each run of -count uses a new database
		url, err := testserver.RequirePostgres(t).Database(t.Context(), testserver.Namespace())
		if err != nil {
			t.Fatal(err)
		}
		killAskers(t, url)
	})
}

func killAskers(t *testing.T, url string) {
	store, err := sqljobs.New(sqljobs.Config{DB: sqltest.Open(t, url)})
	if err != nil {
		t.Fatal(err)
	}
	b := &orderBook{shop: newShop(t, store), asked: map[string]int{}, looked: map[string]int{}, accepted: map[int][]int{}}
	t.Cleanup(b.busy.Wait)
	kind := orders(nil)
	for n := range askedJobs {
		if _, err := kind.Create(t.Context(), b.Service, "orders", order{N: n}); err != nil {
			t.Fatal(err)
		}
	}
	processes := suite.NewProcesses(t, b.hear, memberURL+"="+url, memberPart+"=answers")
	alive := []*suite.Process{processes.Start(), processes.Start()}
	ends := map[jobs.ID]jobs.Job{}
	over := func() int {
		list, err := b.List(t.Context(), jobs.Filter{Queue: "orders", States: []jobs.State{jobs.Finished, jobs.Failed, jobs.Cancelled}})
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range list {
			if before, known := ends[j.ID]; known && (!before.Changed.Equal(j.Changed) || before.State != j.State || string(before.Data) != string(j.Data)) {
				t.Errorf("the end of job %d has changed: %s %s, %s %s", j.ID, before.State, before.Data, j.State, j.Data)
			}
			ends[j.ID] = j
		}
		return len(list)
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !ok(); <-time.After(5 * time.Millisecond) {
			if time.Now().After(end) {
				b.mu.Lock()
				defer b.mu.Unlock()
				t.Fatalf("%s: not in time; %d are over, %d were asked, %d answered; %q", what, len(ends), len(b.asked), len(b.accepted), b.odd)
			}
		}
	}
	asked := func() int {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.asked)
	}
	for i := range askedKills {
		before := asked()
		until("requests of those that live", func() bool { return over() == askedJobs || asked() >= before+10 })
		<-time.After(rand.N(10 * time.Millisecond))
		alive[i%2].Kill()
		alive[i%2] = processes.Start()
	}
	until("the end of all jobs", func() bool { return over() == askedJobs })
	for _, m := range alive {
		if err := m.Stop(); err != nil {
			t.Errorf("%s: %v", m.Node, err)
		}
	}
	b.busy.Wait()
	over()

	b.mu.Lock()
	defer b.mu.Unlock()
	again := 0
	for id, j := range ends {
		var o order
		if err := json.Unmarshal(j.Data, &o); err != nil || j.State != jobs.Finished || !o.Got {
			t.Errorf("job %d is %s with %s: %s (%v)", id, j.State, j.Data, j.Reason, err)
		}
		last, accepted := o.key(), b.accepted[o.N]
		if b.looked[last] == 0 || len(accepted) != 1 {
			t.Errorf("%s was asked for %d times, and its answer looked at %d times; accepted: %v", last, b.asked[last], b.looked[last], accepted)
			continue
		}
		// An answer after the timeout and before the next request is accepted. Its job has the data of
		// the attempt that Retry has prepared.
		if b.asked[last] == 0 && accepted[0] != o.Attempt-1 {
			t.Errorf("%s was never asked for, and the answer to attempt %d was accepted", last, accepted[0])
		}
	}
	for _, n := range b.asked {
		again += n - 1
	}
	if len(b.odd) > 0 || len(ends) != askedJobs {
		t.Errorf("%d ends; %q", len(ends), b.odd)
	}
	t.Logf("%d requests were sent again", again)
}
