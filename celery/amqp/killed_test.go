package amqp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/celery/amqp"
	"github.com/swarmiji/swarmiji/celery/wire"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// The environment of a worker's process.
const (
	workerURL   = "SWARMIJI_CELERY_TEST_URL"
	workerQueue = "SWARMIJI_CELERY_TEST_QUEUE"
)

const (
	killTasks = 2000
	kills     = 10
)

// summands are the arguments of the task that workers run.
type summands struct {
	X int `celery:"0,x"`
	Y int `celery:"1,y"`
}

var summing = task.New[summands, int]("killed.add")

// parts are what a worker and a producer of Celery's queues share.
type parts struct {
	broker  *amqp.Broker
	results *amqp.Results
	wire    serializer.Wire
}

// newParts connects to url.
func newParts(url string) (*parts, error) {
	at := amqpconnect.Config{URLs: []string{url}}
	b, err := amqp.New(amqp.Config{Connect: at})
	if err != nil {
		return nil, err
	}
	r, err := amqp.NewResults(amqp.ResultsConfig{Connect: at})
	return &parts{b, r, serializer.Wire{
		Formats:     []serializer.Format{wire.Format{}},
		Serializers: []serializer.Serializer{wire.JSONArgs{}, serializer.JSON{}},
	}}, err
}

func (p *parts) close(ctx context.Context) error {
	return errors.Join(p.results.Close(ctx), p.broker.Close(ctx))
}

// work runs a worker until its standard input ends. It prints a line for each task.
func work(ctx context.Context) error {
	p, err := newParts(os.Getenv(workerURL))
	if err != nil {
		return err
	}
	c, err := consumer.New(consumer.Config{
		Broker: p.broker, Results: p.results, Wire: p.wire, Logger: slog.New(slog.DiscardHandler),
		Queues: map[string]consumer.QueueConfig{os.Getenv(workerQueue): {Workers: 4}},
	})
	if err != nil {
		return err
	}
	err = summing.Handle(c, func(_ context.Context, s summands) (int, error) {
		fmt.Println("ran", s.Y)
		return s.X + s.Y, nil
	})
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		c.Stop()
	}()
	return errors.Join(c.Run(ctx), p.close(ctx))
}

// TestKilledWorkersLoseNothing kills workers of Celery's queue under load. Every task has its
// result, and nothing is left.
func TestKilledWorkersLoseNothing(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	queue := testserver.Namespace()
	ps, err := newParts(srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	p, err := producer.New(producer.Config{
		Broker: ps.broker, Results: ps.results, Wire: ps.wire, Router: router.Static(queue), Queues: []broker.Queue{{Name: queue}},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(p.Close(testwait.Long(t)), ps.close(testwait.Long(t))); err != nil {
			t.Error(err)
		}
	}()
	args := make([]summands, killTasks)
	for i := range args {
		args[i] = summands{X: 1, Y: i}
	}
	futures, err := summing.SubmitAll(testwait.Long(t), p, args)
	if err != nil {
		t.Fatalf("SubmitAll: %v", err)
	}
	var mu sync.Mutex
	var said []string
	ran := map[string]int{}
	runs := 0
	processes := suite.NewProcesses(t, func(node, line string) {
		mu.Lock()
		defer mu.Unlock()
		if n, ok := strings.CutPrefix(line, "ran "); ok {
			ran[n]++
			runs++
			return
		}
		said = append(said, node+": "+line)
	}, workerURL+"="+srv.URL(), workerQueue+"="+queue)
	alive := []*suite.Process{processes.Start(), processes.Start()}
	for i := range kills {
		target := (i + 1) * killTasks / (kills + 2)
		testwait.Until(t, "tasks have run", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(ran) >= target
		})
		alive[i%2].Kill()
		alive[i%2] = processes.Start()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for i, f := range futures {
		if sum, err := f.Get(ctx); err != nil || sum != i+1 {
			t.Fatalf("task %d: result %d, error %v; want %d", i, sum, err, i+1)
		}
	}
	for _, p := range alive {
		if err := p.Stop(); err != nil {
			t.Errorf("%s: %v", p.Node, err)
		}
	}
	if st, err := ps.broker.Stats(testwait.Long(t), queue); err != nil || st.Ready != 0 || st.Dead != 0 {
		t.Errorf("the queue has %+v, error %v; want neither tasks nor dead letters", st, err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(said) > 0 {
		t.Errorf("the workers say %q", said)
	}
	if len(ran) != killTasks {
		t.Errorf("%d of %d tasks have run", len(ran), killTasks)
	}
	t.Logf("%d tasks, %d runs, %d kills", killTasks, runs, kills)
}
