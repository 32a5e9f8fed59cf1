package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"time"

	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/inspect/httpinspect"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/serializer"
)

// ListenTime is the default time to listen for heartbeats, which come every 2 s, and for answers.
const ListenTime = inspect.DefaultListen

// Inspection names the parts of the inspection API that a command needs beside the broker.
type Inspection struct {
	Listen  time.Duration // for answers and heartbeats; 0: the default
	Replies int           // answers after which to listen no longer; 0: all of listen
	Jobs    string        // the store of jobs; "": no store
	History string        // the URL of the history; "": no history
	Endless bool          // --timeout limits only the connecting
	Logger  *slog.Logger  // nil: errors go to the standard error
}

// Inspect opens the broker and calls do with the inspection API over it.
func (a *App) Inspect(ctx context.Context, i Inspection, do func(ctx context.Context, api inspect.API) error) error {
	if a.API != "" {
		return a.Remote(ctx, &i, do)
	}
	keys, err := a.Keys()
	if err != nil {
		return err
	}
	w, err := a.Wire()
	if err != nil {
		return err
	}
	if !i.Endless {
		limited, cancel := context.WithTimeout(ctx, a.Timeout+i.Listen)
		defer cancel()
		ctx = limited
	}
	return a.WithSwarm(ctx, false, open.Options{Control: true, Logger: i.Logger}, func(ctx context.Context, s *open.Swarm) error {
		client, err := control.NewClient(control.ClientConfig{Bus: s.Control, Replies: s.Replies, Keys: keys})
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUsage, err)
		}
		c := inspect.Config{Control: client, Wire: w, Actor: a.Actor(), Listen: i.Listen, Replies: i.Replies, Logger: a.logger()}
		with := func(ctx context.Context, service *jobs.Service) error {
			c.Jobs = service
			api, err := open.Inspector(s, c)
			if err != nil {
				return fmt.Errorf("%w: %w", ErrUsage, err)
			}
			return do(ctx, api)
		}
		withJobs := func(ctx context.Context) error {
			if i.Jobs == "" {
				return with(ctx, nil)
			}
			return a.WithJobs(ctx, &JobStore{Name: i.Jobs}, false, jobs.Config{}, with)
		}
		if i.History == "" {
			return withJobs(ctx)
		}
		return a.WithHistory(ctx, i.History, false, func(ctx context.Context, h open.HistoryStore) error {
			c.History = h
			return withJobs(ctx)
		})
	})
}

// Remote calls do with the API of --api.
func (a *App) Remote(ctx context.Context, i *Inspection, do func(ctx context.Context, api inspect.API) error) error {
	api, err := httpinspect.NewClient(httpinspect.ClientConfig{URL: a.API, Token: a.Getenv("SWARMIJI_API_TOKEN")})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	if !i.Endless {
		limited, cancel := context.WithTimeout(ctx, a.Timeout+i.Listen)
		defer cancel()
		ctx = limited
	}
	return do(inspect.WithActor(ctx, a.Actor()), api)
}

// logger returns a logger of errors to the standard error.
func (a *App) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

// Wire returns how messages are read: plain ones, compressed ones, and sealed ones if keys are
// given.
func (a *App) Wire() (serializer.Wire, error) {
	sealer, err := a.Sealer()
	if err != nil {
		return serializer.Wire{}, err
	}
	c, err := Compression()
	return serializer.Wire{Sealer: sealer, Compression: c}, err
}

// Actor names the author of changes for the audit log: the user and the machine.
func (a *App) Actor() string {
	host, _ := os.Hostname() // "" is a name too
	name := cmp.Or(a.Getenv("USER"), a.Getenv("LOGNAME"))
	if name == "" { // as in a container or below cron
		if u, err := user.Current(); err == nil {
			name = u.Username
		}
	}
	return cmp.Or(name, "unknown") + "@" + host
}

// WithAudited calls do with the inspection API over a schedule or jobs. If a broker is given too,
// the changes are in its audit log.
func (a *App) WithAudited(ctx context.Context, c inspect.Config, do func(api inspect.API) error) error {
	return a.withLocal(ctx, c, func(l *inspect.Local) error { return do(l) })
}

// Audit reports a change that the inspection API does not have to the audit log of the broker, if a
// broker is given. failure is the error of the change.
func (a *App) Audit(ctx context.Context, c inspect.Change, detail any, failure error) {
	if a.Broker == "" {
		return
	}
	reporting, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTime)
	defer cancel()
	err := a.withLocal(reporting, inspect.Config{}, func(l *inspect.Local) error {
		l.Report(reporting, c, detail, failure)
		return nil
	})
	if err != nil {
		a.Say("the audit log of %s does not have the change: %s", open.Redact(a.Broker), a.Plain(err))
	}
}

// OneIf returns Change.Done of a single change: 1 if it was made, and 0 after an error.
func OneIf(err error) int {
	if err == nil {
		return 1
	}
	return 0
}

// withLocal is WithAudited with the implementation of the API.
func (a *App) withLocal(ctx context.Context, c inspect.Config, do func(l *inspect.Local) error) error {
	c.Actor, c.Logger = a.Actor(), a.logger()
	local := func(c inspect.Config) error {
		api, err := inspect.New(c)
		if err != nil {
			return err
		}
		return do(api)
	}
	if a.Broker == "" {
		return local(c)
	}
	if err := Existing("changes are made without its audit log", a.Broker, a.Results, a.Events); err != nil {
		a.Say("the broker is %s", a.Plain(err))
		return local(c)
	}
	s, err := open.Open(ctx, a.Broker, a.options(open.Options{Control: true, Logger: slog.New(slog.DiscardHandler)}))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	c.Events, c.Audit = s.Events, s.Audit
	err = local(c)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTime)
	defer cancel()
	if cerr := s.Close(closing); cerr != nil {
		a.Say("the audit log of %s may not have the change: %s", open.Redact(a.Broker), a.Plain(cerr))
	}
	return err
}

// auditTime limits the wait for a broker that is only told of a change.
const auditTime = 2 * time.Second

// Noted prints the notes of an answer as remarks.
func (a *App) Noted(notes []string) {
	for _, n := range notes {
		a.Say("%s", Visible(n))
	}
}

// Requeued is the output about requeued dead letters.
type Requeued struct {
	Requeued int               `json:"requeued"`
	Already  int               `json:"already"`
	Refused  int               `json:"refused"`
	Unfenced int               `json:"unfenced"`
	Problems []inspect.Problem `json:"problems,omitempty"`
}

// RequeuedOf returns the output about the requeued letters of a queue or workflow, with the table
// for people. head and of are the heading and the name of that queue or workflow. It returns an
// error, too, if letters were refused.
func RequeuedOf(c *inspect.Change, head, of string) (Requeued, *Table, error) {
	t := &Table{Head: []string{head, "DEAD LETTERS"}}
	t.Add(of, fmt.Sprintf("%d requeued", c.Done))
	if c.Unfenced > 0 {
		t.Add("", fmt.Sprintf("%d of these without a record: what their old runs still write is not refused", c.Unfenced))
	}
	if c.Already > 0 {
		t.Add("", fmt.Sprintf("%d had been requeued already", c.Already))
	}
	for _, p := range c.Problems {
		t.Add(p.ID, "refused: "+p.Reason)
	}
	var refused error
	if c.Refused > 0 {
		refused = fmt.Errorf("%d dead letters were refused", c.Refused)
	}
	return Requeued{c.Done, c.Already, c.Refused, c.Unfenced, c.Problems}, t, refused
}

// SayDryRun prints the remark of each --dry-run.
func (a *App) SayDryRun() { a.Say("a dry run: nothing was changed") }

// NodeErrors returns the errors of consumers that did not execute a command, joined.
func NodeErrors(nodes []inspect.NodeAnswer) error {
	var errs []error
	for i := range nodes {
		if n := &nodes[i]; n.Error != "" {
			errs = append(errs, fmt.Errorf("node %s: %s", n.Node, Visible(n.Error)))
		}
	}
	return errors.Join(errs...)
}

// Pages reads all pages of a list.
func Pages[T any](page func(cursor string) ([]T, string, error)) (all []T, err error) {
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
