package revoke

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/task"
)

// Refuse is a send middleware (producer.Config.Middleware) that refuses tasks that are revoked already, with an error that
// wraps [task.ErrRevoked]. The first submissions wait for [List.Ready], for two seconds at most; where the bus does not answer
// a task is sent all the same: consumers look at it again, and they are the ones that must know.
func (l *List) Refuse() middleware.SendMiddleware {
	return func(next middleware.Sender) middleware.Sender {
		return func(ctx context.Context, queue string, e *task.Envelope) error {
			_ = l.settled(ctx) // what is known is looked at in any case
			if revoked, err := l.Check(ctx, queue, e); err == nil && revoked {
				return fmt.Errorf("%w: %s", task.ErrRevoked, e.ID)
			}
			return next(ctx, queue, e)
		}
	}
}

// refuseWait is how long submissions wait for a bus that is away, counted from the list's first use.
const refuseWait = 2 * time.Second

// settled is Ready, within the time that submissions have for it.
func (l *List) settled(ctx context.Context) error {
	select {
	case <-l.caughtUp:
		return nil
	default:
	}
	l.start()
	ctx, cancel := context.WithDeadline(ctx, l.begun.Add(refuseWait))
	defer cancel()
	return l.Ready(ctx)
}
