package intake

import (
	"context"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// statsTimeout limits one read of the length of a queue.
const statsTimeout = 5 * time.Second

// Lengths reads the lengths of queues at intervals.
type Lengths struct {
	Broker broker.Inspector
	Queues func() []string // their names
	Every  time.Duration
	// Read is called with the counters of a queue. err says that they cannot be read, also at the
	// end: it is then the error of the context.
	Read func(queue string, s broker.Stats, err error)
}

// Start starts a goroutine that reads the lengths of the queues now and each time that Every has
// passed, and calls Read for each queue. At the end it calls Read for each queue with the error of
// the context. stop ends the goroutine and waits for it. The end of ctx ends it, too.
func (l *Lengths) Start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	reading.Go(func() {
		tick := time.NewTicker(l.Every)
		defer tick.Stop()
		for ctx.Err() == nil {
			l.read(ctx)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
		for _, name := range l.Queues() {
			l.Read(name, broker.Stats{}, ctx.Err())
		}
	})
	return func() {
		cancel()
		reading.Wait()
	}
}

// read reads the lengths of all queues, each within statsTimeout, and passes them to l.Read. It
// returns early if ctx ends.
func (l *Lengths) read(ctx context.Context) {
	for _, name := range l.Queues() {
		reading, cancel := context.WithTimeout(ctx, statsTimeout)
		s, err := l.Broker.Stats(reading, name)
		cancel()
		if ctx.Err() != nil {
			return
		}
		l.Read(name, s, err)
	}
}
