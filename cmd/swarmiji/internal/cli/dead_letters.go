package cli

import (
	"context"

	"github.com/swarmiji/swarmiji/deadletter"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/task"
)

// DeadLetters opens the broker and calls do with its dead letters. If fresh is true, a missing
// SQLite file is created. It has no time limit, because a filter may have to read all letters.
func (a *App) DeadLetters(ctx context.Context, queue string, fresh bool, do func(ctx context.Context, l *deadletter.Letters) error) error {
	if err := task.CheckName(queue); err != nil {
		return err
	}
	w, err := a.Wire()
	if err != nil {
		return err
	}
	return a.WithSwarm(ctx, fresh, open.Options{}, func(ctx context.Context, s *open.Swarm) error {
		l, err := deadletter.New(deadletter.Config{Broker: s.Broker, Results: s.Results, Wire: w})
		if err != nil {
			return err
		}
		return do(ctx, l)
	})
}
