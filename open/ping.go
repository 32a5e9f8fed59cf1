package open

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// pingTime bounds a Ping.
const pingTime = 5 * time.Second

// Ping tells whether the servers of s answer and let us in, within 5 seconds. The error is one sentence with the remedy and
// wraps [broker.ErrUnavailable], [broker.ErrAccess] or what else was wrong. It is for programs that had rather end than
// wait; a consumer that is to start before its broker does without.
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
		case c.at == nil: // a Swarm that Open did not make
			return fmt.Errorf("open: %s cannot be used: %w", c.part, err)
		default:
			return fmt.Errorf("open: %s answers, but cannot be used: %w", c.at, err)
		}
	}
	return nil
}

// pingName is a queue and a task that nobody has.
const pingName = "swarmiji-ping"

// pingBroker asks for the size of a queue.
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

// pingResults asks for a result.
func (s *Swarm) pingResults(ctx context.Context) error {
	if s.Results == nil {
		return nil
	}
	if _, err := s.Results.Load(ctx, task.ID(pingName)); !errors.Is(err, resultstore.ErrNotFound) {
		return err
	}
	return nil
}

// pingEvents listens for a moment, unless another part is at the same place.
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

// reach connects to any of the servers.
func (t *target) reach(ctx context.Context) error {
	if len(t.servers) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pingTime*4/5) // so that the one reason is never the caller's own ctx
	defer cancel()
	errs := make(chan error, len(t.servers))
	for _, addr := range t.addrs() {
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
	for range t.servers {
		if last = <-errs; last == nil {
			break
		}
	}
	if last == nil {
		return nil
	}
	return &unreachableError{target: t, cause: last}
}

// String names the servers: what they are, and where.
func (t *target) String() string {
	if t.scheme.where == database {
		return redactSQL(t.database)
	}
	if len(t.servers) == 0 {
		return t.scheme.name + "://" + t.directory
	}
	return t.scheme.server + " at " + t.where()
}

func (t *target) where() string { return strings.Join(t.addrs(), " or ") }

// unreachableError is that no server of a target answers.
type unreachableError struct {
	target *target
	cause  error
}

func (e *unreachableError) Error() string {
	t := e.target
	return fmt.Sprintf("no %s answers at %s (%s); %s", t.scheme.server, t.where(), reason(e.cause), t.scheme.start)
}

func (e *unreachableError) Unwrap() []error { return []error{broker.ErrUnavailable, e.cause} }

// reason is why a host could not be reached, without what was said already.
func reason(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return "unknown host: " + dns.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	return err.Error()
}
