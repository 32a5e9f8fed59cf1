package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/open"
)

// With opens the broker's URL, calls do within --timeout, and closes everything. If fresh is true,
// missing SQLite files are created.
func (a *App) With(ctx context.Context, fresh bool, o open.Options, do func(ctx context.Context, s *open.Swarm) error) error {
	ctx, cancel := a.Limited(ctx)
	defer cancel()
	return a.WithSwarm(ctx, fresh, o, do)
}

// options adds the common options to those of a command.
func (a *App) options(o open.Options) open.Options {
	o.Namespace, o.Results, o.Events, o.Name = a.Namespace, a.Results, a.Events, "swarmiji"
	return o
}

// CloseTime bounds the closing of a swarm.
const CloseTime = 5 * time.Second

// CloseAfter calls closer, for at most CloseTime and also after the end of ctx. If *err is nil, it
// becomes the error of closer. Defer it.
func CloseAfter(ctx context.Context, closer func(context.Context) error, err *error) {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), CloseTime)
	defer cancel()
	if cerr := closer(closing); *err == nil {
		*err = cerr
	}
}

// brokerFile is the remedy for a missing file of the broker.
const brokerFile = "--broker, SWARMIJI_BROKER or the context names the database of the consumers; correct it, or create the tables with swarmiji migrate --up"

// WithSwarm is With without a time limit.
func (a *App) WithSwarm(ctx context.Context, fresh bool, o open.Options, do func(ctx context.Context, s *open.Swarm) error) (err error) {
	if a.Broker == "" {
		return fmt.Errorf("%w: this command does not go over --api; give --broker or set SWARMIJI_BROKER", ErrUsage)
	}
	if !fresh {
		if err := Existing(brokerFile, a.Broker, a.Results, a.Events); err != nil {
			return err
		}
	}
	if o.Logger == nil {
		o.Logger = a.logger()
	}
	s, err := open.Open(ctx, a.Broker, a.options(o))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err) // no I/O was done: the URL is wrong
	}
	defer CloseAfter(ctx, s.Close, &err)
	ping, cancel := a.Limited(ctx)
	err = s.Ping(ping) // fails early, with one sentence and the remedy
	cancel()
	if err != nil {
		return err
	}
	return do(ctx, s)
}

// command sends a command to consumers and returns the replies. wait holds their number; with 0 it
// waits until no more can come. Returns ErrNobody if no consumer replies. It takes at most
// --timeout and the time of wait.
func (a *App) command(ctx context.Context, c control.Command, wait control.Wait) (replies []control.Reply, err error) {
	keys, err := a.Keys()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.Timeout+wait.Timeout)
	defer cancel()
	err = a.WithSwarm(ctx, false, open.Options{Control: true}, func(ctx context.Context, s *open.Swarm) error {
		replies, err = send(ctx, s, keys, c, wait)
		return err
	})
	return replies, err
}

// send is command on an open swarm.
func send(ctx context.Context, s *open.Swarm, keys *control.Keys, c control.Command, wait control.Wait) ([]control.Reply, error) {
	client, err := control.NewClient(control.ClientConfig{Bus: s.Control, Replies: s.Replies, Keys: keys})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	replies, err := client.Send(ctx, c, wait)
	switch {
	case errors.Is(err, control.ErrCommand):
		return nil, fmt.Errorf("%w: %w", ErrUsage, err)
	case errors.Is(err, control.ErrMissing) && len(replies) > 0:
		return replies, err
	case err != nil && !errors.Is(err, control.ErrMissing):
		return replies, err
	case len(replies) > 0:
		return replies, nil
	case client.Refused() > 0:
		return nil, fmt.Errorf("%w (%d answers were not signed with the given keys)", ErrNobody, client.Refused())
	}
	return nil, ErrNobody
}
