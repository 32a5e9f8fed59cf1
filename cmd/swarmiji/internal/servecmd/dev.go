package servecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/dashboard"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/internal/cmdline"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/schedule"
)

// devOptions holds the flags of dev.
type devOptions struct {
	dir, listen string
	quiet       bool // no sample worker
}

func (a *app) devCmd() *cobra.Command {
	var o devOptions
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Try everything without a server: broker, dashboard and a sample worker",
		Long: "Dev runs a whole system in one process: a broker and all stores in SQLite files of a directory, a history, the\n" +
			"dashboard, and a sample worker with tasks that succeed, fail, retry, report progress and form workflows. Of\n" +
			"its two jobs, one repeats and one waits for your answer. Dev runs until it is interrupted; then it ends with\n" +
			"status 0. The files stay, and the next dev goes on with them.\n\n" +
			"Your own programs join by the URL that it prints. With --broker or --context it uses that broker instead of the\n" +
			"files. $SWARMIJI_BROKER and the context of context use have no effect, so that no system in use gets the sample\n" +
			"tasks by accident.",
		Example: "  swarmiji dev\n" +
			"  swarmiji dev --dir /tmp/try --listen 127.0.0.1:9090",
		Args:        cobra.NoArgs,
		Annotations: map[string]string{cli.Offline: "yes"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f := cmd.Flags(); !f.Changed("broker") && !f.Changed("context") {
				a.forgetSystem(f.Changed("namespace"))
			}
			return a.dev(cmd.Context(), &o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.dir, "dir", ".swarmiji", "`directory` of the files")
	f.StringVar(&o.listen, "listen", "127.0.0.1:8080", "`address` of the dashboard, on this machine; the default takes another port if 8080 is in use")
	f.BoolVar(&o.quiet, "no-worker", false, "run no sample worker and submit no sample tasks")
	return cmd
}

// forgetSystem drops the URLs of the environment and of the chosen context. The system that they
// name may be in use, and must not get sample tasks by accident. named reports that a.Namespace was
// given as a flag.
func (a *app) forgetSystem(named bool) {
	a.Broker, a.Results, a.Events, a.Schedule, a.Jobs = "", "", "", "", ""
	if !named {
		a.Namespace = ""
	}
	a.Getenv = func(string) string { return "" }
}

// dev runs the system until ctx ends.
func (a *app) dev(ctx context.Context, o *devOptions) (err error) {
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	file := func(name string) string { return "sqlite://" + filepath.ToSlash(filepath.Join(dir, name)) }
	a.Broker = cmp.Or(a.Broker, file("dev.db"))
	ln, err := listenLocal(ctx, o.listen)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	// the first page waits for consumers that it does not know yet, and these are on this machine
	parts := partOptions{history: file("history.db"), jobs: file("jobs.db"), record: true, listen: time.Second / 2}
	served := false
	err = a.withParts(ctx, open.Options{Logger: logger}, &parts, func(ctx context.Context, s *open.Swarm, api inspect.API) (err error) {
		sample := &together{}
		defer func() {
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), cli.CloseTime)
			defer cancel()
			err = errors.Join(err, sample.stop(closing))
		}()
		if !o.quiet {
			if err := errors.Join(a.startSample(ctx, s, sample), startJobs(ctx, parts.jobs, logger, sample)); err != nil {
				return err
			}
		}
		a.Say("broker %s, files in %s", open.Redact(a.Broker), dir)
		if !o.quiet {
			a.Say("the sample worker serves the queue %s; in another terminal try:", sampleQueue)
			for _, line := range []string{
				"export SWARMIJI_BROKER=" + cmdline.Quote(open.Redact(a.Broker)) + " SWARMIJI_HISTORY=" + cmdline.Quote(parts.history) +
					" SWARMIJI_JOBS=" + cmdline.Quote(parts.jobs),
				cmdline.Swarmiji("call", "demo.add", `{"a": 2, "b": 3}`, "--queue", sampleQueue, "--wait"),
				cmdline.Swarmiji("task", "ls", "state:failed"),
				cmdline.Swarmiji("queue", "pause", sampleQueue),
				cmdline.Swarmiji("job", "complete", sampleApprove.Name(), sampleOrderKey, `"yes"`),
			} {
				_, _ = fmt.Fprintln(a.Stderr, "  "+line) // as it is pasted
			}
		}
		served = true
		return a.serveDashboard(ctx, ln, dashboard.Config{API: api, Logger: logger})
	})
	if !served {
		err = errors.Join(err, ln.Close())
	}
	return err
}

// listenLocal listens on a loopback address. If the port 8080 of the default is in use, it takes a
// free one.
func listenLocal(ctx context.Context, address string) (net.Listener, error) {
	var l net.ListenConfig
	ln, err := l.Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) && address == "127.0.0.1:8080" {
		ln, err = l.Listen(ctx, "tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("%w; --listen names another address", err)
	}
	if addr, ok := ln.Addr().(*net.TCPAddr); !ok || !addr.IP.IsLoopback() {
		return nil, errors.Join(fmt.Errorf("%w: dev has no users, so it listens on this machine only; see swarmiji serve", cli.ErrUsage), ln.Close())
	}
	return ln, nil
}

// startSample runs a consumer, a listener and a producer of sample tasks.
func (a *app) startSample(ctx context.Context, s *open.Swarm, g *together) error {
	keys, err := a.Keys()
	if err != nil {
		return err
	}
	p, err := s.Producer(producer.Config{})
	if err != nil {
		return err
	}
	g.ends = append(g.ends, p.Close)
	c, err := s.Consumer(consumer.Config{
		Queues: map[string]consumer.QueueConfig{sampleQueue: {Workers: 4}}, Control: &control.Config{Keys: keys}, ShutdownTimeout: time.Second,
		// so that each task shows its values and can run again
		Report: events.Report{Payloads: true, KeepArguments: events.MaxOriginal},
	})
	if err != nil {
		return err
	}
	if err := handleSamples(c); err != nil {
		return err
	}
	g.run(ctx, func(ctx context.Context) error {
		if err := c.Run(ctx); !errors.Is(err, consumer.ErrForced) { // unfinished tasks went back
			return err
		}
		return nil
	})
	store, err := open.Schedule(ctx, a.Broker, open.ScheduleOptions{})
	if err != nil {
		g.run(ctx, func(ctx context.Context) error { return submitSamples(ctx, p) })
		return nil // the server of the broker cannot hold a schedule
	}
	listener, err := schedule.NewListener(schedule.ListenerConfig{Store: store, Submit: p})
	if err != nil {
		return errors.Join(err, store.Close(ctx))
	}
	entries, err := schedule.New(schedule.Config{Store: store})
	if err == nil {
		_, err = entries.Add(ctx, schedule.ByPhrase("every minute"), sampleAdd.Call(samplePair{20, 22}), schedule.WithName("sample"))
	}
	if err = errors.Join(err, schedule.Forward(listener, sampleAdd)); err != nil {
		return errors.Join(err, store.Close(ctx))
	}
	g.run(ctx, func(ctx context.Context) error {
		err := listener.Run(ctx)
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), cli.CloseTime)
		defer cancel()
		return errors.Join(err, store.Close(closing))
	})
	g.run(ctx, func(ctx context.Context) error { return submitSamples(ctx, p) })
	return nil
}
