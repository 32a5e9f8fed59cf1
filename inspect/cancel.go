package inspect

import (
	"context"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/revoke"
)

// CancelTask implements [Tasks].
func (l *Local) CancelTask(ctx context.Context, k Cancel) (Change, error) {
	c := Change{Do: DoCancelTask, Target: string(k.ID)}
	if err := k.ID.Check(); err != nil {
		return c, wrapped(err)
	}
	queues := k.Queues
	_, finds := capability.As[broker.Finder](l.cfg.Broker)
	if finds && len(queues) == 0 {
		asked, err := l.consumers(ctx)
		if err != nil {
			return c, err
		}
		if queues, err = l.names(ctx, asked); err != nil {
			return c, wrapped(err)
		}
	}
	r, err := l.revoker(queues)
	if err != nil {
		return c, err
	}
	unknown, notes := false, []string(nil)
	if finds { // before the revocation, after which the task leaves its queue
		seen, err := l.look(ctx, TaskKey{ID: k.ID, Queues: queues})
		if err == nil { // a part that is away prevents no cancellation
			unknown, notes = len(seen.found) == 0, seen.notes
		}
	}
	return l.change(ctx, c, k, func(c *Change) error {
		outcomes, err := r.Revoke(ctx, revoke.Options{Until: k.Until, Terminate: k.Terminate}, k.ID)
		if len(outcomes) > 0 {
			c.Done, c.Outcome = 1, string(outcomes[0])
		}
		if unknown && c.Outcome == string(revoke.Noted) {
			c.Outcome, c.Notes = OutcomeUnknown, notes
		}
		return err
	})
}

// OutcomeUnknown is the Change.Outcome of a cancelled task that no part knows.
const OutcomeUnknown = "unknown"

// revoker returns a revoker that searches messages in queues.
func (l *Local) revoker(queues []string) (*revoke.Revoker, error) {
	if l.cfg.Revocations == nil {
		return nil, missing("revocations", needRevoke)
	}
	r, err := revoke.NewRevoker(revoke.RevokerConfig{
		Events: l.cfg.Revocations, Broker: l.cfg.Broker, Queues: queues, Results: l.cfg.Results, Stores: l.cfg.Stores,
		Tasks: l.cfg.Events, NodeID: l.cfg.NodeID, Logger: l.cfg.Logger,
	})
	if err != nil {
		return nil, errorf(CodeInvalid, "%v", err)
	}
	return r, nil
}
