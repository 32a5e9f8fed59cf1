package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/task"
)

// eventOptions holds the flags of events.
type eventOptions struct {
	types []string
	id    string
	count int
}

func (a *app) eventsCmd() *cobra.Command {
	var o eventOptions
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Print events as they happen",
		Long: "Events prints each event from now on, one per line: time, type, node, and what is known of the task. It ends\n" +
			"after --count events or when it is interrupted, both with status 0. It changes nothing. With -o json each line\n" +
			"is a JSON object, in the form in which events travel. --timeout limits only the connecting.",
		Example: "  swarmiji events -o json\n" +
			"  swarmiji events --type task-failed --type worker-offline --count 10",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.count < 0 {
				return fmt.Errorf("%w: --count is %d", cli.ErrUsage, o.count)
			}
			return a.WithSwarm(cmd.Context(), false, open.Options{}, func(ctx context.Context, s *open.Swarm) error { return a.follow(ctx, s, &o) })
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.types, "type", nil, "`type` of events to show, such as task-failed; may be repeated; default: all")
	f.StringVar(&o.id, "task", "", "show only events of the task with this `id`; default: all")
	f.IntVar(&o.count, "count", 0, "end after this many events; 0: do not end")
	return cmd
}

func (a *app) follow(ctx context.Context, s *open.Swarm, o *eventOptions) error {
	sub, err := s.Events.Subscribe(ctx, events.Filter{Types: o.types, TaskID: task.ID(o.id)})
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), cli.CloseTime)
		defer cancel()
		_ = sub.Close(closing) // no further event is needed
	}()
	for n := 0; o.count <= 0 || n < o.count; n++ {
		e, err := sub.Receive(ctx)
		if ctx.Err() != nil {
			return nil // an interrupt ends the command normally
		}
		if err != nil {
			return err
		}
		if err := a.showEvent(&e); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) showEvent(e *events.Event) error {
	line, err := events.Encode([]events.Event{*e})
	if err != nil {
		return err
	}
	line = bytes.TrimSuffix(bytes.TrimPrefix(line, []byte("[")), []byte("]"))
	if a.Output == "table" {
		line = []byte(cli.Visible(row(e)))
	}
	_, err = fmt.Fprintf(a.Stdout, "%s\n", line)
	return err
}

// row formats an event for people, columns of fixed width first.
func row(e *events.Event) string {
	parts := []string{e.Time.Format("15:04:05.000"), fmt.Sprintf("%-16s", e.Type), e.NodeID}
	for _, text := range []string{string(e.TaskID), e.Name, e.Queue, e.Result, e.Exception} {
		if text != "" {
			parts = append(parts, text)
		}
	}
	if e.Runtime > 0 {
		parts = append(parts, e.Runtime.Round(time.Microsecond).String())
	}
	return strings.Join(parts, "  ")
}
