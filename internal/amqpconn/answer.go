package amqpconn

import (
	"errors"
	"time"
)

// answerTime is how long the server may take to answer a request that it answers at once as a rule. A quorum queue without
// a leader takes some seconds.
const answerTime = 10 * time.Second

var errNoAnswer = errors.New("the server does not answer a request, on a connection that is alive")

// Answered runs fn, which makes requests on the connection and waits for their answers. If it takes longer than 10 s the
// connection is cut, so that fn fails and everything is built anew on another: RabbitMQ (3.10) never answers some requests to
// consume that come while a queue elects its leader.
func (s *Session) Answered(fn func() error) error {
	timer := time.AfterFunc(answerTime, func() { s.sock.Fail(errNoAnswer) })
	defer timer.Stop()
	return fn()
}

// Answered is [Session.Answered] of the channel's connection.
func (c *Channel) Answered(fn func() error) error { return c.sess.Answered(fn) }
