package tasktest

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/schedule"
)

// Listen starts a listener of the swarm's schedule. It returns the schedule, to add entries to it.
//
// Zero values of Store, Logger and Poll of c are replaced by those of the swarm. Poll is then a
// minute; due entries still run on time. If the program submits due tasks, give the Swarm as
// c.Submit. register adds definitions to the listener (schedule.Forward) or, without c.Submit,
// handlers. It may be nil. An error in c or from register fails the test. The swarm stops the
// listener.
func (s *Swarm) Listen(c schedule.ListenerConfig, register func(*schedule.Listener) error) *schedule.Schedule {
	s.helper()
	setNil(&c.Store, schedule.Store(s.times))
	setNil(&c.Logger, s.log)
	setNil(&c.Poll, time.Minute)
	l, err := schedule.NewListener(c)
	if err == nil && register != nil {
		err = register(l)
	}
	if err != nil {
		s.fatalf("tasktest: listener: %v", err)
	}
	of, err := schedule.New(schedule.Config{Store: c.Store, Results: c.Results})
	if err != nil {
		s.fatalf("tasktest: schedule: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stops = append(s.stops, func() error {
		cancel()
		return <-ended
	})
	return of
}
