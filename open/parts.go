package open

import (
	"context"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/resultstore"
)

// targets holds the targets, which are parsed URLs, of the parts of a Swarm. Parts with the same
// URL share a target.
type targets struct {
	broker, results, events *target
}

// distinct returns each target once, the broker's first.
func (ts *targets) distinct() []*target {
	var all []*target
	for _, t := range []*target{ts.broker, ts.results, ts.events} {
		if t != nil && (len(all) == 0 || t != all[0]) && (len(all) < 2 || t != all[1]) {
			all = append(all, t)
		}
	}
	return all
}

// parseAll parses the URL of the broker, and the URLs of the result store and the event bus in its
// parameters or in the options. Parts with the same URL share a target. Without an own URL a part
// uses the broker's.
//
// It starts nothing. Returns the cause of ctx if ctx has ended, and an error if a URL is invalid or
// the parameter retain belongs to another URL.
func (r *Registry) parseAll(ctx context.Context, url string, o Options) (targets, error) {
	if ctx.Err() != nil {
		return targets{}, fmt.Errorf("open: %w", context.Cause(ctx))
	}
	t, err := r.parse(url, o)
	if err != nil {
		return targets{}, fmt.Errorf("open: %w", err)
	}
	ts := targets{broker: t}
	if ts.results, err = t.part(paramResults, o.Results); err != nil {
		return targets{}, fmt.Errorf("open: URL of the results: %w", err)
	}
	if ts.events, err = t.part(paramEvents, o.Events); err != nil {
		return targets{}, fmt.Errorf("open: URL of the events: %w", err)
	}
	for _, other := range ts.distinct() {
		if other != ts.events && other.Params[paramRetain] != "" {
			return targets{}, errors.New("open: parameter retain belongs to the URL of the events")
		}
	}
	if ts.results != t && ts.results.text == ts.events.text {
		ts.events = ts.results
	}
	return ts, nil
}

// parseOne parses the URL of a single store for this purpose; the name for the server's list of
// connections is "swarmiji". Returns the cause of ctx if ctx has ended.
func (r *Registry) parseOne(ctx context.Context, url string, p purpose, o Options) (*target, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	o.Name = "swarmiji"
	return r.parseFor(url, p, o)
}

// part parses the URL of the result store or the event bus, which comes from the broker's parameter
// param or from the option. t is the broker's target. Without a URL, or with the broker's own, part
// returns t. A part without its own namespace gets that of t.
//
// Returns an error if both name a URL, or if the URL is invalid or has parameters of the broker. A
// namespace that differs from the options is an error too.
func (t *target) part(param, option string) (*target, error) {
	url := t.Params[param]
	switch {
	case url != "" && option != "":
		return nil, fmt.Errorf("it is given in the options and as parameter %s; give one of them", param)
	case url == "":
		url = option
	}
	if url == "" || url == t.text {
		return t, nil
	}
	o := t.options
	o.Namespace = ""
	p, err := t.registry.parse(url, o)
	switch {
	case err != nil:
		return nil, err
	case p.Params[paramResults] != "" || p.Params[paramEvents] != "":
		return nil, errors.New("parameters results and events belong to the broker's URL")
	case p.namespace == "":
		p.namespace = t.namespace
	case t.options.Namespace != "" && p.namespace != t.options.Namespace:
		return nil, fmt.Errorf("its namespace %q differs from the one of the options, %q; give one of them", p.namespace, t.options.Namespace)
	}
	return p, nil
}

// broker constructs the broker, without connecting. Returns an error if the scheme has no broker;
// the error names schemes that have one.
func (t *target) broker() (broker.Broker, error) {
	if t.parts.Broker == nil {
		return nil, fmt.Errorf("%s:// carries no tasks; mem://, amqp://, nats://, nats-embedded://, redis://, postgres:// and sqlite:// do; "+
			"it may keep results, as the parameter results of such a URL", t.Scheme.Name)
	}
	return t.parts.Broker(t.namespace)
}

// results constructs the result store, without connecting. Returns an error if the scheme has no
// result store.
func (t *target) results() (resultstore.ResultStore, error) {
	if t.parts.Results == nil {
		return nil, fmt.Errorf("%s:// keeps no results", t.Scheme.Name)
	}
	return t.parts.Results(t.namespace)
}

// busless reports whether the Swarm has no event bus: no URL names a bus, no option retains events,
// and the driver of the broker carries no events.
func (ts *targets) busless() bool {
	return ts.events == ts.broker && ts.events.parts.Events == nil && ts.events.retain.Age == 0
}

// events constructs an event bus with t's namespace and retention, without connecting. Each call
// returns another bus. Returns an error if the scheme has no event bus.
func (t *target) events() (events.EventBus, error) {
	if t.parts.Events == nil {
		return nil, fmt.Errorf("%s:// carries no events; mem://, amqp://, nats://, nats-embedded://, redis://, postgres:// and sqlite:// do, "+
			"as the parameter events of the URL", t.Scheme.Name)
	}
	return t.parts.Events(t.namespace, t.retain)
}

// limiter constructs the limiter. Call it only if t.parts.Limiter is not nil.
func (t *target) limiter() (limit.Limiter, error) { return t.parts.Limiter(t.namespace) }

// schedule constructs the store of the schedule with this name; "" is the store's default name.
// Returns an error if the scheme has no schedule store.
func (t *target) schedule(name string) (ScheduleStore, error) {
	if t.parts.Schedule == nil {
		return nil, fmt.Errorf("%s:// keeps no schedules; mem://, redis://, nats://, nats-embedded://, sqlite:// and postgres:// do", t.Scheme.Name)
	}
	return t.parts.Schedule(name)
}

// jobs constructs the job store. Returns an error if the scheme has no job store.
func (t *target) jobs() (jobs.Store, error) {
	if t.parts.Jobs == nil {
		return nil, fmt.Errorf("%s:// keeps no jobs; mem://, sqlite:// and postgres:// do", t.Scheme.Name)
	}
	return t.parts.Jobs()
}

// outbox constructs the outbox with t's namespace. Returns an error if the scheme has no outbox.
func (t *target) outbox() (OutboxStore, error) {
	d, ok := t.databaseDriver()
	if !ok {
		return nil, fmt.Errorf("%s:// has no outbox, which is in the database of your transactions; sqlite:// and postgres:// do", t.Scheme.Name)
	}
	return d.Outbox(t.parts.Database, t.namespace)
}

// databaseDriver returns the driver of t, if it has stores in a database.
func (t *target) databaseDriver() (DatabaseDriver, bool) {
	d, ok := capability.As[DatabaseDriver](t.driver)
	return d, ok && t.parts.Database != nil
}
