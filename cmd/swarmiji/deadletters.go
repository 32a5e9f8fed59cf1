package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/deadletter"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/task"
)

// deadLetters opens the broker and calls do with its dead letters. It has no time limit, because a
// filter may have to read all letters.
func (a *app) deadLetters(cmd *cobra.Command, queue string, do func(ctx context.Context, l *deadletter.Letters) error) error {
	return a.deadChange(cmd, queue, func(ctx context.Context, l *deadletter.Letters, _ inspect.API) error { return do(ctx, l) })
}

// deadChange is deadLetters with the inspection API, for changes.
func (a *app) deadChange(cmd *cobra.Command, queue string, do func(ctx context.Context, l *deadletter.Letters, api inspect.API) error) error {
	if err := task.CheckName(queue); err != nil {
		return err
	}
	w, err := a.wire()
	if err != nil {
		return err
	}
	return a.withSwarm(cmd.Context(), open.Options{Control: true}, func(ctx context.Context, s *open.Swarm) error {
		l, err := deadletter.New(deadletter.Config{Broker: s.Broker, Results: s.Results, Wire: w})
		if err != nil {
			return err
		}
		api, err := open.Inspector(s, inspect.Config{Wire: w, Actor: a.actor(), Logger: a.logger()})
		if err != nil {
			return err
		}
		return do(ctx, l, api)
	})
}
