package revoke

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/task"
)

// Refuse returns send middleware (producer.Config.Middleware) that refuses revoked tasks with an
// error that wraps [task.ErrRevoked]. It passes other tasks to the next sender and returns its
// error.
//
// The first submissions wait for [List.Ready], at most two seconds. If the bus does not answer, the
// task is sent, because the consumers check it again.
func (l *List) Refuse() middleware.SendMiddleware {
	return func(next middleware.Sender) middleware.Sender {
		return func(ctx context.Context, queue string, e *task.Envelope) error {
			_ = l.waitBriefly(ctx) // check the known revocations in any case
			if revoked, err := l.Check(ctx, queue, e); err == nil && revoked {
				return fmt.Errorf("%w: %s", task.ErrRevoked, e.ID)
			}
			return next(ctx, queue, e)
		}
	}
}

// refuseWait limits how long submissions wait for an unavailable bus, from the first use of the
// list.
const refuseWait = 2 * time.Second

// waitBriefly is Ready with the time limit of submissions: it waits until refuseWait after the
// first use of the list. Then it returns an error.
func (l *List) waitBriefly(ctx context.Context) error {
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
