package outbox_test

import (
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/outbox"
)

// TestMetrics shows that a relay counts sent and waiting messages. A relay that has ended shows no
// numbers of its outbox.
func TestMetrics(t *testing.T) {
	t.Parallel()
	l := newFile(t)
	l.submit("", "bad", "good", "dead")
	b := newScripted(t, map[string]error{"bad": broker.ErrNoQueue, "dead": broker.ErrTooLarge})
	m := new(middleware.Metrics)
	stop := l.run(b, func(c *outbox.Config) { c.Metrics = m })
	testwait.Until(t, "the relay has counted the messages", func() bool {
		return m.OutboxWaiting.Value() == 1 && m.OutboxDead.Value() == 1 && m.OutboxRelays.Value() == 1 && m.OutboxOldest.Value() >= 1
	})
	if sent, failed := m.OutboxSent.Count(), m.OutboxFailed.Count(); sent != 1 || failed < 2 {
		t.Errorf("%d sent, want 1; %d failed, want a repeated publish", sent, failed)
	}
	stop()
	for name, g := range map[string]*middleware.Gauge{"waiting": &m.OutboxWaiting, "oldest": &m.OutboxOldest, "dead": &m.OutboxDead, "relays": &m.OutboxRelays} {
		if g.Value() != -1 {
			t.Errorf("%s is %d after the relay has ended, want -1", name, g.Value())
		}
	}
}
