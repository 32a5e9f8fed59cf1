package endtoend

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// testPrefetch (S51): a consumer holds at most its multiplier times its workers, also after Scale,
// and returns the surplus. While paused it holds no message (S73). The counts come from the broker.
func testPrefetch(t *testing.T, open Open) {
	r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) {
		c.Queues[queueName] = consumer.QueueConfig{Workers: 2, PrefetchMultiplier: 2}
	})
	inspector, ok := capability.As[broker.Inspector](r.broker)
	if !ok {
		t.Skip("this broker does not tell the size of its queues")
	}
	const n = 40
	release, done := make(chan struct{}), sync.Once{}
	let := func() { done.Do(func() { close(release) }) }
	t.Cleanup(let)
	var runs [n]atomic.Int64
	handle(r, work, func(_ context.Context, i int) (int, error) {
		runs[i].Add(1)
		<-release
		return i, nil
	})
	fs := make([]*task.Future[int], n)
	for i := range fs {
		fs[i] = submit(r, work, i)
	}
	r.start()
	ready := func() int {
		s, err := inspector.Stats(r.ctx(), queueName)
		if err != nil {
			t.Fatal(err)
		}
		return s.Ready
	}
	holds := func(why string, active, least, most int) {
		t.Helper()
		r.eventually(why, func() bool {
			taken := n - ready()
			return r.consumer.Stats().Active == active && least <= taken && taken <= most
		})
		for range 20 { // and the number stays within the limit
			if taken := n - ready(); taken > most {
				t.Errorf("%s: %d are taken from the queue, at most %d may be", why, taken, most)
			}
			yield()
		}
	}
	holds("2 workers run, 4 are held at most", 2, 2, 4)
	r.scale(5)
	holds("5 workers run, 10 are held at most", 5, 5, 10)
	r.scale(1)
	if !r.h.LateReady {
		holds("5 still run, nothing else is held", 5, 5, 5)
	}
	if err := r.consumer.Pause(); err != nil {
		t.Fatal(err)
	}
	if !r.h.LateReady {
		holds("paused, it holds what runs", 5, 5, 5)
	}
	r.second(func(c *consumer.Consumer) {
		if err := work.Handle(c, func(_ context.Context, i int) (int, error) {
			runs[i].Add(1)
			return i, nil
		}); err != nil {
			t.Fatal(err)
		}
	})
	r.eventually("another consumer has run what this one does not hold", func() bool {
		return r.consumer.Stats().Active == 5 && ran(runs[:]) == n
	})
	if err := r.consumer.Resume(); err != nil {
		t.Fatal(err)
	}
	let()
	for i, f := range fs {
		want(r, f, i)
		if c := runs[i].Load(); c != 1 {
			t.Errorf("task %d ran %d times", i, c)
		}
	}
}

// ran counts the tasks that have been started.
func ran(runs []atomic.Int64) (n int) {
	for i := range runs {
		if runs[i].Load() > 0 {
			n++
		}
	}
	return n
}

func (r *road) scale(workers int) {
	r.t.Helper()
	if err := r.consumer.Scale(queueName, workers); err != nil {
		r.t.Fatal(err)
	}
}

// testOneEach (S52): with a multiplier of 1, two consumers of one worker each share two long tasks.
func testOneEach(t *testing.T, open Open) {
	r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) {
		c.Queues[queueName] = consumer.QueueConfig{Workers: 1, PrefetchMultiplier: 1}
	})
	release := make(chan struct{})
	started := make(chan string, 2)
	run := func(c *consumer.Consumer) {
		if err := work.Handle(c, func(_ context.Context, i int) (int, error) {
			started <- c.NodeID()
			<-release
			return i, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	run(r.consumer)
	r.start()
	first, second := submit(r, work, 1), submit(r, work, 2)
	a := <-started
	r.second(run)
	select {
	case b := <-started:
		if a == b {
			t.Errorf("%s has started both", a)
		}
	case <-r.ctx().Done():
		t.Error("the second task waits although a consumer is free")
	}
	close(release)
	want(r, first, 1)
	want(r, second, 2)
}

// testReserved: a task that was fetched and waits for a worker is counted as reserved in the
// statistics, in the list of tasks and in heartbeats. Each task that the broker has delivered
// either runs or is reserved.
func testReserved(t *testing.T, open Open) {
	h := open(t)
	bus, listening := h.Events(t), h.Events(t)
	t.Cleanup(func() { closeAll(t, bus, listening) })
	r := newRoad(t, func(*testing.T) *Harness { return h }, func(_ *producer.Config, c *consumer.Config) {
		c.Queues[queueName] = consumer.QueueConfig{Workers: 1, Prefetch: 4}
		c.Events, c.Report.HeartbeatEvery = bus, 20*time.Millisecond
	})
	heard, err := listening.Subscribe(r.ctx(), events.Filter{Types: []string{events.WorkerHeartbeat}})
	if err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	defer free()
	handle(r, work, func(_ context.Context, i int) (int, error) {
		<-release
		return i, nil
	})
	var fs []*task.Future[int]
	// before the start, because a broker need not prefetch tasks that arrive one at a time
	for i := range 6 {
		fs = append(fs, submit(r, work, i))
	}
	r.start()
	inspector, ok := capability.As[broker.Inspector](r.broker)
	if !ok { // as pushbroker
		t.Skip("this broker does not tell what is held")
	}
	waits, seen := 0, "" // for the one worker
	defer func() {
		if t.Failed() {
			t.Log(seen)
		}
	}()
	r.eventually("what is held runs or is reserved", func() bool {
		s, err := inspector.Stats(r.ctx(), queueName)
		got := r.consumer.Stats()
		if waits = s.Held - 1; s.Held < 0 { // the broker cannot tell
			waits = 3
		}
		seen = fmt.Sprintf("%+v, %+v, %v", s, got, err)
		return err == nil && got.Active == 1 && got.Reserved == waits && got.Queues[0].Reserved == waits && (waits == 3 || s.Ready == 5)
	})
	for _, info := range r.consumer.Reserved() {
		if info.Name != work.Name() || info.Queue != queueName || info.ID == "" || info.Attempt != 1 {
			t.Errorf("reserved: %+v", info)
		}
	}
	if n := len(r.consumer.Reserved()); n != waits {
		t.Errorf("%d tasks are told as reserved, want %d", n, waits)
	}
	for {
		e, err := heard.Receive(r.ctx())
		if err != nil {
			t.Fatalf("no heartbeat told %d reserved tasks: %v", waits, err)
		}
		if e.Worker != nil && e.Worker.Reserved == waits && e.Worker.Active == 1 {
			break
		}
	}
	_ = heard.Close(r.ctx())
	free()
	for i, f := range fs {
		want(r, f, i)
	}
	if s := r.consumer.Stats(); s.Reserved != 0 {
		t.Errorf("in the end: %+v", s)
	}
}
