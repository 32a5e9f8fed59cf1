package amqpconn

import (
	"context"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/internal/wake"
)

// nodeDownPause is the pause before another attempt to use a queue whose node is down or starting.
const nodeDownPause = 200 * time.Millisecond

// Retry calls fn with the current session, and blocks while the connection is lost. If fn fails
// because the connection has ended or the node of a queue is down, Retry calls fn again. So fn must
// be idempotent. It returns nil or any other error of fn at once.
//
// When ctx ends, it returns the last error of fn, or the error of waiting for a connection.
func (c *Conn) Retry(ctx context.Context, fn func(sess *Session) error) error {
	for {
		sess, err := c.Session(ctx)
		if err != nil {
			return err
		}
		err = fn(sess)
		if IsNodeDown(err) && wake.Sleep(ctx, nodeDownPause) {
			continue
		}
		if err == nil || !sess.Ended() || ctx.Err() != nil {
			return err
		}
		select {
		case <-sess.Done():
		case <-ctx.Done():
			return err
		}
	}
}

// Missing calls fn with a temporary channel and reports whether the server answered "not found".
// Any other error of fn is returned. A queue whose node is down is not missing: fn is called again,
// until ctx ends. It waits for the server.
func (c *Conn) Missing(ctx context.Context, fn func(ch *amqp.Channel) error) (bool, error) {
	err := c.Retry(ctx, func(sess *Session) error { return sess.Do(ctx, fn) })
	if IsNotFound(err) {
		return true, nil
	}
	return false, err
}

// DeclareOrFind declares the durable queue name. difference is nil if the queue has these arguments
// now. If it exists with others, difference is the server's error that describes them. err is then
// nil if the existing queue can be used. Any other error of the declaration is returned as err. It
// waits for the server.
func (s *Session) DeclareOrFind(ctx context.Context, name string, args amqp.Table) (difference, err error) {
	err = s.Do(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, args)
		return err
	})
	if !IsPrecondition(err) {
		return nil, err
	}
	return err, s.Do(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		return err
	})
}
