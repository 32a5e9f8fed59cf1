package testserver

import (
	"context"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// LimitConsumers sets the maximum number of consumers of an existing stream.
func (n *NATS) LimitConsumers(ctx context.Context, stream string, most int) error {
	nc, err := nats.Connect(n.URL())
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	st, err := js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	cfg := st.CachedInfo().Config
	cfg.MaxConsumers = most
	_, err = js.UpdateStream(ctx, cfg)
	return err
}
