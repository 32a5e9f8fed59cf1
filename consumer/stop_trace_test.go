package consumer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/task"
)

// slowText is a result whose encoding takes a while.
type slowText struct{ V string }

func (s slowText) MarshalText() ([]byte, error) {
	time.Sleep(2 * time.Second)
	return []byte(s.V), nil
}

func (s *slowText) UnmarshalText(b []byte) error { s.V = string(b); return nil }

// A handler obeys its context just before KillGrace ends. The stop waits for the rest: the
// release of its limits, the encoding of its result, the record. A task that runs at most once was
// acknowledged before its start, and would be gone.
func TestStopWaitsForReturnedTasks(t *testing.T) {
	for what, cfg := range map[string]func(*consumer.Config){
		"encoding of the result": func(*consumer.Config) {},
		"release of a limit": func(c *consumer.Config) {
			c.Admit = []middleware.Admit{func(context.Context, *task.Request) (func(), error) {
				return func() { time.Sleep(2 * time.Second) }, nil
			}}
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newTable(t, func(c *consumer.Config) {
					c.ShutdownTimeout = 2 * time.Second
					cfg(c)
				})
				started := make(chan struct{})
				pay := task.New[int, slowText]("pay", task.WithIdempotent(false))
				must0(t, pay.Handle(b.c, func(ctx context.Context, _ int) (slowText, error) {
					close(started)
					<-ctx.Done()
					time.Sleep(4 * time.Second) // KillGrace is five
					return slowText{"paid"}, nil
				}))
				b.run()
				f, err := pay.Submit(t.Context(), b.p, 1)
				must0(t, err)
				<-started
				if err := b.stop(); !errors.Is(err, consumer.ErrForced) {
					t.Errorf("Run: %v, want ErrForced", err)
				}
				// the result, or ErrUncertain if the settlement was interrupted
				if r, err := b.store.Load(t.Context(), f.ID()); err != nil || !r.State.Terminal() {
					t.Errorf("the record when Run returns: %v, %v, %+v", r.State, err, b.stats(t))
				}
				must0(t, b.p.Close(t.Context()))
				must0(t, b.store.Close(t.Context()))
			})
		})
	}
}
