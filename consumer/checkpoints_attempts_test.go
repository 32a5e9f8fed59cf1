package consumer_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// TestSuccessWithoutCheckpoints shows that the record of a success asks the store to delete
// checkpoints only if its attempt used some, also after a retry. So plain tasks need no right on
// their table.
func TestSuccessWithoutCheckpoints(t *testing.T) {
	for _, uses := range []bool{false, true} {
		s := &droppingStore{}
		checkpointTable(t, func(c *consumer.Config) {
			s.countingStore = c.Results.(*countingStore)
			c.Results = s
		}, func(ctx context.Context, attempt int) (string, error) {
			if uses {
				must0(t, task.Save(ctx, "a", attempt))
			}
			if attempt == 1 {
				return "", task.Retry(nil)
			}
			return "", nil
		}, func(t *testing.T, _ *table, _ *countingStore, submit func(...task.Option) *task.Future[string]) {
			_, err := get(t, submit())
			must0(t, err)
		})
		if s.dropped != uses {
			t.Errorf("checkpoints used: %v, the store must delete some: %v", uses, s.dropped)
		}
	}
}

// droppingStore notes whether a record asked it to delete checkpoints.
type droppingStore struct {
	*countingStore
	dropped bool
}

func (s *droppingStore) Save(ctx context.Context, r resultstore.Record) error {
	s.dropped = s.dropped || r.DropCheckpoints
	return s.countingStore.Save(ctx, r)
}

// TestCheckpointAfterItsContext shows that the value of a function is stored although its context
// has ended meanwhile: the next attempt does not run it again.
func TestCheckpointAfterItsContext(t *testing.T) {
	var runs int
	var late error
	checkpointTable(t, nil, func(ctx context.Context, attempt int) (string, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		v, err := task.Checkpoint(ctx, "a", func(context.Context) (string, error) {
			runs++
			cancel()
			return "kept", nil
		})
		if attempt == 1 {
			late = err
			return "", task.Retry(nil)
		}
		return v, err
	}, func(t *testing.T, _ *table, s *countingStore, submit func(...task.Option) *task.Future[string]) {
		if v, err := get(t, submit()); v != "kept" || err != nil || late != nil || runs != 1 {
			t.Errorf("the task ended with %q, %v; the first attempt with %v, after %d runs", v, err, late, runs)
		}
		s.want(t, "a retry", "save a", "load 1")
	})
}

// TestCheckpointWithoutCounts shows that a broker which does not count deliveries costs a read, and
// that the redelivery after a crash finds the checkpoints.
func TestCheckpointWithoutCounts(t *testing.T) {
	var runs int
	var blocked, free chan struct{}
	var own *membroker.Broker
	checkpointTable(t, func(c *consumer.Config) {
		own = c.Broker.(*membroker.Broker)
		c.Broker = uncounted{own}
	}, func(ctx context.Context, attempt int) (string, error) {
		v, err := task.Checkpoint(ctx, "a", counting(&runs, attempt))
		if attempt == 1 {
			close(blocked)
			<-free
		}
		return fmt.Sprint(v), err
	}, func(t *testing.T, b *table, s *countingStore, submit func(...task.Option) *task.Future[string]) {
		blocked, free = make(chan struct{}), make(chan struct{})
		f := submit()
		<-blocked
		b.server.Disconnect(own)
		if v, err := get(t, f); v != "1" || err != nil || runs != 1 {
			t.Errorf("the second attempt ended with %q, %v after %d runs", v, err, runs)
		}
		close(free)
		s.want(t, "two attempts", "load 0", "save a", "load 1")
	})
}

// uncounted is a broker that counts no deliveries, as hworker.
type uncounted struct{ *membroker.Broker }

func (b uncounted) Subscribe(ctx context.Context, queue string, opts broker.SubscribeOptions) (broker.Subscription, error) {
	s, err := b.Broker.Subscribe(ctx, queue, opts)
	return uncountedSubscription{s}, err
}

type uncountedSubscription struct{ broker.Subscription }

func (s uncountedSubscription) Receive(ctx context.Context) (broker.Delivery, error) {
	d, err := s.Subscription.Receive(ctx)
	if err != nil {
		return nil, err
	}
	return uncountedDelivery{d}, nil
}

type uncountedDelivery struct{ broker.Delivery }

func (uncountedDelivery) Deliveries() (n int, exact bool) { return 1, false }
