package roadtest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// testPrefetch (S51): a consumer holds at most its multiplier times its workers, also after Scale, and gives back what is too much;
// paused it holds nothing (S73). The broker is asked.
func testPrefetch(t *testing.T, open Open) {
	r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) {
		c.Queues[queueName] = consumer.QueueConfig{Workers: 2, PrefetchMultiplier: 2}
	})
	inspector, ok := broker.As[broker.Inspector](r.broker)
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
		for range 20 { // and it stays so
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

// testOneEach (S52): with a multiplier of 1 two consumers of one worker each share two long tasks.
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
