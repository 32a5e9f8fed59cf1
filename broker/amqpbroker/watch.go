package amqpbroker

import (
	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
)

// Watch implements [broker.Watcher], with the states of [amqpconn.WatchBoth].
func (b *Broker) Watch(fn func(s broker.ConnState, err error)) (stop func()) {
	return amqpconn.WatchBoth(b.pub, b.con, fn)
}
