package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/deadletter"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/task"
)

// DeadLetters opens the broker and calls do with its dead letters. It has no time limit, because a
// filter may have to read all letters.
func (a *App) DeadLetters(cmd *cobra.Command, queue string, do func(ctx context.Context, l *deadletter.Letters) error) error {
	return a.DeadChange(cmd, queue, func(ctx context.Context, l *deadletter.Letters, _ inspect.API) error { return do(ctx, l) })
}

// DeadChange is DeadLetters with the inspection API, for changes.
func (a *App) DeadChange(cmd *cobra.Command, queue string, do func(ctx context.Context, l *deadletter.Letters, api inspect.API) error) error {
	if err := task.CheckName(queue); err != nil {
		return err
	}
	w, err := a.Wire()
	if err != nil {
		return err
	}
	return a.WithSwarm(cmd.Context(), open.Options{Control: true}, func(ctx context.Context, s *open.Swarm) error {
		l, err := deadletter.New(deadletter.Config{Broker: s.Broker, Results: s.Results, Wire: w})
		if err != nil {
			return err
		}
		api, err := open.Inspector(s, inspect.Config{Wire: w, Actor: a.Actor(), Logger: a.logger()})
		if err != nil {
			return err
		}
		return do(ctx, l, api)
	})
}
