// Package nats registers the driver of NATS servers with package open, for the schemes nats:// and
// tls://. A program imports it for this effect:
//
//	import _ "github.com/swarmiji/swarmiji/open/nats"
package nats

import (
	"errors"

	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/open/internal/natsparts"
	"github.com/swarmiji/swarmiji/open/internal/params"
)

func init() { open.Register(Driver{}) }

// Driver constructs the adapters of NATS. The zero value is usable. Safe for concurrent use.
type Driver struct{}

const (
	paramReplicas = "replicas"
	paramCreds    = "creds"
	paramNKey     = "nkey"
)

// maxCopies is the largest number of replicas of a stream in JetStream.
const maxCopies = 5

// Schemes implements [open.Driver]. It returns nats and tls.
func (Driver) Schemes() []open.Scheme {
	plain := open.Scheme{ //nolint:gosec // an example, not a password
		Name: "nats", Form: "nats://user:password@host:4222", Port: "4222", Place: open.PlaceHosts, Secured: "tls",
		Server: "NATS server", Start: "start one (nats-server -js), or use nats-embedded:///directory or mem:// to try without",
		Params: []string{paramReplicas, paramCreds, paramNKey, params.DeadTTL, params.DeadMax},
	}
	secure := plain
	secure.Name, secure.Form, secure.Secure, secure.Secured = "tls", "tls://user:password@host:4222", true, ""
	return []open.Scheme{plain, secure}
}

// Parts implements [open.Driver]. It returns constructors for a broker, a result store, an event
// bus and a schedule store. It reads certificate files. Returns an error if a parameter is invalid,
// or if both creds and nkey are given.
func (Driver) Parts(t *open.Target) (open.Parts, error) {
	if t.Params[paramCreds] != "" && t.Params[paramNKey] != "" {
		return open.Parts{}, errors.New("parameters creds and nkey are given; use one of them")
	}
	replicas, err := params.Number(t, paramReplicas, 1, maxCopies)
	if err != nil {
		return open.Parts{}, err
	}
	at := natsconnect.Config{
		URLs: t.URLs(), Credentials: t.Params[paramCreds], NKeySeed: t.Params[paramNKey], Name: t.Name,
	}
	if t.Scheme.Secure {
		if at.TLS, err = params.TLS(t); err != nil {
			return open.Parts{}, err
		}
	}
	return natsparts.New(t, replicas, func() natsconnect.Config { return at })
}
