// Package health answers the questions of an orchestrator such as Kubernetes about a process:
// whether it works, and whether it is ready. [Handler] serves both over HTTP.
//
//	mux.Handle("/health/", http.StripPrefix("/health", health.Handler(health.Config{
//		Consumers: []health.Consumer{c}, Broker: b,
//	})))
//
// A process is live while its handlers return. It is ready while its consumers consume and its
// connection to the broker works. A graceful stop ends the readiness first, before the consumer
// stops to fetch. A paused queue changes neither.
package health

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer"
)

// Consumer is the part of a consumer that this package reads. A [*consumer.Consumer] has it.
type Consumer interface {
	Stats() consumer.Stats
}

// Config lists the parts that are checked. Without any the process is always live and ready.
type Config struct {
	// Consumers are the consumers of the process. nil: no consumer, as in one that submits tasks.
	Consumers []Consumer
	// Broker is the broker whose connection is checked, if it is a [broker.Watcher]. nil: no check.
	Broker broker.Broker
	// MaxStuck is the number of stuck handlers of a queue from which the process is not live: handlers
	// that run beyond their hard time limit. Only a restart ends them. Default: the number from which
	// the queue fetches no more tasks, see [consumer.MaxStuck].
	MaxStuck int
}

// The reasons why a process is not live or not ready.
var (
	// ErrStuck: too many handlers of a queue run beyond their hard time limit.
	ErrStuck = errors.New("health: handlers are stuck")
	// ErrNotConsuming: a consumer has not begun to consume, or has begun to stop.
	ErrNotConsuming = errors.New("health: not consuming")
	// ErrDisconnected: there is no connection to the broker.
	ErrDisconnected = errors.New("health: the broker is not connected")
	// ErrBlocked: the broker accepts no messages.
	ErrBlocked = errors.New("health: the broker is blocked")
)

// Live returns nil if the process works, and [ErrStuck] if only a restart helps. It does no I/O.
// Safe for concurrent use.
func (c Config) Live() error {
	var errs []error
	for _, one := range c.Consumers {
		s := one.Stats()
		for i := range s.Queues {
			q := &s.Queues[i]
			most := c.MaxStuck
			if most <= 0 {
				most = max(consumer.MaxStuck, 2*q.Workers)
			}
			if q.Stuck >= most {
				errs = append(errs, fmt.Errorf("%w: %d of queue %s, the limit is %d", ErrStuck, q.Stuck, q.Name, most))
			}
		}
	}
	return errors.Join(errs...)
}

// Ready returns nil if the process can work, or all reasons why it cannot: those of [Config.Live],
// [ErrNotConsuming], [ErrDisconnected] and [ErrBlocked]. It waits until the broker has reported the
// state of its connection, up to 3 s or the end of ctx. A SQL database is asked for that. Safe for
// concurrent use.
func (c Config) Ready(ctx context.Context) error {
	errs := []error{c.Live(), c.connected(ctx)}
	for _, one := range c.Consumers {
		s := one.Stats()
		if !s.Running {
			errs = append(errs, fmt.Errorf("%w: consumer %s", ErrNotConsuming, s.NodeID))
			continue
		}
		for i := range s.Queues {
			if s.Queues[i].Workers == 0 {
				errs = append(errs, fmt.Errorf("%w: queue %s, for which the broker allowed no consumer", ErrNotConsuming, s.Queues[i].Name))
			}
		}
	}
	return errors.Join(errs...)
}

// reportTime limits the wait for the report of a connection's state. An adapter that asks its
// server once a second may report only at the next time.
const reportTime = 3 * time.Second

// connected returns ErrDisconnected or ErrBlocked if the broker reports such a state.
func (c Config) connected(ctx context.Context) error {
	if c.Broker == nil {
		return nil
	}
	w, ok := capability.As[broker.Watcher](c.Broker)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, reportTime)
	defer cancel()
	first := make(chan error, 1)
	stop := w.Watch(func(s broker.ConnState, cause error) {
		var err error
		switch {
		case s == broker.Connected:
		case s == broker.Blocked:
			err = because(ErrBlocked, cause)
		default:
			err = because(ErrDisconnected, cause)
		}
		select {
		case first <- err:
		default: // a later state
		}
	})
	defer stop()
	select {
	case err := <-first:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: it does not report its state", ErrDisconnected)
	}
}

// because returns err with its cause, if that is known.
func because(err, cause error) error {
	if cause == nil {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// Handler serves /live and /ready. The status is 200 with the body "ok", or 503 with the reasons,
// one per line. They hold no passwords, but names of hosts and queues: serve them to the
// orchestrator only. Other paths are 404, other methods than GET and HEAD 405. Safe for concurrent
// use.
func Handler(c Config) http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, err error) {
		h := w.Header()
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("Cache-Control", "no-store")
		text := "ok"
		if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			text = err.Error()
		}
		_, _ = fmt.Fprintln(w, text) // the client may be gone
	}
	mux.HandleFunc("GET /live", func(w http.ResponseWriter, _ *http.Request) { answer(w, c.Live()) })
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, r *http.Request) { answer(w, c.Ready(r.Context())) })
	return mux
}
