package consumer_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

// batchStore is a store in memory that saves batches by way of save.
type batchStore struct {
	resultstore.ResultStore
	save func(ctx context.Context, s resultstore.ResultStore, rs []resultstore.Record) []error

	mu    sync.Mutex
	sizes []int // of the batches
	alone atomic.Int64
}

func (s *batchStore) Save(ctx context.Context, r resultstore.Record) error {
	s.alone.Add(1)
	return s.ResultStore.Save(ctx, r)
}

func (s *batchStore) SaveBatch(ctx context.Context, rs []resultstore.Record) []error {
	s.mu.Lock()
	s.sizes = append(s.sizes, len(rs))
	s.mu.Unlock()
	return s.save(ctx, s.ResultStore, rs)
}

// batches returns the sizes of the batches so far.
func (s *batchStore) batches() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sizes)
}

func saveEach(ctx context.Context, s resultstore.ResultStore, rs []resultstore.Record) []error {
	errs := make([]error, len(rs))
	for i, r := range rs {
		errs[i] = s.Save(ctx, r)
	}
	return errs
}

// untilEnd is a batch of a store that does not answer.
func untilEnd(ctx context.Context, _ resultstore.ResultStore, rs []resultstore.Record) []error {
	<-ctx.Done()
	return slices.Repeat([]error{ctx.Err()}, len(rs))
}

// newBatchTable returns a table whose results go to the returned store, with a prefetch of 100.
func newBatchTable(
	t *testing.T, save func(context.Context, resultstore.ResultStore, []resultstore.Record) []error, change func(*consumer.Config),
) (*table, *batchStore) {
	t.Helper()
	s := &batchStore{save: save}
	return newTable(t, func(c *consumer.Config) {
		s.ResultStore = c.Results
		c.Results = s
		c.Queues = map[string]consumer.QueueConfig{router.DefaultQueue: {Prefetch: 100}}
		if change != nil {
			change(c)
		}
	}), s
}

// held returns the number of messages that are delivered and not settled.
func (b *table) held() int {
	b.t.Helper()
	conn := b.server.Connect()
	stats, err := conn.Stats(b.t.Context(), router.DefaultQueue)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := conn.Close(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	return stats.Held
}

// get waits for the results of the futures, which are 0, 1, 2 and so on, for an hour of the bubble.
func (b *table) get(fs ...*task.Future[int]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Hour)
	defer cancel()
	for i, f := range fs {
		if got, err := f.Get(ctx); err != nil || got != i {
			b.t.Fatalf("result %d: %d, %v", i, got, err)
		}
	}
}

// TestResultsInBatches shows that results that come while a batch is on its way form the next
// batch. A message is acknowledged after its result is stored.
func TestResultsInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stored := make(chan struct{})
		b, s := newBatchTable(t, func(ctx context.Context, s resultstore.ResultStore, rs []resultstore.Record) []error {
			<-stored
			return saveEach(ctx, s, rs)
		}, nil)
		b.run()
		fs := []*task.Future[int]{b.submit(0)}
		synctest.Wait()
		for i := range 9 {
			fs = append(fs, b.submit(i+1))
		}
		synctest.Wait()
		if n, done := b.held(), b.metrics.Succeeded.Count(); n != 10 || done != 0 {
			t.Errorf("%d messages are held and %d tasks have succeeded before a result is stored", n, done)
		}
		close(stored)
		b.get(fs...)
		synctest.Wait()
		if got := s.batches(); !slices.Equal(got, []int{1, 9}) || s.alone.Load() != 0 {
			t.Errorf("batches of %d and %d results alone; want batches of 1 and 9", got, s.alone.Load())
		}
		if n, done := b.held(), b.metrics.Succeeded.Count(); n != 0 || done != 10 {
			t.Errorf("%d messages are held and %d tasks have succeeded at the end", n, done)
		}
		b.end()
	})
}

// TestPartOfABatchFails shows that a result that its batch did not store is stored alone, and no
// task runs again.
func TestPartOfABatchFails(t *testing.T) {
	for name, failing := range map[string]func(errs []error) []error{
		"every second": func(errs []error) []error {
			for i := range errs {
				if i%2 == 0 {
					errs[i] = resultstore.ErrUnavailable
				}
			}
			return errs
		},
		"too few outcomes": func(errs []error) []error { return errs[:len(errs)/2] },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var failed atomic.Int64
				b, s := newBatchTable(t, func(ctx context.Context, s resultstore.ResultStore, rs []resultstore.Record) []error {
					errs := failing(make([]error, len(rs)))
					for i, r := range rs {
						if i >= len(errs) || errs[i] != nil {
							failed.Add(1)
						} else {
							errs[i] = s.Save(ctx, r)
						}
					}
					return errs
				}, nil)
				var fs []*task.Future[int]
				for i := range 20 {
					fs = append(fs, b.submit(i))
				}
				b.run()
				b.get(fs...)
				synctest.Wait()
				if b.held() != 0 || b.runs.Load() != 20 || s.alone.Load() != failed.Load() || failed.Load() == 0 {
					t.Errorf("%d messages held, %d runs, %d results alone, want %d", b.held(), b.runs.Load(), s.alone.Load(), failed.Load())
				}
				b.end()
			})
		})
	}
}

// TestAckAfterBatchFails shows that a failed acknowledgement is repeated, without another Save.
func TestAckAfterBatchFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failed atomic.Bool
		b, s := newBatchTable(t, saveEach, func(c *consumer.Config) {
			c.Broker = deliveries{c.Broker.(*membroker.Broker), func(d broker.Delivery) broker.Delivery { return failingAck{d, &failed} }}
		})
		b.run()
		b.get(b.submit(0))
		time.Sleep(10 * time.Second) // longer than the pauses between attempts
		if !failed.Load() || b.held() != 0 || b.runs.Load() != 1 || s.alone.Load() != 0 || b.metrics.Succeeded.Count() != 1 {
			t.Errorf("failed %v; %d messages held, %d runs, %d results alone, %d successes", failed.Load(), b.held(), b.runs.Load(), s.alone.Load(), b.metrics.Succeeded.Count())
		}
		b.end()
	})
}

// failingAck is a delivery whose first acknowledgement fails.
type failingAck struct {
	broker.Delivery
	failed *atomic.Bool
}

func (d failingAck) Ack(ctx context.Context) error {
	if d.failed.CompareAndSwap(false, true) {
		return broker.ErrUnavailable
	}
	return d.Delivery.Ack(ctx)
}

// TestStopDuringBatch shows that a stop waits for the batch that is on its way.
func TestStopDuringBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stored := make(chan struct{})
		b, _ := newBatchTable(t, func(ctx context.Context, s resultstore.ResultStore, rs []resultstore.Record) []error {
			<-stored
			return saveEach(ctx, s, rs)
		}, nil)
		b.run()
		b.submit(0)
		synctest.Wait()
		ended := make(chan struct{})
		go func() {
			b.end()
			close(ended)
		}()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("Run has returned while a batch was on its way")
		default:
		}
		if n := b.held(); n != 1 {
			t.Errorf("%d messages are held during the stop", n)
		}
		close(stored)
		<-ended
		if n, done := b.held(), b.metrics.Succeeded.Count(); n != 0 || done != 1 {
			t.Errorf("%d messages are held after the stop, and %d tasks have succeeded", n, done)
		}
	})
}

// TestBatchWithoutAnswer shows that a store that does not answer a batch delays no task without a
// result. Results that wait behind the batch are stored alone when its time is over.
func TestBatchWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := newBatchTable(t, untilEnd, nil)
		b.run()
		begin := time.Now()
		first := b.submit(0)
		synctest.Wait()
		second := b.submit(1)
		b.submit(2, task.WithIgnoreResult(true))
		synctest.Wait()
		if done := b.metrics.Succeeded.Count(); done != 1 || time.Since(begin) != 0 {
			t.Errorf("%d tasks have succeeded, want the one without a result", done)
		}
		b.get(first)
		if took := time.Since(begin); took != 2*time.Second {
			t.Errorf("the first result was stored alone after %s", took)
		}
		if got, err := second.Get(t.Context()); err != nil || got != 1 || time.Since(begin) != 2*time.Second {
			t.Errorf("the second result, %d, was stored alone after %s: %v", got, time.Since(begin), err)
		}
		if s.alone.Load() != 2 || b.runs.Load() != 3 {
			t.Errorf("%d results alone, %d runs", s.alone.Load(), b.runs.Load())
		}
		b.end()
	})
}

// ownSave is a store of a user around another one, with a Save of its own.
type ownSave struct{ resultstore.ResultStore }

func (w ownSave) Unwrap() any { return w.ResultStore }

// TestNoBatchesBehindWrapper shows that a wrapper around a store gets each result by its own Save.
func TestNoBatchesBehindWrapper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := newBatchTable(t, untilEnd, func(c *consumer.Config) { c.Results = ownSave{c.Results} })
		b.run()
		begin := time.Now()
		b.get(b.submit(0))
		if got := s.batches(); len(got) != 0 || s.alone.Load() != 1 || time.Since(begin) != 0 {
			t.Errorf("batches of %d, %d results alone, after %s", got, s.alone.Load(), time.Since(begin))
		}
		b.end()
	})
}

// repliesOnly is a store that only sends results.
type repliesOnly struct{ *batchStore }

func (repliesOnly) Replies(context.Context, string) (resultstore.Replies, error) {
	return nil, resultstore.ErrUnsupported
}

// TestNobodyAwaitsTheReply shows that a task without a submitter waits for no reply queue.
func TestNobodyAwaitsTheReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := newBatchTable(t, untilEnd, func(c *consumer.Config) { c.Results = repliesOnly{c.Results.(*batchStore)} })
		b.run()
		p, err := producer.New(producer.Config{Broker: b.server.Connect()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := echo.Submit(t.Context(), p, 1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := b.metrics.Succeeded.Count(); n != 1 || len(s.batches()) != 0 {
			t.Errorf("%d tasks have succeeded, batches of %d", n, s.batches())
		}
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
		b.end()
	})
}

// TestBatchCountsForStoreRetry shows that the time of a failed batch is a part of StoreRetry, after
// which the task is given back.
func TestBatchCountsForStoreRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := newBatchTable(t, untilEnd, func(c *consumer.Config) {
			c.Tuning.StoreRetry = 10 * time.Second
			c.Results.(*batchStore).ResultStore = flakyStore{c.Results.(*batchStore).ResultStore, time.Now().Add(11 * time.Second), resultstore.ErrUnavailable}
		})
		b.run()
		f := b.submit(0)
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		if n := b.runs.Load(); n != 2 {
			t.Errorf("%d runs 10 s after the end of the first; want another one", n)
		}
		b.get(f)
		b.end()
	})
}

// TestLargeResultAlone shows that a large result does not delay small ones.
func TestLargeResultAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := newBatchTable(t, saveEach, nil)
		large := task.New[int, string]("large")
		if err := large.Handle(b.c, func(_ context.Context, n int) (string, error) { return strings.Repeat("x", n), nil }); err != nil {
			t.Fatal(err)
		}
		b.run()
		for _, n := range []int{100 << 10, 100} {
			f, err := large.Submit(t.Context(), b.p, n)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := f.Get(t.Context()); err != nil || len(got) != n {
				t.Errorf("a result of %d bytes: %d, %v", n, len(got), err)
			}
		}
		if got := s.batches(); !slices.Equal(got, []int{1}) || s.alone.Load() != 1 {
			t.Errorf("batches of %d and %d results alone, want one each", got, s.alone.Load())
		}
		b.end()
	})
}

// TestAtMostOnceInBatches shows that tasks that run at most once free their early slots: more of
// them run than the prefetch allows at once.
func TestAtMostOnceInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := newBatchTable(t, saveEach, func(c *consumer.Config) {
			c.Queues = map[string]consumer.QueueConfig{router.DefaultQueue: {Prefetch: 2, Workers: 1}}
		})
		b.run()
		var fs []*task.Future[int]
		for i := range 20 {
			fs = append(fs, b.submit(i, task.WithIdempotent(false)))
		}
		b.get(fs...)
		if len(s.batches()) == 0 || s.alone.Load() != 0 || b.runs.Load() != 20 {
			t.Errorf("batches of %d, %d results alone, %d runs", s.batches(), s.alone.Load(), b.runs.Load())
		}
		b.end()
	})
}
