package open

import (
	"errors"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/natsbroker"
	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/natsevents"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/natsresults"
)

const (
	paramReplicas = "replicas"
	paramCreds    = "creds"
	paramNKey     = "nkey"
)

// maxCopies is the most that JetStream keeps of a stream.
const maxCopies = 5

func natsSchemes() []scheme {
	plain := scheme{ //nolint:gosec // nobody's password
		name: "nats", form: "nats://user:password@host:4222", port: "4222", where: servers,
		server: "NATS server", start: "start one (nats-server -js), or use nats-embedded:///directory or mem:// to try without",
		params: []string{paramReplicas, paramCreds, paramNKey, paramDeadTTL, paramDeadMax},
		check:  checkNATS, broker: natsBroker, results: natsResults, events: natsEvents, schedule: natsSchedule,
	}
	secure := plain
	secure.name, secure.form, secure.secure = "tls", "tls://user:password@host:4222", true
	return []scheme{plain, secure}
}

func checkNATS(t *target) error {
	if t.params[paramCreds] != "" && t.params[paramNKey] != "" {
		return errors.New("parameters creds and nkey are given; use one of them")
	}
	_, err := t.replicas()
	return err
}

// replicas returns the parameter, 0 where it is not given.
func (t *target) replicas() (int, error) { return t.number(paramReplicas, 0, 1, maxCopies) }

// nats says where NATS is.
func (t *target) nats() natsconnect.Config {
	c := natsconnect.Config{
		URLs: t.urls(), TLS: t.tls, Credentials: t.params[paramCreds], NKeySeed: t.params[paramNKey], Name: t.options.Name,
	}
	if t.embedded != nil {
		c.InProcess = t.embedded
	}
	return c
}

// owned reports whether the adapter ends a server in this process with itself.
func (t *target) owned() bool { return t.embedded != nil && t.alone }

func natsBroker(t *target) (broker.Broker, error) {
	replicas, err := t.replicas()
	if err != nil {
		return nil, err
	}
	ttl, most, err := t.deadBounds()
	if err != nil {
		return nil, err
	}
	c := natsbroker.Config{
		Connect: t.nats(), Namespace: t.namespace, Replicas: replicas, Logger: t.options.Logger,
		DeadTTL: ttl, DeadMax: most,
	}
	b, err := natsbroker.New(c)
	if err != nil || !t.owned() {
		return b, err
	}
	return ownedBroker{b, t.embedded}, nil
}

func natsResults(t *target) (resultstore.ResultStore, error) {
	replicas, err := t.replicas()
	if err != nil {
		return nil, err
	}
	c := natsresults.Config{
		Connect: t.nats(), Namespace: t.namespace, Replicas: replicas, Logger: t.options.Logger,
	}
	s, err := natsresults.New(c)
	if err != nil || !t.owned() {
		return s, err
	}
	return ownedResults{s, t.embedded}, nil
}

func natsEvents(t *target) (events.EventBus, error) {
	c := natsevents.Config{
		Connect: t.nats(), Namespace: t.namespace, Retain: t.retain, Logger: t.options.Logger,
	}
	b, err := natsevents.New(c)
	if err != nil || !t.owned() {
		return b, err
	}
	return ownedEvents{b, t.embedded}, nil
}
