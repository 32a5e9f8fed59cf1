package consumer

import (
	"fmt"
	"slices"

	"github.com/swarmiji/swarmiji/consumer/internal/intake"
)

// Pause stops the consumer from taking tasks of the queues; none: of all queues. It gives fetched
// tasks that have not started back to the broker, so that other consumers run them. Running tasks
// continue. Pause returns when the tasks are given back.
//
// The pause lasts until Resume or the end of Run, in this consumer only. settings.PauseQueue pauses
// a queue for all consumers of a store. Pausing a paused queue does nothing. A paused consumer can
// be scaled and stopped. Side queues of older versions pause with their queue.
//
// If the broker cannot change the prefetch of a subscription (see [broker.Resizer]), fetched tasks
// stay with this consumer.
//
// Returns [ErrNotRunning] or [ErrNoQueue], which change nothing. After an error of the broker the
// queues are paused as well: no task of them starts.
func (c *Consumer) Pause(queues ...string) error {
	h := &c.cfg.Hooks
	return c.withHooks("pause", queues, h.BeforePause, func() error {
		return c.eachNamed(queues, func(qs ...*intake.Queue) error { return intake.Pause(intake.ByHand, qs...) })
	}, h.AfterPause)
}

// Resume ends the pause of the queues; none: of all queues. Resuming a queue that is not paused
// does nothing. A queue that is paused in Config.Settings stays paused.
//
// Returns [ErrNotRunning] or [ErrNoQueue], which change nothing. After an error of the broker the
// queue stays paused.
func (c *Consumer) Resume(queues ...string) error {
	h := &c.cfg.Hooks
	return c.withHooks("resume", queues, h.BeforeResume, func() error {
		return c.eachNamed(queues, func(qs ...*intake.Queue) error { return intake.Resume(intake.ByHand, qs...) })
	}, h.AfterResume)
}

// eachNamed calls do once, with the queues of the names and their side queues, or with all queues
// if names is empty. Returns [ErrNotRunning] if the consumer does not consume, [ErrNoQueue] if it
// does not consume one of the names, or the error of do. After the first two do was not called.
func (c *Consumer) eachNamed(names []string, do func(...*intake.Queue) error) error {
	l, err := c.consuming()
	if err != nil {
		return err
	}
	for _, name := range names {
		if l.find(name) == nil {
			return fmt.Errorf("%w: %q", ErrNoQueue, name)
		}
	}
	var queues []*intake.Queue
	for _, q := range l.queues {
		if len(names) == 0 || slices.Contains(names, q.name) {
			queues = append(queues, q.in)
		}
	}
	return do(queues...)
}
