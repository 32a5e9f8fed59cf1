package revoke

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/task"
)

// answersWithin is the time after the storing of a cancel in which Cancel collects the answers of
// consumers.
const answersWithin = time.Second

// Cancel cancels the workflow with this id, which is the id of its last step (task.Run.ID). It
// revokes all tasks with this root: those that are queued, delayed, parked, deferred, retried or
// held by a limit, and those that are sent later. The contexts of running tasks end with the cause
// [task.ErrRevoked]. Tasks that follow a revoked one do not run, and their records say revoked. The
// tasks that handlers submit with this Root belong to the workflow. Ended tasks do not change.
//
// Cancel blocks until the bus has stored the cancel, and then for one second, in which consumers
// answer. It returns the node ids of their lists, sorted. From then on none of these consumers
// starts a task of the workflow, and neither does a consumer that starts later. A consumer that did
// not answer, since its connection to the bus is interrupted, obeys when it is connected again.
//
// The cancel lasts until o.Until. Default: as long as the bus stores it, with [Retention] for 7
// days. A task that is delayed for longer starts nevertheless. o.Terminate is ignored.
//
// A canceled workflow cannot be retried. Calling Cancel again is safe. Returns [ErrBadSelector] for
// a malformed id, [ErrTooLong], [ErrUnconfirmed] and errors of the bus. After [ErrUnheard], which
// takes 3 s, the cancel is stored, but no running consumer has answered. Without a deadline in ctx
// it takes at most [DefaultTimeout].
func (r *Revoker) Cancel(ctx context.Context, o Options, root task.ID) (nodes []string, err error) {
	v := Revocation{Selector: Selector{Root: root}, Until: o.Until, Terminate: true, token: rand.Text(), answer: true}
	if root == "" {
		return nil, fmt.Errorf("%w: no id of a workflow", ErrBadSelector)
	}
	if err := v.Selector.Check(); err != nil {
		return nil, err
	}
	if v.Until.IsZero() {
		age := DefaultAge
		if keep, ok := retention(r.cfg.Events); ok && !r.cfg.Live {
			age = keep.Age
		}
		v.Until = time.Now().Add(age - Keep)
	}
	ctx, cancel := bound(ctx)
	defer cancel()
	sub, err := r.cfg.Events.Subscribe(ctx, events.Filter{Types: []string{typeAnswer}})
	if err != nil {
		return nil, fmt.Errorf("revoke: subscribe to answers: %w", err)
	}
	defer closeSubscription(sub)
	if err := r.store(ctx, []Revocation{v}); err != nil {
		return nil, err
	}
	return awaitNodes(ctx, sub, v.token)
}

// awaitNodes collects the nodes that answer the event with this token, sorted, for answersWithin,
// or until the first answer, but at most for askFor. Returns [ErrUnheard] without an answer, and
// errors of the subscription and of ctx.
func awaitNodes(ctx context.Context, sub events.Subscription, token string) ([]string, error) {
	nodes := []string{}
	begun := time.Now()
	for limit := answersWithin; limit <= askFor; limit += answersWithin {
		window, done := context.WithDeadline(ctx, begun.Add(limit))
		for window.Err() == nil {
			e, err := sub.Receive(window)
			switch {
			case err == nil && e.Type == typeAnswer && tokenOf(&e) == token && !slices.Contains(nodes, e.NodeID):
				nodes = append(nodes, e.NodeID)
			case err != nil && window.Err() == nil:
				done()
				return nodes, fmt.Errorf("%w: %w", ErrUnheard, err)
			}
		}
		done()
		if ctx.Err() != nil {
			return nodes, fmt.Errorf("%w: %w", ErrUnheard, context.Cause(ctx))
		}
		if len(nodes) > 0 {
			slices.Sort(nodes)
			return nodes, nil
		}
	}
	return nil, ErrUnheard
}
