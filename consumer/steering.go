package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

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
		if err := errors.Join(task.CheckName(name), b.internal().Check()); err != nil {
			errs = append(errs, fmt.Errorf("config: Breakers: %q: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// newSteer sets c.steer and puts its two admissions before those of c.cfg.Admit. Returns the error
// of [steer.New]. Without Config.Settings it does nothing.
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
	var following sync.WaitGroup
	if c.steer != nil {
		following.Go(func() { c.steer.Run(fetch) })
	}
	return following.Wait
}

// retrySettings is the time after which settings that could not be applied are applied again.
const retrySettings = 2 * time.Second

// applySettings makes the queues follow the settings: their pauses, their workers, the queues of
// the group, and the messages of tasks that are no longer paused. After an error it is called again
// after retrySettings.
func (c *Consumer) applySettings() {
	err := c.steer.FollowGroup(groupServer{c})
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

// applySettings pauses or resumes the queue, and limits its workers, as the settings say, see
// [steer.Steer.Apply].
func (q *queue) applySettings() error {
	own := q.workers
	if q.polled { // other queues share them
		own = nil
	}
	return q.c.steer.Apply(q.name, q.in, own, q.log)
}

// groupServer adapts a consumer to [steer.Server].
type groupServer struct{ *Consumer }

// serveTimeout limits how long the consumer waits for the broker to add a queue of its group.
const serveTimeout = 10 * time.Second

// Wanted returns the names of the queues of the program.
func (c groupServer) Wanted() []string { return c.wanted.Names() }

// Queues returns the names of the consumed queues.
func (c groupServer) Queues() []string { return c.queues.Names() }

// Serve adds a queue of the group, or scales a consumed one, as the program and s configure it.
func (c groupServer) Serve(name string, s settings.Served) error {
	cfg := c.wanted.Get(name)
	if len(s.Levels) > 0 {
		cfg.Levels = s.Levels
	}
	cfg.Fair = cfg.Fair || s.Fair
	if s.Workers > 0 {
		cfg.Workers = s.Workers
	}
	err := c.cfg.completeQueue(name, &cfg)
	switch {
	case err != nil:
		return err
	case c.consumed(name) != nil:
		return c.Scale(name, cfg.Workers)
	}
	ctx, cancel := context.WithTimeout(c.fetch, serveTimeout)
	defer cancel()
	if err = c.addQueue(ctx, name, &cfg, false); err == nil {
		c.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "the group serves another queue", slog.String(middleware.LogQueue, name), slog.Int("workers", cfg.Workers))
	}
	return err
}

// Leave begins to remove a queue and does not wait for its running tasks. It logs a success.
func (c groupServer) Leave(name string) error {
	_, err := c.beginRemoval(name, false)
	if err == nil {
		c.cfg.Logger.LogAttrs(c.fetch, slog.LevelInfo, "the group no longer serves the queue", slog.String(middleware.LogQueue, name))
	}
	return err
}
