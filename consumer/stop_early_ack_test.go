package consumer_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/task"
)

// slowAck is a delivery whose early acknowledgement removes the message. Its answer comes only
// after a stop has ended the context.
type slowAck struct {
	broker.Delivery
	asked chan struct{}
	late  bool // the answer is a confirmation
}

func (d slowAck) Unwrap() any { return d.Delivery }

func (d slowAck) AckSync(ctx context.Context) error {
	if err := broker.AckSync(context.WithoutCancel(ctx), d.Delivery); err != nil {
		return err
	}
	close(d.asked)
	<-ctx.Done()
	time.Sleep(time.Millisecond)
	if d.late {
		return nil
	}
	return fmt.Errorf("%w: %w", broker.ErrIndeterminate, ctx.Err())
}

// TestStopWaitsForEarlyAcknowledgement shows that a forced stop during the early acknowledgement of
// a task loses no task. The broker has removed the message. The stop waits, the task leaves a
// record, and it does not start.
func TestStopWaitsForEarlyAcknowledgement(t *testing.T) {
	for what, late := range map[string]bool{"confirmed late": true, "unknown outcome": false} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := make(chan struct{})
				b := newTable(t, func(c *consumer.Config) {
					c.ShutdownTimeout = 2 * time.Second
					c.Broker = deliveries{c.Broker.(*membroker.Broker), func(d broker.Delivery) broker.Delivery { return slowAck{d, asked, late} }}
				})
				var starts atomic.Int64
				pay := task.New[int, int]("pay", task.WithIdempotent(false))
				must0(t, pay.Handle(b.c, func(context.Context, int) (int, error) {
					starts.Add(1)
					time.Sleep(time.Hour) // the process ends before
					return 1, nil
				}))
				b.run()
				f, err := pay.Submit(t.Context(), b.p, 1)
				must0(t, err)
				<-asked
				err = b.stop()
				r, lerr := b.store.Load(t.Context(), f.ID())
				if s := b.stats(t); (lerr != nil || !r.State.Terminal()) && s.Dead+s.Ready == 0 {
					t.Errorf("Run: %v; the record: %v, %v; %+v", err, r.State, lerr, s)
				}
				time.Sleep(2 * time.Hour) // a handler that started in spite of the stop would end
				if starts.Load() != 0 {
					t.Errorf("%d starts after the stop", starts.Load())
				}
				must0(t, b.p.Close(t.Context()))
				must0(t, b.store.Close(t.Context()))
			})
		})
	}
}

// TestStopWithHangingRelease stops a consumer by force while the release of an admission hangs. The
// task, which runs at most once, has a record or a dead letter when Run returns.
func TestStopWithHangingRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		b := newTable(t, func(c *consumer.Config) {
			c.ShutdownTimeout = 2 * time.Second
			c.Admit = []middleware.Admit{func(context.Context, *task.Request) (func(), error) {
				return func() { <-hang }, nil
			}}
		})
		pay := task.New[int, int]("pay", task.WithIdempotent(false))
		must0(t, pay.Handle(b.c, func(context.Context, int) (int, error) { return 1, nil }))
		b.run()
		f, err := pay.Submit(t.Context(), b.p, 1)
		must0(t, err)
		time.Sleep(time.Second)
		err = b.stop()
		if r, lerr := b.store.Load(t.Context(), f.ID()); (lerr != nil || !r.State.Terminal()) && b.stats(t).Dead == 0 {
			t.Errorf("Run: %v; the record: %v, %v; %+v", err, r.State, lerr, b.stats(t))
		}
		close(hang)
		synctest.Wait()
		must0(t, b.p.Close(t.Context()))
		must0(t, b.store.Close(t.Context()))
	})
}
