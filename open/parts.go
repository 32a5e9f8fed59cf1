package open

import (
	"context"
	"errors"
	"fmt"
)

// targets are where the parts of a Swarm are. Parts at one place share its target.
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

// parseAll takes apart the URL of the broker, and those of result store and event bus that the options or it name.
func parseAll(ctx context.Context, url string, o Options) (targets, error) {
	if ctx.Err() != nil {
		return targets{}, fmt.Errorf("open: %w", context.Cause(ctx))
	}
	t, err := parse(url, o)
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
		if other != ts.events && other.params[paramRetain] != "" {
			return targets{}, errors.New("open: parameter retain belongs to the URL of the events")
		}
	}
	if ts.results != t && ts.results.text == ts.events.text {
		ts.events = ts.results
	}
	return ts, nil
}

// part takes apart the URL of another part than the broker, whose target is t. The parameter and the
// option name one; without them the part is at the broker's.
func (t *target) part(param, option string) (*target, error) {
	url := t.params[param]
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
	p, err := parse(url, o)
	switch {
	case err != nil:
		return nil, err
	case p.params[paramResults] != "" || p.params[paramEvents] != "":
		return nil, errors.New("parameters results and events belong to the broker's URL")
	case p.namespace == "":
		p.namespace = t.namespace
	case t.options.Namespace != "" && p.namespace != t.options.Namespace:
		return nil, fmt.Errorf("its namespace %q differs from the one of the options, %q; give one of them", p.namespace, t.options.Namespace)
	}
	return p, nil
}
