package producer

import (
	"errors"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/events"
)

// confirmed handles a task that the broker has confirmed: it counts the task, sends its event, and
// calls the functions of middleware that wait for the end with nil. at is the time of the confirm;
// zero: now. Without Config.Events it sends no event.
func (p *Producer) confirmed(s *staged, at time.Time) {
	p.cfg.Metrics.Sent.Inc(1)
	defer s.notifyEnd(nil)
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
		Fields: p.cfg.Report.Info(e).Fields(nil),
	})
}

// withdraw handles a task whose submission failed with err: it releases the waiter and tells
// middleware err. If the outcome is unknown and the caller chose the id, the waiter stays: the task
// may run, and the caller may submit it again or call [Producer.Pending]. For a unique task the
// waiter is always released, since err may be about an earlier task.
func (s *staged) withdraw(err error) {
	defer s.notifyEnd(err)
	if !s.chosen || s.unique != nil || !errors.Is(err, broker.ErrIndeterminate) {
		s.releaseWaiter()
	}
}

// ending is a function of a middleware that is called at the end of the submission.
type ending struct {
	fn   func(error)
	next *ending
}

// OnConfirm implements [middleware.Confirmer]. It registers fn to be called with the outcome of the
// submission.
func (s *staged) OnConfirm(fn func(error)) { s.onEnd = &ending{fn, s.onEnd} }

// notifyEnd calls the functions of OnConfirm with the outcome, the last registered first, and
// forgets them. A second call does nothing.
func (s *staged) notifyEnd(err error) {
	for e := s.onEnd; e != nil; e = e.next {
		e.fn(err)
	}
	s.onEnd = nil
}
