package open

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/reach"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// pingTime limits the duration of a Ping.
const pingTime = 5 * time.Second

// Ping checks that the servers of s answer and accept the credentials. It connects to each server,
// and asks broker and result store about a name that does not exist. If the event bus has its own
// server, it subscribes to it for a moment. It blocks for at most 5 seconds.
//
// Returns nil if all can be used, and otherwise the first error. The error is one sentence with a
// remedy. It wraps [broker.ErrUnavailable], [broker.ErrAccess] or the other cause.
//
// Ping is for programs that prefer to end instead of waiting for a server. A consumer that must
// start before its broker does not call it.
func (s *Swarm) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	for _, t := range s.targets.distinct() {
		if err := t.reach(ctx); err != nil {
			return fmt.Errorf("open: %w", err)
		}
	}
	for _, c := range []struct {
		part string
		at   *target
		ok   func(ctx context.Context) error
	}{
		{"the broker", s.targets.broker, s.pingBroker},
		{"the result store", s.targets.results, s.pingResults},
		{"the event bus", s.targets.events, s.pingEvents},
	} {
		err := c.ok(ctx)
		switch {
		case err == nil:
		case c.at == nil: // a Swarm that was not made by Open
			return fmt.Errorf("open: %s cannot be used: %w", c.part, err)
		default:
			return &unusableError{target: c.at, part: c.part, cause: err}
		}
	}
	return nil
}

// pingName is a queue and a task id that do not exist.
const pingName = "swarmiji-ping"

// pingBroker asks the broker for the size of a queue that does not exist. Returns nil if the broker
// answers, or has no such question ([broker.Inspector]). Otherwise it returns the error of the
// broker.
func (s *Swarm) pingBroker(ctx context.Context) error {
	i, ok := capability.As[broker.Inspector](s.Broker)
	if !ok {
		return nil
	}
	if _, err := i.Stats(ctx, pingName); !errors.Is(err, broker.ErrNoQueue) {
		return err
	}
	return nil
}

// pingResults asks the result store for a result that does not exist. Returns nil if the store
// answers or s has no result store, and otherwise the error of the store.
func (s *Swarm) pingResults(ctx context.Context) error {
	if s.Results == nil {
		return nil
	}
	if _, err := s.Results.Load(ctx, task.ID(pingName)); !errors.Is(err, resultstore.ErrNotFound) {
		return err
	}
	return nil
}

// pingEvents subscribes to the event bus and closes the subscription. Returns the error of either.
// It does nothing if s has no event bus, or if another part uses the same target.
func (s *Swarm) pingEvents(ctx context.Context) error {
	if s.Events == nil || s.targets.events == s.targets.broker || s.targets.events == s.targets.results {
		return nil
	}
	sub, err := s.Events.Subscribe(ctx, events.Filter{TaskID: pingName})
	if err != nil {
		return err
	}
	return sub.Close(ctx)
}

// reach connects to the servers of t at the same time, and returns nil when one accepts. It closes
// the connections at once. Otherwise, within four seconds, it returns an *unreachableError. It
// returns nil if t has no address, such as a file.
func (t *target) reach(ctx context.Context) error {
	addrs := t.reached()
	if len(addrs) == 0 {
		return nil
	}
	// shorter, so the only reported reason is not the caller's ctx
	ctx, cancel := context.WithTimeout(ctx, pingTime*4/5)
	defer cancel()
	errs := make(chan error, len(addrs))
	for _, addr := range addrs {
		go func() {
			var d net.Dialer
			conn, err := d.DialContext(ctx, "tcp", addr)
			if err == nil {
				err = conn.Close()
			}
			errs <- err
		}()
	}
	var last error
	for range addrs {
		if last = <-errs; last == nil {
			break
		}
	}
	if last == nil {
		return nil
	}
	return &unreachableError{target: t, cause: last}
}

// reached returns the addresses that Ping connects to: that of a server that another owner runs on
// the directory, or else those of the URL.
func (t *target) reached() []string {
	if t.running.Addr != "" {
		return []string{t.running.Addr}
	}
	return t.Addrs()
}

// String returns the kind and the addresses of the servers, without secrets.
func (t *target) String() string {
	if t.Scheme.Place == PlaceDatabase || len(t.reached()) == 0 {
		return t.redacted()
	}
	return t.Scheme.Server + " at " + t.at()
}

// redacted returns the URL without parts that may be secret: scheme and hosts, or scheme and
// directory or file.
func (t *target) redacted() string {
	if t.Scheme.Place == PlaceDatabase {
		return t.redactedDatabase()
	}
	return t.Scheme.Name + "://" + strings.Join(t.Addrs(), ",") + t.Directory
}

func (t *target) at() string { return strings.Join(t.reached(), " or ") }

// unreachableError reports that no server of a target accepts a connection.
type unreachableError struct {
	target *target
	cause  error
}

// Error names the server, its addresses, the reason, and how to start the server.
func (e *unreachableError) Error() string {
	t := e.target
	return fmt.Sprintf("no %s answers at %s (%s); %s", t.Scheme.Server, t.at(), reach.Reason(e.cause), t.Scheme.Start)
}

func (e *unreachableError) Unwrap() []error { return []error{broker.ErrUnavailable, e.cause} }

// unusableError reports that a server accepts connections and cannot be used.
type unusableError struct {
	target *target
	part   string
	cause  error
}

// Error returns the sentence of the connection if the cause has one, and otherwise the server, the
// part and the cause. The names of the operation and of the queue that Ping asks for would only
// confuse.
func (e *unusableError) Error() string {
	r, ok := errors.AsType[*reach.Error](e.cause)
	switch {
	case ok && len(e.target.Addrs()) == 0: // a file, which the connection does not name
		return fmt.Sprintf("open: %s: %s; %s", e.target, r.Found, r.Next)
	case ok:
		return "open: " + r.Error()
	}
	return fmt.Sprintf("open: %s answers, but cannot be used as %s: %v", e.target, e.part, e.cause)
}

func (e *unusableError) Unwrap() error { return e.cause }
