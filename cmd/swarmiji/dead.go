package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/task"
)

func (a *app) deadCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead list|show|requeue|purge",
		Short: "Look after dead letters",
		Long: "Dead letters are tasks that were given up: nobody could read them, no consumer knows them, or their runs ended their\n" +
			"process. They stay until somebody takes them back or away. The queue QUEUE.suspects has dead letters of its own.",
		Example: "  swarmiji dead list reports\n" +
			"  swarmiji dead requeue reports --count 10",
		Args:        cobra.NoArgs,
		Annotations: map[string]string{offline: "yes"}, // it only shows its help
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.Join(cmd.Help(), fmt.Errorf("%w: dead what? list, show, requeue or purge", errUsage))
		},
	}
	cmd.AddCommand(a.deadListCmd(), a.deadShowCmd(), a.deadRequeueCmd(), a.deadPurgeCmd())
	return cmd
}

// deadLetters calls do with the broker's dead letters, where count, of them, is possible.
func (a *app) deadLetters(cmd *cobra.Command, queue string, count int, do func(ctx context.Context, b broker.Broker) error) error {
	if count < 0 {
		return fmt.Errorf("%w: --count is %d", errUsage, count)
	}
	if err := task.CheckName(queue); err != nil {
		return err
	}
	return a.with(cmd.Context(), open.Options{}, func(ctx context.Context, s *open.Swarm) error {
		if _, ok := broker.As[broker.DeadLetterer](s.Broker); !ok {
			return fmt.Errorf("the dead letters of this broker cannot be read: %w", broker.ErrUnsupported)
		}
		return do(ctx, s.Broker)
	})
}

// deadOutput is a dead letter as it is shown.
type deadOutput struct {
	ID         string    `json:"id"`
	Name       string    `json:"name,omitempty"` // "" where the message cannot be read
	Queue      string    `json:"queue"`
	Reason     string    `json:"reason"`
	At         time.Time `json:"at"`
	Generation int       `json:"generation"`
	Size       int       `json:"size"`

	ContentType string            `json:"content_type,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Parent      task.ID           `json:"parent,omitempty"`
	Root        task.ID           `json:"root,omitempty"`
	Retries     int               `json:"retries,omitempty"`
	Args        any               `json:"args,omitempty"`
}

// letter describes a dead letter, with all that the message says where full is set, and the arguments where args is.
func (a *app) letter(codec *wire.Codec, d *broker.Dead, full, args bool) deadOutput {
	m := d.Message
	o := deadOutput{ID: m.ID, Queue: d.Queue, Reason: d.Reason, At: d.At, Generation: m.Generation, Size: len(m.Body)}
	e, _, err := codec.Decode(m)
	if err != nil {
		return o
	}
	o.Name = e.Name
	if !full {
		return o
	}
	sealed := e.ContentType
	err = codec.Open(strings.TrimSuffix(d.Queue, ".suspects"), e)
	o.ContentType, o.Headers, o.Parent, o.Root, o.Retries = e.ContentType, e.Headers, e.Parent, e.Root, e.Retries
	o.ContentType = sealed // as it travelled
	if args {
		var v any
		if err == nil {
			v, err = readable(e.ContentType, e.Args)
		}
		if err != nil {
			v = "cannot be read: " + a.remedy(err).Error()
		}
		o.Args = v
	}
	return o
}
