package servecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/schedule"
)

// partOptions names the parts of a system beside the broker.
type partOptions struct {
	history  string        // URL; "": $SWARMIJI_HISTORY
	record   bool          // write the history too
	schedule string        // URL; "": $SWARMIJI_SCHEDULE, or the broker
	name     string        // of the schedule
	jobs     string        // name or URL; "": $SWARMIJI_JOBS
	listen   time.Duration // of inspect.Config; 0: its default
}

func (o *partOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.history, "history", "", "`URL` of the database that holds the history; default: $SWARMIJI_HISTORY, or no history")
	f.BoolVar(&o.record, "record", false, "record the history while serving")
	f.StringVar(&o.schedule, "schedule-store", "", "`URL` of the store that holds the schedule; default: $SWARMIJI_SCHEDULE, or else the broker, if its server can hold a schedule")
	f.StringVar(&o.name, "schedule", "", "`name` of the schedule; default: \"default\"")
	f.StringVar(&o.jobs, "jobs", "", "`name` of a SQLite file, or URL of a database, that holds jobs; default: $SWARMIJI_JOBS, or no jobs")
}

// withParts opens the broker and the other parts and calls do with the inspection API over them,
// which runs meanwhile, as does the recorder. Only the connecting is limited in time.
func (a *app) withParts(ctx context.Context, o open.Options, p *partOptions, do func(ctx context.Context, s *open.Swarm, api inspect.API) error) error {
	keys, err := a.Keys()
	if err != nil {
		return err
	}
	w, err := a.Wire()
	if err != nil {
		return err
	}
	o.Control = true
	return a.WithSwarm(ctx, true, o, func(ctx context.Context, s *open.Swarm) (err error) {
		c := inspect.Config{Wire: w, Actor: a.Actor(), Listen: p.listen, Logger: o.Logger}
		if c.Control, err = control.NewClient(control.ClientConfig{Bus: s.Control, Replies: s.Replies, Keys: keys}); err != nil {
			return fmt.Errorf("%w: %w", cli.ErrUsage, err)
		}
		var closers []func(context.Context) error
		defer func() {
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), cli.CloseTime)
			defer cancel()
			for i := len(closers) - 1; i >= 0; i-- {
				err = errors.Join(err, closers[i](closing))
			}
		}()
		group := &together{}
		closers = append(closers, group.stop)
		if err := a.openHistory(ctx, s, &c, p, &closers); err != nil {
			return err
		}
		if err := a.openSchedule(ctx, s, &c, p, &closers); err != nil {
			return err
		}
		if name := cmp.Or(p.jobs, a.Jobs, a.Getenv("SWARMIJI_JOBS")); name != "" {
			store, _, err := a.OpenJobs(ctx, name, o.Logger)
			if err != nil {
				return fmt.Errorf("%w: %w", cli.ErrUsage, err)
			}
			closers = append(closers, store.Close)
			if c.Jobs, err = jobs.New(jobs.Config{Store: store, Logger: o.Logger}); err != nil {
				return fmt.Errorf("%w: %w", cli.ErrUsage, err)
			}
			closers = append(closers, c.Jobs.Close)
		}
		api, err := open.Inspector(s, c)
		if err != nil {
			return fmt.Errorf("%w: %w", cli.ErrUsage, err)
		}
		group.run(ctx, func(ctx context.Context) error {
			if err := api.Run(ctx); !errors.Is(err, inspect.ErrUnsupported) { // a broker without events
				return err
			}
			return nil
		})
		return do(ctx, s, api)
	})
}

// openHistory sets c.History if there is one. It starts the recorder and waits until it listens.
func (a *app) openHistory(ctx context.Context, s *open.Swarm, c *inspect.Config, p *partOptions, closers *[]func(context.Context) error) error {
	url := cmp.Or(p.history, a.Getenv("SWARMIJI_HISTORY"))
	if url == "" {
		if p.record {
			return fmt.Errorf("%w: --record needs --history, such as sqlite:///path/history.db", cli.ErrUsage)
		}
		return nil
	}
	if !p.record {
		if err := cli.Existing("--history or SWARMIJI_HISTORY names the database that swarmiji history record writes; to write it here give --record", url); err != nil {
			return err
		}
	}
	a.Hide(url, open.Redact(url))
	h, err := open.History(ctx, url, open.HistoryOptions{Namespace: a.Namespace, Logger: c.Logger})
	if err != nil {
		return fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	*closers = append(*closers, h.Close)
	c.History = h
	if !p.record {
		return nil
	}
	preparing, cancel := a.Limited(ctx)
	defer cancel()
	if err := h.Prepare(preparing); err != nil {
		return err
	}
	r, err := history.NewRecorder(history.RecorderConfig{Bus: s.Events, Store: h, Logger: c.Logger})
	if err != nil {
		return err
	}
	recording := &together{}
	ended := make(chan error, 1)
	recording.run(ctx, func(ctx context.Context) error {
		err := r.Run(ctx)
		ended <- err
		return err
	})
	select {
	case <-r.Listening():
	case <-preparing.Done():
		a.Say("the recorder does not listen yet: it will when the broker answers")
	case err := <-ended:
		return err
	}
	*closers = append(*closers, recording.stop)
	return nil
}

// openSchedule sets c.Schedule. Without a URL of its own it is on the broker's server, if that can
// hold one.
func (a *app) openSchedule(ctx context.Context, s *open.Swarm, c *inspect.Config, p *partOptions, closers *[]func(context.Context) error) error {
	given := cmp.Or(p.schedule, a.Schedule, a.Getenv("SWARMIJI_SCHEDULE"))
	url := cmp.Or(given, a.Broker)
	if strings.HasPrefix(url, "mem:") {
		return nil
	}
	a.Hide(url, open.RedactSchedule(url))
	store, err := open.Schedule(ctx, url, open.ScheduleOptions{Name: p.name, Logger: c.Logger})
	switch {
	case err != nil && given == "":
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	*closers = append(*closers, store.Close)
	if c.Schedule, err = schedule.New(schedule.Config{Store: store, Results: s.Results}); err != nil {
		return fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	return nil
}

// together runs functions until stop.
type together struct {
	ends []func(ctx context.Context) error
}

// run starts fn.
func (g *together) run(ctx context.Context, fn func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- fn(ctx) }()
	g.ends = append(g.ends, func(ctx context.Context) error {
		cancel()
		select {
		case err := <-ended:
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// stop ends the functions and waits for them, the last one first.
func (g *together) stop(ctx context.Context) error {
	var errs []error
	for _, end := range slices.Backward(g.ends) {
		errs = append(errs, end(ctx))
	}
	return errors.Join(errs...)
}
