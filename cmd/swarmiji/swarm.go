package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/open"
)

// with opens the broker's URL, calls do within --timeout, and closes everything.
func (a *app) with(ctx context.Context, o open.Options, do func(ctx context.Context, s *open.Swarm) error) error {
	ctx, cancel := a.limited(ctx)
	defer cancel()
	return a.withSwarm(ctx, o, do)
}

// options adds the common options to those of a command.
func (a *app) options(o open.Options) open.Options {
	o.Namespace, o.Results, o.Events, o.Name = a.namespace, a.results, a.events, "swarmiji"
	return o
}

// closeTime bounds the closing of a swarm.
const closeTime = 5 * time.Second

// withSwarm is with without a time limit.
func (a *app) withSwarm(ctx context.Context, o open.Options, do func(ctx context.Context, s *open.Swarm) error) (err error) {
	if a.broker == "" {
		return fmt.Errorf("%w: this command does not go over --api; give --broker or set SWARMIJI_BROKER", errUsage)
	}
	if o.Logger == nil {
		o.Logger = a.logger()
	}
	s, err := open.Open(ctx, a.broker, a.options(o))
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err) // no I/O was done: the URL is wrong
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer cancel()
		if cerr := s.Close(closing); err == nil {
			err = cerr
		}
	}()
	ping, cancel := a.limited(ctx)
	err = s.Ping(ping) // fails early, with one sentence and the remedy
	cancel()
	if err != nil {
		return err
	}
	return do(ctx, s)
}

// command sends a command to consumers and returns the replies. wait holds their number; with 0 it
// waits until no more can come. Returns errNobody if no consumer replies. It takes at most
// --timeout and the time of wait.
func (a *app) command(ctx context.Context, c control.Command, wait control.Wait) (replies []control.Reply, err error) {
	keys, err := a.keys()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout+wait.Timeout)
	defer cancel()
	err = a.withSwarm(ctx, open.Options{Control: true}, func(ctx context.Context, s *open.Swarm) error {
		replies, err = send(ctx, s, keys, c, wait)
		return err
	})
	return replies, err
}

// send is command on an open swarm.
func send(ctx context.Context, s *open.Swarm, keys *control.Keys, c control.Command, wait control.Wait) ([]control.Reply, error) {
	client, err := control.NewClient(control.ClientConfig{Bus: s.Control, Keys: keys})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	replies, err := client.Send(ctx, c, wait)
	switch {
	case errors.Is(err, control.ErrCommand):
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	case errors.Is(err, control.ErrMissing) && len(replies) > 0:
		return replies, err
	case err != nil && !errors.Is(err, control.ErrMissing):
		return replies, err
	case len(replies) > 0:
		return replies, nil
	case client.Refused() > 0:
		return nil, fmt.Errorf("%w (%d answers were not signed with the given keys)", errNobody, client.Refused())
	}
	return nil, errNobody
}
