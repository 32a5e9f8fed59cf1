package endtoend_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/amqpbroker"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/amqpresults"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

var reply = task.New[int, int]("reply")

// replying is a producer and a consumer with RabbitMQ. The producer reaches its reply queue through
// a relay.
type replying struct {
	t         *testing.T
	urls      []string
	namespace string
	relay     *testserver.Relay
	broker    broker.Broker
	metrics   *middleware.Metrics // the consumer's metrics
	producer  *producer.Producer
	ran       atomic.Int64
	hold      chan struct{} // while it is open, tasks with negative arguments wait
}

func newReplying(t *testing.T, urls ...string) *replying {
	t.Helper()
	return newReplyingAt(t, urls, urls)
}

// newReplyingAt is like newReplying, but the consumer has its own order of nodes.
func newReplyingAt(t *testing.T, urls, there []string) *replying {
	t.Helper()
	r := &replying{t: t, urls: urls, namespace: testserver.Namespace(), hold: make(chan struct{}), metrics: new(middleware.Metrics)}
	own := urls
	if len(urls) == 1 {
		at := strings.TrimSuffix(urls[0][strings.LastIndex(urls[0], "@")+1:], "/")
		r.relay = testserver.NewRelay(t, at)
		own = []string{r.relay.URL(urls[0])}
	}
	results := func(urls []string) *amqpresults.Store {
		s, err := amqpresults.New(amqpresults.Config{Connect: amqpconnect.Config{URLs: urls, Backoff: task.Backoff{Max: 500 * time.Millisecond}}, Namespace: r.namespace, Logger: quiet()})
		must(t, err)
		return s
	}
	open := func(urls []string) *amqpbroker.Broker {
		b, err := amqpbroker.New(amqpbroker.Config{Connect: amqpconnect.Config{URLs: urls}, Namespace: r.namespace, Logger: quiet()})
		must(t, err)
		return b
	}
	r.broker = open(urls)
	ps, cs, cb := results(own), results(there), open(there)
	var err error
	r.producer, err = producer.New(producer.Config{Broker: r.broker, Results: ps, Router: router.Static("replies"), Logger: quiet()})
	must(t, err)
	c, err := consumer.New(consumer.Config{
		Broker: cb, Results: cs, Logger: quiet(), Metrics: r.metrics,
		Queues: map[string]consumer.QueueConfig{"replies": {Workers: 8, Prefetch: 64}},
	})
	must(t, err)
	must(t, reply.Handle(c, func(ctx context.Context, i int) (int, error) {
		r.ran.Add(1)
		if i < 0 {
			select {
			case <-r.hold:
			case <-ctx.Done():
			}
		}
		return i, nil
	}))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		ctx := testwait.Long(t)
		for _, c := range []interface{ Close(context.Context) error }{r.producer, ps, cs, r.broker, cb} {
			if err := c.Close(ctx); err != nil {
				t.Errorf("close %T: %v", c, err)
			}
		}
	})
	return r
}

func (r *replying) submit(i int) *task.Future[int] {
	r.t.Helper()
	f, err := reply.Submit(testwait.Long(r.t), r.producer, i)
	must(r.t, err)
	return f
}

func (r *replying) want(f *task.Future[int], want int) {
	r.t.Helper()
	if got, err := f.Get(testwait.Long(r.t)); err != nil || got != want {
		r.t.Fatalf("the result is %d, %v; want %d", got, err, want)
	}
}

// wantLost waits until a future ends with the error that says why the result is missing.
func (r *replying) wantLost(f *task.Future[int]) {
	r.t.Helper()
	if got, err := f.Get(testwait.Long(r.t)); !errors.Is(err, resultstore.ErrLost) || !errors.Is(err, task.ErrNoResult) {
		r.t.Fatalf("the future of a lost result gives %d, %v", got, err)
	}
}

// deleteQueue deletes the producer's reply queue, as an administrator would.
func (r *replying) deleteQueue(server *testserver.Rabbit) {
	r.t.Helper()
	must(r.t, server.DeleteQueue("swj."+r.namespace+".reply."+r.producer.NodeID()))
}

// TestReplyQueueDeleted shows that open futures end with a reason when their reply queue is
// deleted. Tasks submitted afterwards have results.
func TestReplyQueueDeleted(t *testing.T) {
	server := testserver.RequireRabbit(t)
	r := newReplying(t, server.URL())
	r.want(r.submit(1), 1)
	open := r.submit(-1)
	testwait.Until(t, "the task runs", func() bool { return r.ran.Load() == 2 })
	r.deleteQueue(server)
	r.wantLost(open)
	for i := range 20 {
		r.want(r.submit(i), i)
	}
	close(r.hold)
	again, err := reply.Submit(testwait.Long(t), r.producer, -1, task.WithID(open.ID()))
	must(t, err)
	r.want(again, -1)
}

// TestReplyQueueLostUnseen shows the same for a loss that the producer cannot notice. It has no
// connection to the reply queue when the queue is lost and when a task with a result for it ends.
func TestReplyQueueLostUnseen(t *testing.T) {
	server := testserver.RequireRabbit(t)
	r := newReplying(t, server.URL())
	r.want(r.submit(1), 1)
	r.relay.SetDown(true)
	r.deleteQueue(server)
	f := r.submit(2) // no error shows yet that the queue is gone
	testwait.Until(t, "the task has run and is acknowledged", func() bool { return r.metrics.Succeeded.Count() == 2 })
	r.relay.SetDown(false)
	r.wantLost(f)
	r.want(r.submit(3), 3)
}

// TestSubmitWaitsForReplyQueue shows that no task is sent before the queue for its answer exists.
func TestSubmitWaitsForReplyQueue(t *testing.T) {
	r := newReplying(t, testserver.RequireRabbit(t).URL())
	r.relay.SetDown(true)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := reply.Submit(ctx, r.producer, 1)
	if !errors.Is(err, broker.ErrUnavailable) || !strings.Contains(err.Error(), "the reply queue for the result is not ready") {
		t.Fatalf("without a reply queue Submit gives %v", err)
	}
	r.relay.SetDown(false)
	r.want(r.submit(2), 2)
	if n := r.ran.Load(); n != 1 {
		t.Fatalf("%d tasks ran, want the second alone", n)
	}
}

// TestReplyQueueOutlivesRestart shows that a restarted server keeps the reply queue, and open
// futures get their results.
func TestReplyQueueOutlivesRestart(t *testing.T) {
	server := testserver.RequireRabbit(t)
	r := newReplying(t, server.URL())
	open := r.submit(-1)
	testwait.Until(t, "the task runs", func() bool { return r.ran.Load() == 1 })
	must(t, server.Restart(testwait.Long(t)))
	close(r.hold)
	r.want(open, -1)
	r.want(r.submit(2), 2)
}

// TestFuturesEndInPartition cuts each of three nodes off from the others in turn while tasks run.
// Each future ends with a result or with an error that says why the result is missing.
func TestFuturesEndInPartition(t *testing.T) {
	testserver.Thorough(t)
	cluster := testserver.OwnRabbitCluster(t, testserver.RabbitConfig{})
	r := newReplying(t, cluster.URLs()...)
	r.want(r.submit(1), 1)
	var mu sync.Mutex
	var futures []*task.Future[int]
	running, stop := context.WithCancel(t.Context())
	var senders sync.WaitGroup
	for range 4 {
		senders.Go(func() {
			for i := 0; running.Err() == nil; i++ {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				f, err := reply.Submit(ctx, r.producer, i)
				cancel()
				if err != nil {
					continue // an unconfirmed task has no future
				}
				mu.Lock()
				futures = append(futures, f)
				mu.Unlock()
				<-time.After(2 * time.Millisecond) // sets the load; it does not wait for an event
			}
		})
	}
	confirmed := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(futures)
	}
	more := func(why string) {
		t.Helper()
		n := confirmed() + 200
		testwait.Until(t, why, func() bool { return confirmed() >= n })
	}
	for i := range cluster.Nodes {
		more("load on three nodes")
		must(t, cluster.Isolate(t.Context(), i))
		more("load on the majority")
		must(t, cluster.Rejoin(t.Context(), i))
		more("load while a node comes back")
	}
	stop()
	senders.Wait()
	r.wantEnds(futures)
}

// wantEnds waits until each of many futures has ended.
func (r *replying) wantEnds(futures []*task.Future[int]) {
	t := r.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	results, lost := 0, 0
	for _, f := range futures {
		switch _, err := f.Get(ctx); {
		case err == nil:
			results++
		case errors.Is(err, resultstore.ErrLost):
			lost++
		default:
			t.Fatalf("after %d results and %d that were lost, of %d: %v", results, lost, len(futures), err)
		}
	}
	t.Logf("%d tasks: %d results, %d futures ended since their records were lost", len(futures), results, lost)
}

// TestFuturesEndOnCutOffNode cuts a producer's node off. The node does not report it and stays so
// (RabbitMQ's default, "ignore"), while the consumer ends tasks on the majority. The futures end
// while both processes live.
func TestFuturesEndOnCutOffNode(t *testing.T) {
	testserver.Thorough(t)
	cluster := testserver.OwnRabbitCluster(t, testserver.RabbitConfig{Conf: "cluster_partition_handling = ignore"})
	urls := cluster.URLs()
	r := newReplyingAt(t, urls, []string{urls[1], urls[2], urls[0]})
	r.want(r.submit(1), 1)
	var futures []*task.Future[int]
	for range 8 {
		futures = append(futures, r.submit(-1))
	}
	testwait.Until(t, "the tasks run", func() bool { return r.ran.Load() == 9 })
	must(t, cluster.Isolate(t.Context(), 0))
	close(r.hold)
	r.wantEnds(futures)
}
