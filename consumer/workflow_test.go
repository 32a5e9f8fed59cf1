package consumer_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// TestGroupOutlivesItsResults shows that a group is gathered as long as its members take, although
// their results are kept for a shorter time. For as long the gatherer remembers which copy of a
// task runs.
func TestGroupOutlivesItsResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, nil)
		nap := task.New[time.Duration, time.Duration]("nap", task.WithResultTTL(time.Second))
		naps := atomic.Int64{}
		if err := nap.Handle(b.c, func(_ context.Context, d time.Duration) (time.Duration, error) {
			naps.Add(1)
			time.Sleep(d)
			return d, nil
		}); err != nil {
			t.Fatal(err)
		}
		b.run()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		run, err := task.Group(nap.Bound(0), nap.Bound(time.Minute)).Submit(ctx, b.p, task.None{})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := run.Get(ctx); err != nil || len(got) != 2 {
			t.Fatalf("the group gave %v, %v", got, err)
		}

		codec, err := wire.New(serializer.Wire{})
		if err != nil {
			t.Fatal(err)
		}
		data, ct, err := codec.Marshal("", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		naps.Store(0)
		for i, name := range []string{"one", "another"} {
			e := &task.Envelope{ID: "copied", Name: "nap", Meta: task.Metadata{ResultTTL: task.Set(time.Second)}, Args: data, ContentType: ct, Copy: name}
			m, err := codec.Encode("default", e)
			if err != nil {
				t.Fatal(err)
			}
			m.Generation = i // otherwise the broker drops the second one as a duplicate
			if err := b.server.Connect().Publish(ctx, "default", m); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		if n := naps.Load(); n != 1 {
			t.Errorf("a task of which there were two copies ran %d times", n)
		}
		time.Sleep(time.Minute)
		b.end()
	})
}

// TestGroupWaitsForItsMembers shows that a group waits for a member for days, whatever the
// retention of its results.
func TestGroupWaitsForItsMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, nil)
		b.run()
		ctx, cancel := context.WithTimeout(t.Context(), 30*24*time.Hour)
		defer cancel()
		late := task.Fixed[task.None](echo, 2, task.WithDelay(3*24*time.Hour))
		run, err := task.Chain(task.Group(echo.Bound(1), late), task.Map(echo)).Submit(ctx, b.p, task.None{})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := run.Get(ctx); err != nil || !slices.Equal(got, []int{1, 2}) {
			t.Errorf("the group gave %v, %v", got, err)
		}
		b.end()
	})
}

// TestStepsAreCountedAndDelayed shows that successors count as sent, and that a delayed successor
// waits in the broker.
func TestStepsAreCountedAndDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, nil)
		b.run()
		begin := time.Now()
		run, err := task.Chain3(echo, echo, echo.With(task.WithDelay(time.Hour)).Part()).Submit(t.Context(), b.p, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := run.Get(t.Context()); err != nil || time.Since(begin) < time.Hour {
			t.Fatalf("the chain ended after %v with %v", time.Since(begin), err)
		}
		synctest.Wait()
		if sent, received := b.metrics.Sent.Count(), b.metrics.Received.Count(); sent != 2 || received != 3 {
			t.Errorf("the consumer sent %d tasks and received %d, want 2 and 3", sent, received)
		}
		b.end()
	})
}

// gathers is a gatherer that can be slow or unreachable, and measures its answers.
type gathers struct {
	resultstore.Gatherer
	away    time.Time // unreachable until then
	pause   time.Duration
	largest atomic.Int64
}

func (g *gathers) Arrive(ctx context.Context, a resultstore.Arrival) (resultstore.Gathered, error) {
	if time.Now().Before(g.away) {
		return resultstore.Gathered{}, resultstore.ErrUnavailable
	}
	return g.Gatherer.Arrive(ctx, a)
}

func (g *gathers) Members(ctx context.Context, group task.ID, from, limit int) ([]resultstore.Record, error) {
	if err := wait(ctx, g.pause); err != nil {
		return nil, err
	}
	page, err := g.Gatherer.Members(ctx, group, from, limit)
	size := int64(0)
	for _, r := range page {
		size += int64(len(r.Result))
	}
	g.largest.Store(max(size, g.largest.Load()))
	return page, err
}

// TestGathererIsDownForLong shows that a task with a stored end does not run again, although its
// group could not be told in time.
func TestGathererIsDownForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, func(c *consumer.Config) {
			c.Tuning.StoreRetry = 10 * time.Second
			c.Gatherer = &gathers{Gatherer: c.Results.(resultstore.Gatherer), away: time.Now().Add(35 * time.Second)}
		})
		b.run()
		run, err := task.Group(echo.Bound(1), echo.Bound(2)).Submit(t.Context(), b.p, task.None{})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := run.Get(t.Context()); err != nil || len(got) != 2 || b.runs.Load() != 2 {
			t.Errorf("the group gave %v, %v after %d runs", got, err, b.runs.Load())
		}
		b.end()
	})
}

// TestLargeMembersAreReadInSmallPages shows that the memory for the results of a group is limited,
// also if they prove too large.
func TestLargeMembersAreReadInSmallPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g *gathers
		b := newTable(t, func(c *consumer.Config) {
			g = &gathers{Gatherer: c.Results.(resultstore.Gatherer)}
			c.Gatherer = g
		})
		const members, size = 60, 200 << 10
		large := task.New[int, string]("large")
		lengths := task.New[task.Members[string], int]("lengths")
		counts := task.New[task.Members[string], int]("counts")
		mustHandle(t, large.Handle(b.c, func(_ context.Context, i int) (string, error) { return strings.Repeat("x", size+i), nil }))
		mustHandle(t, counts.Handle(b.c, func(ctx context.Context, m task.Members[string]) (int, error) {
			f, err := lengths.Submit(ctx, b.p, m) // any task with the reference can read them
			if err != nil {
				return 0, err
			}
			return f.Get(ctx)
		}))
		mustHandle(t, lengths.Handle(b.c, func(ctx context.Context, m task.Members[string]) (int, error) {
			n := 0
			for s, err := range m.All(ctx) {
				if err != nil {
					return 0, err
				}
				n += len(s.Value)
			}
			return n, nil
		}))
		b.run()
		in := make([]int, members)
		run, err := task.Map(large).Submit(t.Context(), b.p, in)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := run.Get(t.Context()); err == nil || !strings.Contains(err.Error(), "task.Refer") {
			t.Errorf("a list that fits into no message: %v", err)
		}
		whole, err := task.Chain(task.Map(large).Refer(), counts).Submit(t.Context(), b.p, in)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := whole.Get(t.Context()); err != nil || n != members*size {
			t.Errorf("the members are %d bytes long, %v", n, err)
		}
		if n := g.largest.Load(); n > 8<<20 {
			t.Errorf("%d bytes of members were read at once", n)
		}
		b.end()
	})
}

func mustHandle(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// batches is a broker that measures the batches of publishes.
type batches struct {
	broker.Broker
	pause   time.Duration
	mu      sync.Mutex
	largest int
}

func (b *batches) PublishBatch(ctx context.Context, ms []broker.Outgoing) error {
	size := 0
	for _, m := range ms {
		size += len(m.Message.Body)
	}
	b.mu.Lock()
	b.largest = max(b.largest, size)
	b.mu.Unlock()
	if err := wait(ctx, b.pause); err != nil {
		return errors.Join(broker.ErrUnavailable, err)
	}
	return broker.PublishBatch(ctx, b.Broker, ms)
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestLargeGroupOnSlowServers shows that sending the followers of a task may take longer than
// StoreRetry if each step is faster. It does not start again.
func TestLargeGroupOnSlowServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, func(c *consumer.Config) {
			c.Tuning.StoreRetry = 25 * time.Second
			c.Gatherer = &gathers{Gatherer: c.Results.(resultstore.Gatherer), pause: 10 * time.Second}
			c.Broker = &batches{Broker: c.Broker, pause: 10 * time.Second}
		})
		count := task.New[int, []int]("count")
		mustHandle(t, count.Handle(b.c, func(_ context.Context, n int) ([]int, error) { return make([]int, n), nil }))
		b.run()
		const members = 1500
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		run, err := task.Chain(count, task.Map(echo)).Submit(ctx, b.p, members)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := run.Get(ctx); err != nil || len(got) != members || b.runs.Load() != members {
			t.Errorf("the group gave %d results, %v after %d runs of members", len(got), err, b.runs.Load())
		}
		b.end()
	})
}

// TestManyMembersAreSentInParts shows that the members of a group, each with its followers, are not
// all in memory at once.
func TestManyMembersAreSentInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watched := &batches{}
		b := newTable(t, func(c *consumer.Config) {
			watched.Broker = c.Broker
			c.Broker = watched
		})
		count := task.New[int, []int]("count")
		last := task.New[string, int]("last")
		mustHandle(t, count.Handle(b.c, func(_ context.Context, n int) ([]int, error) { return make([]int, n), nil }))
		mustHandle(t, last.Handle(b.c, func(_ context.Context, s string) (int, error) { return len(s), nil }))
		b.run()
		const members, size = 600, 100 << 10
		w := task.Chain3(count, task.Map(echo), task.Fixed[[]int](last, strings.Repeat("x", size)))
		run, err := w.Submit(t.Context(), b.p, members)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := run.Get(t.Context()); err != nil || n != size || b.runs.Load() != members {
			t.Errorf("the workflow gave %d, %v after %d runs of members", n, err, b.runs.Load())
		}
		watched.mu.Lock()
		defer watched.mu.Unlock()
		if watched.largest > 8<<20 {
			t.Errorf("%d bytes of successors were sent at once", watched.largest)
		}
		b.end()
	})
}
