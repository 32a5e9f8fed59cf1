package consumer_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/task"
)

// foreignService keeps the node that it serves, and closes ended at its end.
type foreignService struct {
	node          control.Node
	served, ended bool
}

func (s *foreignService) Start(_ context.Context, n control.Node) (serve, end func()) {
	s.node = n
	return func() { s.served = true }, func() { s.ended = true }
}

// TestControlServices shows that a service gets the consumer as its node while the consumer
// consumes, and can revoke without a list of the program.
func TestControlServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &foreignService{}
		h := newHolding(t, consumer.QueueConfig{Workers: 1}, func(c *consumer.Config) {
			c.Report.NodeID, c.ControlServices = "n1", []control.Service{s}
		})
		h.submit(0, 1)
		h.submit(1, 1, task.WithID("waiting"))
		h.b.run()
		synctest.Wait()
		if !s.served || s.ended || s.node.NodeID() != "n1" || len(s.node.Active()) != 1 {
			t.Fatalf("while it consumes: %+v", s)
		}
		rv, ok := capability.As[control.Revoker](s.node)
		if !ok {
			t.Fatal("the node cannot revoke")
		}
		must0(t, rv.Revoke(t.Context(), false, "waiting"))
		h.release <- struct{}{}
		synctest.Wait()
		if n := len(h.runs()); n != 1 {
			t.Errorf("%d tasks have started, want 1: the other one is revoked", n)
		}
		if err := h.b.stop(); err != nil {
			t.Fatal(err)
		}
		if !s.ended {
			t.Error("the service has not ended with the consumer")
		}
	})
}
