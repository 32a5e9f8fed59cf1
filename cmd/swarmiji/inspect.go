package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/inspect/httpinspect"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/serializer"
)

// listenTime is the default time to listen for heartbeats, which come every 2 s, and for answers.
const listenTime = inspect.DefaultListen

// inspection names the parts of the inspection API that a command needs beside the broker.
type inspection struct {
	listen  time.Duration // for answers and heartbeats; 0: the default
	replies int           // answers after which to listen no longer; 0: all of listen
	jobs    string        // the store of jobs; "": no store
	history string        // the URL of the history; "": no history
	endless bool          // --timeout limits only the connecting
	logger  *slog.Logger  // nil: errors go to the standard error
}

// inspect opens the broker and calls do with the inspection API over it.
func (a *app) inspect(ctx context.Context, i inspection, do func(ctx context.Context, api inspect.API) error) error {
	if a.api != "" {
		return a.remote(ctx, &i, do)
	}
	keys, err := a.keys()
	if err != nil {
		return err
	}
	w, err := a.wire()
	if err != nil {
		return err
	}
	if !i.endless {
		limited, cancel := context.WithTimeout(ctx, a.timeout+i.listen)
		defer cancel()
		ctx = limited
	}
	return a.withSwarm(ctx, open.Options{Control: true, Logger: i.logger}, func(ctx context.Context, s *open.Swarm) error {
		client, err := control.NewClient(control.ClientConfig{Bus: s.Control, Keys: keys})
		if err != nil {
			return fmt.Errorf("%w: %w", errUsage, err)
		}
		c := inspect.Config{Control: client, Wire: w, Actor: a.actor(), Listen: i.listen, Replies: i.replies, Logger: a.logger()}
		with := func(ctx context.Context, service *jobs.Service) error {
			c.Jobs = service
			api, err := open.Inspector(s, c)
			if err != nil {
				return fmt.Errorf("%w: %w", errUsage, err)
			}
			return do(ctx, api)
		}
		withJobs := func(ctx context.Context) error {
			if i.jobs == "" {
				return with(ctx, nil)
			}
			return a.withJobs(ctx, &jobStore{name: i.jobs}, false, jobs.Config{}, with)
		}
		if i.history == "" {
			return withJobs(ctx)
		}
		return a.withHistory(ctx, i.history, func(ctx context.Context, h open.HistoryStore) error {
			c.History = h
			return withJobs(ctx)
		})
	})
}

// remote calls do with the API of --api.
func (a *app) remote(ctx context.Context, i *inspection, do func(ctx context.Context, api inspect.API) error) error {
	api, err := httpinspect.NewClient(httpinspect.ClientConfig{URL: a.api, Token: a.getenv("SWARMIJI_API_TOKEN")})
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if !i.endless {
		limited, cancel := context.WithTimeout(ctx, a.timeout+i.listen)
		defer cancel()
		ctx = limited
	}
	return do(inspect.WithActor(ctx, a.actor()), api)
}

// logger returns a logger of errors to the standard error.
func (a *app) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

// wire returns how messages are read: plain ones, compressed ones, and sealed ones if keys are
// given.
func (a *app) wire() (serializer.Wire, error) {
	sealer, err := a.sealer()
	if err != nil {
		return serializer.Wire{}, err
	}
	c, err := compression()
	return serializer.Wire{Sealer: sealer, Compression: c}, err
}

// actor names the author of changes for the audit log: the user and the machine.
func (a *app) actor() string {
	host, _ := os.Hostname() // "" is a name too
	return cmp.Or(a.getenv("USER"), a.getenv("LOGNAME"), "unknown") + "@" + host
}

// withAudited calls do with the inspection API over a schedule or jobs. If a broker is given too,
// the changes are in its audit log.
func (a *app) withAudited(ctx context.Context, c inspect.Config, do func(api inspect.API) error) error {
	c.Actor, c.Logger = a.actor(), a.logger()
	local := func(c inspect.Config) error {
		api, err := inspect.New(c)
		if err != nil {
			return err
		}
		return do(api)
	}
	if a.broker == "" {
		return local(c)
	}
	s, err := open.Open(ctx, a.broker, a.options(open.Options{Control: true, Logger: slog.New(slog.DiscardHandler)}))
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	c.Events, c.Audit = s.Events, s.Audit
	err = local(c)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTime)
	defer cancel()
	if cerr := s.Close(closing); cerr != nil {
		a.say("the audit log of %s may not have the change: %s", open.Redact(a.broker), a.plain(cerr))
	}
	return err
}

// auditTime limits the wait for a broker that is only told of a change.
const auditTime = 2 * time.Second

// noted prints the notes of an answer as remarks.
func (a *app) noted(notes []string) {
	for _, n := range notes {
		a.say("%s", visible(n))
	}
}

// changeOf prints the result of a change of records: their number, and the refused ones. If some
// were refused it returns an error.
func (a *app) changeOf(c *inspect.Change, what string) error {
	t := &table{head: []string{"TARGET", "DONE"}}
	done := fmt.Sprintf("%d %s", c.Done, what)
	if c.DryRun {
		done = fmt.Sprintf("%d would be %s", c.Done, what)
		if c.More {
			done = fmt.Sprintf("%d or more would be %s", c.Done, what)
		}
	}
	t.add(c.Target, done)
	for _, p := range c.Problems {
		t.add(p.ID, "refused: "+p.Reason)
	}
	a.noted(c.Notes)
	err := a.show(c, t)
	if err == nil && c.Refused > 0 {
		err = fmt.Errorf("%d were refused", c.Refused)
	}
	return err
}

// confirmed returns an error unless --yes or --dry-run is given.
func confirmed(yes, dryRun bool) error {
	if yes || dryRun {
		return nil
	}
	return fmt.Errorf("%w: this cannot be undone; say --yes, or --dry-run to count first", errUsage)
}

// nodeErrors returns the errors of consumers that did not execute a command, joined.
func nodeErrors(nodes []inspect.NodeAnswer) error {
	var errs []error
	for i := range nodes {
		if n := &nodes[i]; n.Error != "" {
			errs = append(errs, fmt.Errorf("node %s: %s", n.Node, visible(n.Error)))
		}
	}
	return errors.Join(errs...)
}

// pages reads all pages of a list.
func pages[T any](page func(cursor string) ([]T, string, error)) (all []T, err error) {
	for cursor := ""; ; {
		some, next, err := page(cursor)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
		if cursor = next; next == "" {
			return all, nil
		}
	}
}
