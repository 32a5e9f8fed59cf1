package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/consumer/internal/intake"
	"github.com/swarmiji/swarmiji/consumer/internal/steer"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/task"
)

// checkSettings returns all problems of Group and Breakers, joined.
func (c *Config) checkSettings() error {
	var errs []error
	if c.Settings == nil && (c.Group != "" || len(c.Breakers) > 0) {
		errs = append(errs, errors.New("config: Group and Breakers need Settings"))
	}
	if c.Group != "" {
		if err := task.CheckName(c.Group); err != nil {
			errs = append(errs, fmt.Errorf("config: Group: %w", err))
		}
	}
	for name, b := range c.Breakers {
		if err := errors.Join(task.CheckName(name), b.check()); err != nil {
			errs = append(errs, fmt.Errorf("config: Breakers: %q: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// newSteer sets c.steer and adds its admissions to c.cfg.Admit, as the first ones. Without
// Config.Settings it does nothing.
func (c *Consumer) newSteer() error {
	if c.cfg.Settings == nil {
		return nil
	}
	tasks := make(map[string]steer.Breaker, len(c.cfg.Breakers))
	for name, b := range c.cfg.Breakers {
		tasks[name] = b.internal()
	}
	var err error
	c.steer, err = steer.New(steer.Config{
		Store: c.cfg.Settings, Limiter: c.cfg.Limiter, Node: c.cfg.Report.NodeID, Group: c.cfg.Group, Tasks: tasks, Logger: c.cfg.Logger,
		Queue: func(name string) steer.Breaker {
			cfg := c.queues.Get(name)
			return cfg.Breaker.internal()
		},
		Changed: c.applySettings, Go: c.settling.Go,
		Log: func(level slog.Level, msg string, attrs ...slog.Attr) {
			c.cfg.Logger.LogAttrs(context.Background(), level, msg, append(attrs, slog.String(middleware.LogNode, c.cfg.Report.NodeID))...)
		},
	})
	if err != nil {
		return fmt.Errorf("swarmiji: consumer: %w", err)
	}
	c.cfg.Admit = append([]middleware.Admit{c.steer.Probes, c.steer.Limits}, c.cfg.Admit...)
	return nil
}

// followSettings starts a goroutine that applies the settings now and after each change, until
// fetch ends. wait blocks until it has ended. Without Config.Settings it does nothing.
func (c *Consumer) followSettings(fetch context.Context) (wait func()) {
	if c.steer == nil {
		return func() {}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.steer.Run(fetch)
	}()
	return func() { <-ended }
}

// retrySettings is the time after which settings that could not be applied are applied again.
const retrySettings = 2 * time.Second

// applySettings makes the queues follow the settings: their pauses, their workers, the queues of
// the group, and the messages of tasks that are no longer paused. After an error it is called again
// after retrySettings.
func (c *Consumer) applySettings() {
	err := c.followGroup()
	if l := c.live.Load(); l != nil {
		for _, q := range l.queues {
			err = errors.Join(err, q.applySettings())
			if !q.side() {
				q.emptyAsides()
			}
		}
	}
	if err != nil && c.fetch.Err() == nil {
		c.cfg.Logger.LogAttrs(c.fetch, slog.LevelWarn, "the settings could not be applied; it is tried again", slog.Any("error", err),
			slog.String(middleware.LogNode, c.cfg.Report.NodeID))
		c.settling.Go(func() {
			wake.Sleep(c.fetch, retrySettings)
			c.steer.Wake()
		})
	}
}

// applySettings pauses or resumes the queue as the settings say, and limits its workers. It logs a
// change. Before the queue is open it only notes that it is paused. Returns the error of the
// broker. Without Config.Settings it does nothing.
func (q *queue) applySettings() error {
	s := q.c.steer
	if s == nil {
		return nil
	}
	var set, clear intake.Reason
	stored, tripped := s.QueuePaused(q.name)
	for why, is := range map[intake.Reason]bool{intake.Stored: stored, intake.Tripped: tripped} {
		if is {
			set |= why
		} else {
			clear |= why
		}
	}
	before := q.in.Paused()
	err := q.in.SetPause(set, clear)
	if now := q.in.Paused(); now != before {
		msg := "the queue is resumed by a setting"
		if now {
			msg = "the queue is paused by a setting"
		}
		q.log(slog.LevelInfo, msg, slog.Bool("breaker", tripped))
	}
	if q.workers != nil && !q.polled { // before its start it has no workers
		err = errors.Join(err, q.workers.Limit(s.MaxWorkers(q.name)))
	}
	if errors.Is(err, ErrNotRunning) {
		return nil
	}
	return err
}

// followGroup adds and removes queues so that the consumer serves those of the program and of its
// group. Returns the errors, joined.
func (c *Consumer) followGroup() error {
	if c.cfg.Group == "" {
		return nil
	}
	served := c.steer.Served()
	var errs []error
	for name, s := range served {
		errs = append(errs, c.followServed(name, &s))
	}
	for _, name := range c.wanted.Names() { // removed by the group before
		if _, ruled := served[name]; !ruled && c.consumed(name) == nil {
			cfg := c.wanted.Get(name)
			errs = append(errs, c.addServed(name, &cfg))
		}
	}
	wanted := c.wanted.Names()
	for _, name := range c.queues.Names() { // added by the group before
		if _, ruled := served[name]; !ruled && !slices.Contains(wanted, name) {
			errs = append(errs, c.removeServed(name))
		}
	}
	return errors.Join(errs...)
}

// followServed makes the consumer serve a queue as s says.
func (c *Consumer) followServed(name string, s *settings.Served) error {
	q := c.consumed(name)
	switch {
	case s.Removed && q == nil:
		return nil
	case s.Removed:
		return c.removeServed(name)
	case q != nil:
		if s.Workers == 0 || s.Workers == q.served {
			return nil
		}
		q.served = s.Workers
		return c.Scale(name, s.Workers)
	}
	cfg := c.wanted.Get(name)
	if len(s.Levels) > 0 {
		cfg.Levels = s.Levels
	}
	if s.Workers > 0 {
		cfg.Workers = s.Workers
	}
	if err := c.cfg.completeQueue(name, &cfg); err != nil {
		return err
	}
	return c.addServed(name, &cfg)
}

// serveTimeout limits how long the consumer waits for the broker to add a queue of its group.
const serveTimeout = 10 * time.Second

// addServed adds a queue and logs that.
func (c *Consumer) addServed(name string, cfg *QueueConfig) error {
	ctx, cancel := context.WithTimeout(c.fetch, serveTimeout)
	defer cancel()
	err := c.addQueue(ctx, name, cfg)
	if err != nil {
		return err
	}
	q := c.consumed(name)
	if q != nil {
		q.served = cfg.Workers
		q.log(slog.LevelInfo, "the group serves another queue", slog.Int("workers", cfg.Workers))
	}
	return nil
}

// removeServed removes a queue, logs that, and does not wait for its running tasks.
func (c *Consumer) removeServed(name string) error {
	q := c.consumed(name)
	_, err := c.beginRemoval(name)
	if err == nil {
		q.log(slog.LevelInfo, "the group no longer serves the queue")
	}
	return err
}
