package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// callOptions holds the flags of call.
type callOptions struct {
	queue, id   string
	in, expires time.Duration
	retries     int
	wait, make  bool
}

func (a *app) callCmd() *cobra.Command {
	var o callOptions
	cmd := &cobra.Command{
		Use:   "call NAME [JSON|-]",
		Short: "Submit a task, and print its id or its result",
		Long: "Call submits a task with JSON arguments to a queue and prints the id of the task. The queue must exist, unless\n" +
			"--declare creates it. \"-\" reads the arguments from the standard input; without arguments they are null.\n" +
			"Consumers that do not accept JSON arguments fail the task. With --key-file the task is sealed, and its result\n" +
			"must be sealed too.\n\n" +
			"With --wait the command waits until the task has ended, at most --timeout, and prints the result as JSON.\n" +
			"Without --wait no result is stored, so swarmiji result does not find the task.\n\n" +
			"Exit status: 3 if the queue does not exist. With --wait, 5 if the task failed, and 1 if it has not ended in\n" +
			"time; the task then continues.",
		Example: "  swarmiji call math.add '{\"a\": 1, \"b\": 2}' --wait\n" +
			"  swarmiji call report.make '{\"month\": \"2026-10\"}' --in 5m --queue reports --id report-2026-10",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error { return a.call(cmd, args, &o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.queue, "queue", router.DefaultQueue, "`name` of the queue")
	f.BoolVar(&o.make, "declare", false, "create the queue if it does not exist")
	f.StringVar(&o.id, "id", "", "`id` of the task; if it is unknown whether the task was submitted, submitting it again with the same id is safe; default: a new id")
	f.DurationVar(&o.in, "in", 0, "earliest start, counted from now, such as 5m; default: at once")
	f.DurationVar(&o.expires, "expires", 0, "latest start, counted from now; after it the task does not run; default: no limit")
	f.IntVar(&o.retries, "retries", -1, "how often the task may be retried, 0 or more; if not given, as the consumer defines it")
	f.BoolVar(&o.wait, "wait", false, "wait until the task has ended, and print its result")
	return cmd
}

// callOutput is the JSON output of call.
type callOutput struct {
	ID     task.ID         `json:"id"`
	State  task.State      `json:"state"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  string          `json:"error,omitempty"`
}

func (a *app) call(cmd *cobra.Command, args []string, o *callOptions) error {
	arguments, err := a.Arguments(args[1:])
	if err != nil {
		return err
	}
	if o.in < 0 || o.expires < 0 || cmd.Flags().Changed("retries") && o.retries < 0 {
		return fmt.Errorf("%w: --in, --expires and --retries are not negative", cli.ErrUsage)
	}
	sealer, err := a.Sealer()
	if err != nil {
		return err
	}
	compressed, err := cli.Compression()
	if err != nil {
		return err
	}
	options := []task.Option{task.WithSerializer(serializer.ContentJSON), task.WithQueue(o.queue), task.WithIgnoreResult(!o.wait)}
	if o.id != "" {
		options = append(options, task.WithID(task.ID(o.id)))
	}
	if o.in > 0 {
		options = append(options, task.WithDelay(o.in))
	}
	if o.expires > 0 {
		options = append(options, task.WithExpires(time.Now().Add(o.expires)))
	}
	if cmd.Flags().Changed("retries") {
		options = append(options, task.WithMaxRetries(o.retries))
	}
	return a.With(cmd.Context(), true, open.Options{}, func(ctx context.Context, s *open.Swarm) error {
		if o.make {
			if err := broker.Declare(ctx, s.Broker, broker.Queue{Name: o.queue}); err != nil {
				return err
			}
		}
		p, err := producer.New(producer.Config{
			Broker: s.Broker, Results: s.Results, Events: s.Events, Router: existing{}, Report: events.Report{HeartbeatEvery: -1},
			Wire: serializer.Wire{Sealer: sealer, Compression: compressed},
		})
		if err != nil {
			return err
		}
		defer func() { _ = p.Close(context.WithoutCancel(ctx)) }() // no submission is running
		call := task.New[json.RawMessage, json.RawMessage](args[0]).Call(arguments, options...)
		pending, err := p.Submit(ctx, call)
		if err != nil {
			return err
		}
		if !o.wait {
			return a.Show(callOutput{ID: pending.ID(), State: task.StatePending}, &cli.Table{Head: []string{string(pending.ID())}})
		}
		return a.await(ctx, pending)
	})
}

// await waits for the end of a task and prints it. It returns a *cli.TaskFailedError if the task
// failed.
func (a *app) await(ctx context.Context, p task.Pending) error {
	var result json.RawMessage
	err := p.Result(ctx, &result)
	if _, remote := errors.AsType[*task.RemoteError](err); err != nil && !remote {
		return fmt.Errorf("the task is submitted, but its end is not known: %w", err)
	}
	out := callOutput{ID: p.ID(), State: task.StateSucceeded, Result: result}
	if err != nil {
		if out.State, _ = p.State(ctx); out.State == "" {
			out.State = task.StateFailed
		}
		out.Error = err.Error()
		err = &cli.TaskFailedError{Cause: err}
		if a.Output == "table" {
			return err
		}
	}
	if result == nil {
		result = json.RawMessage("null")
	}
	return errors.Join(a.Show(out, &cli.Table{Head: []string{string(result)}}), err)
}

// existing is a router that declares no queue, so that a misspelt queue is an error.
type existing struct{}

// Route implements [router.Router]. Each call names its queue, so this queue is not used.
func (existing) Route(context.Context, *task.Envelope) (string, error) {
	return router.DefaultQueue, nil
}

// Queues implements [router.Router].
func (existing) Queues() []string { return nil }
