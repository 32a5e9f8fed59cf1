package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
)

// runBoth produces and consumes in one process with the memory broker. At the end it first waits
// until the queue is empty.
func runBoth(ctx context.Context, s *settings, log *slog.Logger) (err error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	swarm, err := s.connect(ctx, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeWithin(swarm.Close)) }()
	c, end, err := newConsumer(s, swarm, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	consuming, endConsumer := context.WithCancel(context.WithoutCancel(ctx))
	defer endConsumer()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(consuming) }()
	err = submitAll(ctx, s, swarm, log)
	err = errors.Join(err, drained(swarm.Broker, s.queue))
	endConsumer()
	return errors.Join(err, <-ended)
}

// drained waits until the queue is empty and no message is held. Returns broker.ErrUnsupported if
// the broker cannot tell.
func drained(b broker.Broker, queue string) error {
	inspector, ok := capability.As[broker.Inspector](b)
	if !ok {
		return broker.ErrUnsupported
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		s, err := inspector.Stats(ctx, queue)
		if err != nil || s.Ready+s.Held+s.Delayed <= 0 {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("tasks are left in the queue: %+v", s)
		}
	}
}
