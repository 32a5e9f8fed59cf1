package producer_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/queue"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/jobs/sqljobs"
	"github.com/swarmiji/swarmiji/open"
	_ "github.com/swarmiji/swarmiji/open/all"
	"github.com/swarmiji/swarmiji/producer"
)

// Settings of a dispatcher.
const (
	memberBroker    = "SWARMIJI_PRODUCER_TEST_BROKER"
	memberNamespace = "SWARMIJI_PRODUCER_TEST_NAMESPACE"
	memberJobs      = "SWARMIJI_PRODUCER_TEST_JOBS"
)

// dispatcher sends tasks with conditions until it is told to stop or killed.
func dispatcher() (err error) {
	ctx, stop := suite.UntilStopped()
	defer stop()
	swarm, err := open.Open(ctx, os.Getenv(memberBroker), open.Options{Namespace: os.Getenv(memberNamespace), Logger: quiet})
	if err != nil {
		return err
	}
	db, err := sqltest.New(os.Getenv(memberJobs))
	if err != nil {
		return err
	}
	store, err := sqljobs.New(sqljobs.Config{DB: db})
	if err != nil {
		return err
	}
	s, err := jobs.New(jobs.Config{Store: store, Logger: quiet})
	if err != nil {
		return err
	}
	p, err := producer.New(producer.Config{Broker: swarm.Broker, Results: swarm.Results, Logger: quiet})
	if err != nil {
		return err
	}
	r, err := runner.New(runner.Config{
		Service: s, Queue: &queue.Queue{Name: "scale", Limit: 4}, Submit: p, Results: swarm.Results, Lease: time.Second, Sweep: 200 * time.Millisecond, Logger: quiet,
	})
	if err != nil {
		return err
	}
	err = r.Run(ctx)
	end := context.Background()
	return errors.Join(err, p.Close(end), s.Close(end), store.Close(end), swarm.Close(end))
}

// TestDispatchersKilled kills processes that send tasks with conditions with SIGKILL. Every task
// runs, and the conditions hold. Only a task that was being sent when its dispatcher was killed may
// run twice.
func TestDispatchersKilled(t *testing.T) {
	t.Parallel()
	const kills, producers, each = 4, 3, 24
	url, namespace, file := testserver.RequireRedis(t).URL(), testserver.Namespace(), "sqlite://"+filepath.Join(t.TempDir(), "jobs.db")
	l := openLaneIn(t, namespace, url, "", file)
	s := newScale(4000)
	l.consume(8, func(c *consumer.Consumer) error { return weighed.Handle(c, s.weigh) })

	var mu sync.Mutex
	var said []string
	processes := suite.NewProcesses(t, func(node, line string) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, node+": "+line)
	}, memberBroker+"="+url, memberNamespace+"="+namespace, memberJobs+"="+file)
	ran := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.runs)
	}
	alive := []*suite.Process{processes.Start(), processes.Start()}
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		for i := range kills {
			for before := ran(); ran() < min(before+8, producers*each) && t.Context().Err() == nil; {
				<-time.After(time.Millisecond)
			}
			<-time.After(rand.N(10 * time.Millisecond))
			alive[i%2].Kill()
			alive[i%2] = processes.Start()
		}
	}()
	l.fill(producers, each, func(int, int) {})
	<-killed
	if again := s.judge(t, producers*each); again > kills*4 {
		t.Errorf("%d tasks ran again", again)
	} else {
		t.Logf("%d tasks ran again", again)
	}
	for _, m := range alive {
		if err := m.Stop(); err != nil {
			t.Errorf("%s: %v", m.Node, err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(said) > 0 {
		t.Errorf("the dispatchers say %q", said)
	}
}
