package open

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/broker/natsbroker"
	"github.com/swarmiji/swarmiji/broker/natsbroker/embedded"
	"github.com/swarmiji/swarmiji/events/natsevents"
	"github.com/swarmiji/swarmiji/resultstore/natsresults"
	"github.com/swarmiji/swarmiji/schedule/natsschedule"
)

const (
	paramListen = "listen"
	paramSync   = "sync"
)

// syncAlways is the value of the parameter sync with which nothing is confirmed before it is on the disk.
const syncAlways = "always"

func embeddedSchemes() []scheme {
	return []scheme{{
		name: "nats-embedded", form: "nats-embedded:///directory", where: directory,
		server: "embedded NATS server", start: "its process has ended; open the directory again",
		params: []string{paramListen, paramSync, paramDeadTTL, paramDeadMax},
		check:  checkEmbedded, prepare: startEmbedded,
		broker: natsBroker, results: natsResults, events: natsEvents, schedule: natsSchedule,
	}}
}

func checkEmbedded(t *target) error {
	_, err := t.embeddedOptions()
	return err
}

func (t *target) embeddedOptions() (embedded.Options, error) {
	o := embedded.Options{Listen: t.params[paramListen], Logger: t.options.Logger}
	switch text := t.params[paramSync]; text {
	case "":
	case syncAlways:
		o.SyncAlways = true
	default:
		every, err := time.ParseDuration(text)
		if err != nil || every <= 0 {
			return o, errors.New("parameter sync must be always, or how often what was written is synced, such as 100ms")
		}
		o.SyncInterval = every
	}
	return o, nil
}

// joinTime is how long a directory may have a server that does not say where it listens: one that is just starting.
const joinTime = 500 * time.Millisecond

// startEmbedded starts a server on the directory, or joins the one that is there.
func startEmbedded(ctx context.Context, t *target) error {
	o, err := t.embeddedOptions()
	if err != nil {
		return err
	}
	deadline := time.Now().Add(joinTime)
	for {
		server, err := embedded.Open(ctx, t.directory, o)
		if err == nil {
			t.embedded, t.closer = server, server.Close
			return nil
		}
		if !errors.Is(err, embedded.ErrLocked) {
			return err
		}
		url, aerr := embedded.Address(t.directory)
		if aerr == nil {
			return t.takeServer(url)
		}
		if !time.Now().Before(deadline) {
			return fmt.Errorf("%s has a server that takes no connections; share the Swarm of the one that opened it, or open it there "+
				"with ?listen=127.0.0.1:0, and it is joined: %w", t, err)
		}
	}
}

// ownedBroker and the like close the server with the one adapter that was made.
type (
	ownedBroker struct {
		*natsbroker.Broker
		server *embedded.Server
	}
	ownedResults struct {
		*natsresults.Store
		server *embedded.Server
	}
	ownedEvents struct {
		*natsevents.Bus
		server *embedded.Server
	}
	ownedSchedule struct {
		*natsschedule.Store
		server *embedded.Server
	}
)

// Close closes the broker, then the server.
func (b ownedBroker) Close(ctx context.Context) error {
	return errors.Join(b.Broker.Close(ctx), b.server.Close(ctx))
}

// Close closes the store, then the server.
func (s ownedResults) Close(ctx context.Context) error {
	return errors.Join(s.Store.Close(ctx), s.server.Close(ctx))
}

// Close closes the bus, then the server.
func (b ownedEvents) Close(ctx context.Context) error {
	return errors.Join(b.Bus.Close(ctx), b.server.Close(ctx))
}

// Close closes the store, then the server.
func (s ownedSchedule) Close(ctx context.Context) error {
	return errors.Join(s.Store.Close(ctx), s.server.Close(ctx))
}
