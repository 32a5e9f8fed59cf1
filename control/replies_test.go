package control_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
)

// hanging is a bus to which its user cannot subscribe, for a reason that adapters try again: the
// account of NATS, or the user of RabbitMQ, has all its connections; Redis has its maxclients; the
// exchange exists with other properties; the virtual host has its maximum of queues.
type hanging struct{ events.EventBus }

func (hanging) Subscribe(ctx context.Context, _ events.Filter) (events.Subscription, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestHangingBusForReplies shows that a client whose bus for replies cannot be reached soon uses
// the one for commands.
func TestHangingBusForReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memevents.New(memevents.Config{})
		n := &fake{id: "n1", queues: []string{"a"}}
		serve(t, control.Config{Bus: bus, Replies: memevents.New(memevents.Config{})}, n)
		c, err := control.NewClient(control.ClientConfig{Bus: bus, Replies: hanging{bus}, NodeID: "boss"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		began := time.Now()
		rs, err := c.Send(ctx, control.Command{Do: control.DoPause, Queues: []string{"a"}}, control.Wait{Timeout: 2 * time.Second})
		if took := time.Since(began); len(rs) != 1 || err != nil || took > 10*time.Second {
			t.Errorf("after %v: replies %+v, error %v; want one reply", took, rs, err)
		}
		synctest.Wait()
		if done := n.told(); len(rs) == 0 && len(done) > 0 {
			t.Errorf("the node did %v after the deadline of the caller, who was told of no reply and the error %v", done, err)
		}
	})
}

// unsteady is a bus that may have dropped events. It counts those that it is given.
type unsteady struct {
	events.EventBus
	dropped, given atomic.Uint64
}

func (u *unsteady) Publish(ctx context.Context, e events.Event) error {
	u.given.Add(1)
	return u.EventBus.Publish(ctx, e)
}

func (u *unsteady) Dropped() uint64 { return u.dropped.Load() }

// TestBusForRepliesIsTriedAgain shows that a node avoids a bus that has dropped a reply for five
// minutes.
func TestBusForRepliesIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus, replies := memevents.New(memevents.Config{}), &unsteady{EventBus: memevents.New(memevents.Config{})}
		serve(t, control.Config{Bus: bus, Replies: replies}, &fake{id: "n1"})
		c, err := control.NewClient(control.ClientConfig{Bus: bus, Replies: replies.EventBus})
		if err != nil {
			t.Fatal(err)
		}
		for i, step := range []struct {
			dropped uint64
			pause   time.Duration
			given   uint64 // replies on the bus
		}{{0, 0, 1}, {1, 0, 1}, {1, 4 * time.Minute, 1}, {1, 2 * time.Minute, 2}, {2, 0, 2}} {
			time.Sleep(step.pause)
			replies.dropped.Store(step.dropped)
			rs, err := c.Send(t.Context(), control.Command{Do: control.DoStats}, control.Wait{Replies: 1})
			if given := replies.given.Load(); len(rs) != 1 || err != nil || given != step.given {
				t.Errorf("step %d: %d replies, %v; %d used the bus for replies, want %d", i, len(rs), err, given, step.given)
			}
		}
	})
}
