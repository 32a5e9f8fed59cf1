package schedule_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/task"
)

// slowRenewal delays renewals by a second. Releases, which are renewals for no time, are not
// delayed.
type slowRenewal struct{ schedule.Store }

func (s slowRenewal) Unwrap() schedule.Store { return s.Store }

func (s slowRenewal) Renew(c context.Context, owner string, lease time.Duration, ticks []schedule.Tick) ([]bool, error) {
	if lease > 0 {
		time.Sleep(time.Second)
	}
	// A request that was sent arrives.
	return s.Store.Renew(context.WithoutCancel(c), owner, lease, ticks)
}

// TestReleaseBesideRenewal: a tick that a stopping listener releases while it renews leases is due
// at once. The renewal, which reaches the store later, must not extend the lease again.
func TestReleaseBesideRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, j := memory(t), &journal{}
		s := scheduled(t, schedule.Config{Store: store})
		def := task.New[string, task.None]("work")
		start := func(name string, takes time.Duration) func() {
			l := listener(t, schedule.ListenerConfig{
				Name: store.Name(), Store: slowRenewal{store.View()}, Workers: 1, Lease: 30 * time.Second, ShutdownTimeout: 10*time.Second + time.Second/2,
			})
			if err := def.Handle(l, func(c ctx, what string) (task.None, error) {
				select {
				case <-time.After(takes):
					j.note(c, "%s ends %s", name, what)
					return task.None{}, nil
				case <-c.Done():
					return task.None{}, context.Cause(c)
				}
			}); err != nil {
				t.Fatal(err)
			}
			return running(t, l)
		}
		stop := start("a", time.Hour)
		add(t, s, schedule.Now(), def.Call("1"))
		synctest.Wait()
		stop() // interrupts the handler half a second after the first renewal has begun
		stop = start("b", time.Second)
		time.Sleep(2 * time.Second)
		stop()
		j.want(t, "b ends 1")
	})
}
