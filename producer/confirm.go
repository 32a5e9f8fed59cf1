package producer

import (
	"errors"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/events"
)

// confirmed counts a task that the broker has taken, and tells the world. at is when it was told so; zero: now.
func (p *Producer) confirmed(s *staged, at time.Time) {
	p.cfg.Metrics.Sent.Inc(1)
	defer s.end(nil)
	if p.cfg.Events == nil {
		return
	}
	e := s.envelope
	exchange, key := broker.Locate(p.cfg.Broker, s.out.Queue)
	p.sent.Add(1)
	p.report.Publish(&events.Event{
		Type: events.TaskSent, TaskID: e.ID, Time: at,
		Name: e.Name, Args: p.report.Preview(events.Payload{Task: e.Name, ContentType: e.ContentType, Data: e.Args}, !s.shown), Retries: e.Retries,
		Queue: s.out.Queue, Exchange: exchange, RoutingKey: key,
	})
}

// withdraw takes back the waiter of a task that was refused. One whose outcome is unknown keeps it if the caller chose the
// id: the task may run, and the caller may submit it again or ask for it by [Producer.Pending].
// That of a unique task is taken back: the error may be about another one.
func (s *staged) withdraw(err error) {
	defer s.end(err)
	if !s.chosen || s.unique != nil || !errors.Is(err, broker.ErrIndeterminate) {
		s.forget()
	}
}

// ending is a function of middleware that wants to know how the submission ends.
type ending struct {
	fn   func(error)
	next *ending
}

// OnConfirm implements [middleware.Confirmer].
func (s *staged) OnConfirm(fn func(error)) { s.ended = &ending{fn, s.ended} }

// end tells middleware how the submission has ended.
func (s *staged) end(err error) {
	for e := s.ended; e != nil; e = e.next {
		e.fn(err)
	}
	s.ended = nil
}
