package open

import (
	"context"
	"errors"

	"github.com/swarmiji/swarmiji/settings"
)

// Settings returns the store of settings of a URL, see [Swarm].Settings. It connects at first use.
// Close it after use. Returns an error if the URL is invalid, or no server of it keeps settings.
func Settings(ctx context.Context, url string, o Options) (settings.Store, error) {
	return registered.Settings(ctx, url, o)
}

// Settings constructs the store of settings with the drivers of r, as the function [Settings] does.
func (r *Registry) Settings(ctx context.Context, url string, o Options) (settings.Store, error) {
	ts, err := r.parseAll(ctx, url, o)
	if err != nil {
		return nil, err
	}
	t := ts.settings()
	if t == nil {
		return nil, errors.New("open: no server of this URL keeps settings; name one for the events, such as events=redis://host")
	}
	return lone(ctx, t, (*target).settings, ownSettings)
}

// settings returns the target whose server keeps the settings: the broker's if it has a store, else
// that of the events, which may only retain them. Returns nil if none can.
func (ts *targets) settings() *target {
	switch {
	case ts.broker.parts.Settings != nil:
		return ts.broker
	case ts.events.parts.Settings != nil, ts.events.parts.EventSettings != nil:
		return ts.events
	}
	return nil
}

// settings constructs the store of settings of t. On a server without one, they are events on a bus
// of its own.
func (t *target) settings() (settings.Store, error) {
	if t.parts.Settings != nil {
		return t.parts.Settings(t.namespace)
	}
	return t.parts.EventSettings(besideNamespace(t.namespace))
}

// besideNamespace returns the namespace of the bus for settings.
func besideNamespace(namespace string) string { return beside(namespace, "_settings") }

// ownedSettings is a store of settings with resources that were started for it.
type ownedSettings struct {
	settings.Store
	stop stopper
}

func ownSettings(s settings.Store, stop stopper) settings.Store { return &ownedSettings{s, stop} }

// Close closes the store, then stops the resources that were started for it.
func (s *ownedSettings) Close(ctx context.Context) error {
	return errors.Join(s.Store.Close(ctx), s.stop(ctx))
}

// Unwrap returns the wrapped store, for capability.As.
func (s *ownedSettings) Unwrap() any { return s.Store }
