// Package natsembedded registers the driver of embedded NATS servers with package open, for the
// scheme nats-embedded:///directory. The server runs in this process. A program imports the package
// for this effect:
//
//	import _ "github.com/swarmiji/swarmiji/open/natsembedded"
package natsembedded

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/swarmiji/swarmiji/broker/natsbroker/embedded"
	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/open/internal/natsparts"
	"github.com/swarmiji/swarmiji/open/internal/params"
)

func init() { open.Register(Driver{}) }

// Driver starts a NATS server in this process and constructs its adapters. The zero value is
// usable. Safe for concurrent use.
type Driver struct{}

const (
	paramListen = "listen"
	paramSync   = "sync"
)

// syncAlways is the value of the parameter sync that syncs each write to the disk before it is
// confirmed.
const syncAlways = "always"

// Schemes implements [open.Driver]. It returns nats-embedded.
func (Driver) Schemes() []open.Scheme {
	return []open.Scheme{{
		Name: "nats-embedded", Form: "nats-embedded:///directory", Place: open.PlaceDirectory,
		Server: "embedded NATS server", Start: "its process has ended; open the directory again",
		Params: []string{paramListen, paramSync, params.DeadTTL, params.DeadMax},
	}}
}

// Parts implements [open.Driver]. It returns constructors for a broker, a result store, an event
// bus and a schedule store. Its Start starts a server on the directory, which Running.Close stops.
// If a server uses the directory already, Start finds its address and does not stop it. Returns an
// error if a parameter is invalid.
func (Driver) Parts(t *open.Target) (open.Parts, error) {
	o, err := options(t)
	if err != nil {
		return open.Parts{}, err
	}
	at := natsconnect.Config{Name: t.Name}
	parts, err := natsparts.New(t, 0, func() natsconnect.Config { return at })
	parts.Start = func(ctx context.Context) (open.Running, error) {
		server, other, err := start(ctx, t.Directory, o)
		switch {
		case err != nil:
			return open.Running{}, err
		case server == nil:
			at.URLs = []string{other}
			u, err := url.Parse(other)
			if err != nil {
				return open.Running{}, errors.New("the address of the server on the directory cannot be parsed")
			}
			return open.Running{Addr: u.Host}, nil
		}
		at.InProcess = server
		return open.Running{Close: server.Close}, nil
	}
	return parts, err
}

// options returns the settings of the server from the parameters listen and sync of t. Returns an
// error if sync is neither "always" nor a duration above 0.
func options(t *open.Target) (embedded.Options, error) {
	o := embedded.Options{Listen: t.Params[paramListen], Logger: t.Logger}
	switch text := t.Params[paramSync]; text {
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

// joinTime is the wait for the address of a server that uses the directory already. The server may
// still be starting.
const joinTime = 500 * time.Millisecond

// start starts a server on the directory and returns it. If another owner or process has a server
// there, start returns a nil server and the URL of that server. It waits up to joinTime for this
// URL. Returns an error if that server takes no connections, or if the server cannot be started.
func start(ctx context.Context, directory string, o embedded.Options) (*embedded.Server, string, error) {
	deadline := time.Now().Add(joinTime)
	for {
		server, err := embedded.Open(ctx, directory, o)
		if !errors.Is(err, embedded.ErrLocked) {
			return server, "", err
		}
		other, aerr := embedded.Address(directory)
		if aerr == nil {
			return nil, other, nil
		}
		if !time.Now().Before(deadline) {
			return nil, "", fmt.Errorf("nats-embedded://%s has a server that takes no connections; share the Swarm of the one that opened it, "+
				"or open it there with ?listen=127.0.0.1:0, and it is joined: %w", directory, err)
		}
	}
}
