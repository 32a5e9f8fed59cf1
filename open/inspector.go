package open

import (
	"fmt"

	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/inspect"
)

// audit returns the target of the bus for changes: the server of the event bus at t, with a
// namespace beside that of the events, and the retention of package inspect. t is not changed.
func (t *target) audit() *target {
	a := *t
	a.retain = inspect.AuditRetention()
	a.namespace = beside(t.namespace, "-audit")
	return &a
}

// Inspector returns an inspect.Local. It sets the fields of c that are not set to the parts of s,
// its Limits and its Logger. Commands to consumers need [Options].Control. If consumers have keys,
// set c.Control to a client with these keys. c.Schedule, c.Jobs and c.History stay as they are.
//
// It is a function, so that programs that do not inspect do not link package inspect whole. Returns
// the errors of inspect.New. End its Run before the swarm is closed.
func Inspector(s *Swarm, c inspect.Config) (*inspect.Local, error) {
	setNil(&c.Broker, s.Broker)
	setNil(&c.Results, s.Results)
	setNil(&c.Events, s.Events)
	setNil(&c.Revocations, s.Revocations)
	setNil(&c.Audit, s.Audit)
	setNil(&c.Limiter, s.Limiter)
	setNil(&c.Settings, s.Settings)
	setNil(&c.Logger, s.options().Logger)
	if c.Limits == nil {
		c.Limits = s.options().Limits
	}
	if c.Control == nil && s.Control != nil {
		client, err := control.NewClient(control.ClientConfig{Bus: s.Control, Replies: s.Replies, NodeID: c.NodeID})
		if err != nil {
			return nil, fmt.Errorf("open: %w", err)
		}
		c.Control = client
	}
	return inspect.New(c)
}
