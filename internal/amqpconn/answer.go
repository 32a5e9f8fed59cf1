package amqpconn

import (
	"errors"
	"time"
)

// answerTime limits the wait for an answer that the server normally sends at once. A quorum queue
// without a leader needs some seconds.
const answerTime = 10 * time.Second

var errNoAnswer = errors.New("the server does not answer a request although the connection is alive")

// Answered runs fn, which makes requests on the connection and waits for their answers, and returns
// fn's error. If fn takes longer than 10 s it closes the connection, so that fn fails and its
// caller starts again on a new one. RabbitMQ (3.10) never answers some consume requests that arrive
// while a queue elects its leader.
func (s *Session) Answered(fn func() error) error {
	timer := time.AfterFunc(answerTime, func() { s.sock.Fail(errNoAnswer) })
	defer timer.Stop()
	return fn()
}

// Answered calls [Session.Answered] of the channel's connection.
func (c *Channel) Answered(fn func() error) error { return c.sess.Answered(fn) }
