package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/internal/reach"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

func (a *app) resultCmd() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "result ID",
		Short: "Show the state and the result of a task",
		Long: "Result prints what the result store knows about a task: name, state, attempt, times, consumer, and the result\n" +
			"or the error. It changes nothing. A sealed result needs --key-file. With --wait the command waits until the\n" +
			"task has ended, at most --timeout.\n\n" +
			"The store has no record of a task that was never submitted, has not started yet, or does not want its result\n" +
			"stored. Records are deleted after a time. A task that waits for a consumer with a handler for its name is in\n" +
			"the state retrying, and its error says so.\n\n" +
			"Results on RabbitMQ go only to the program that submitted the task. To keep them, name a result store with\n" +
			"results= in the URL of the broker, for consumers and producers too: redis://, sqlite:///path/app.db or\n" +
			"postgres://.\n\n" +
			"Exit status: 3 if the store has no record of the task. 5 if the task has failed, was revoked or has expired. 1\n" +
			"if it has not ended in time with --wait.",
		Example: "  swarmiji result report-2026-10\n" +
			"  swarmiji result report-2026-10 --broker 'amqp://host?results=sqlite:///var/lib/app.db'\n" +
			"  swarmiji result 01975e7a-1c5e-7b63-9a44-1f6d0c8f6d11 --wait --timeout 1m -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id := task.ID(args[0])
			if err := id.Check(); err != nil {
				return err
			}
			codec, err := a.Codec()
			if err != nil {
				return err
			}
			return a.With(cmd.Context(), false, open.Options{}, func(ctx context.Context, s *open.Swarm) error {
				return a.result(ctx, s, codec, id, wait)
			})
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the task has ended")
	return cmd
}

// resultOutput is the output of result.
type resultOutput struct {
	ID         task.ID    `json:"id"`
	Name       string     `json:"name"`
	State      task.State `json:"state"`
	Attempt    int        `json:"attempt"`
	StartedAt  time.Time  `json:"started_at,omitzero"`
	FinishedAt time.Time  `json:"finished_at,omitzero"`
	Node       string     `json:"node,omitempty"`
	Result     any        `json:"result,omitempty"`
	Error      string     `json:"error,omitempty"`
	ErrorType  string     `json:"error_type,omitempty"`
}

// resultPoll is the interval between two reads of a result that is waited for.
const resultPoll = 100 * time.Millisecond

func (a *app) result(ctx context.Context, s *open.Swarm, codec *wire.Codec, id task.ID, wait bool) error {
	if resultstore.RepliesOnly(s.Results) {
		return fmt.Errorf("%w: this broker sends a result only to the program that submitted the task; name a result store by results= in the URL, for producers and consumers too", broker.ErrUnsupported)
	}
	r, err := load(ctx, s.Results, id, wait)
	if err != nil {
		return err
	}
	if r.State.Terminal() || r.Error != nil {
		if err := codec.OpenRecord(&r); err != nil {
			return a.Remedy(err)
		}
	}
	out := resultOutput{
		ID: r.ID, Name: r.Name, State: r.State, Attempt: r.Retries + 1, StartedAt: r.StartedAt, FinishedAt: r.FinishedAt, Node: r.NodeID,
	}
	if r.Error != nil {
		out.Error, out.ErrorType = r.Error.Error(), r.Error.Type
	}
	if r.State == task.StateSucceeded {
		if out.Result, err = wire.Readable(r.ContentType, r.Result); err != nil {
			return err
		}
	}
	if err := a.Show(out, out.table()); err != nil {
		return err
	}
	switch r.State {
	case task.StateFailed, task.StateRevoked, task.StateExpired:
		if r.Error != nil {
			return &cli.TaskFailedError{Cause: r.Error}
		}
		return &cli.TaskFailedError{Cause: errors.New(string(r.State))}
	}
	return nil
}

// load reads the record of a task. With --wait it waits until the task has ended.
func load(ctx context.Context, store resultstore.ResultStore, id task.ID, wait bool) (resultstore.Record, error) {
	known := false
	for {
		r, err := store.Load(ctx, id)
		switch {
		case err == nil && (r.State.Terminal() || !wait):
			return r, nil
		case errors.Is(err, resultstore.ErrNotFound) && !wait:
			return r, reach.Also(fmt.Errorf("task %s: %w; check id and --namespace", id, task.ErrNotFound), err)
		case err != nil && ctx.Err() == nil && !errors.Is(err, resultstore.ErrNotFound):
			return r, err
		}
		known = known || err == nil
		if wake.Sleep(ctx, resultPoll) {
			continue
		}
		switch {
		case !errors.Is(ctx.Err(), context.DeadlineExceeded):
			return r, context.Cause(ctx)
		case known:
			return r, fmt.Errorf("task %s has not ended in time", id)
		}
		return r, fmt.Errorf("task %s has not ended in time: %w: %w", id, task.ErrNotFound, cli.ErrNotFound)
	}
}

func (o *resultOutput) table() *cli.Table {
	t := &cli.Table{Head: []string{"ID", string(o.ID)}}
	t.Add("NAME", o.Name)
	t.Add("STATE", string(o.State))
	t.Add("ATTEMPT", o.Attempt)
	t.Add("STARTED", o.StartedAt)
	t.Add("FINISHED", o.FinishedAt)
	t.Add("NODE", o.Node)
	if o.State == task.StateSucceeded {
		t.Add("RESULT", cli.Compact(o.Result))
	}
	if o.Error != "" {
		t.Add("ERROR", o.Error)
		t.Add("TYPE", o.ErrorType)
	}
	return t
}
