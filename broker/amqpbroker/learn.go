package amqpbroker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/internal/naming"
)

const (
	// learnWait limits the time for which a publish waits until the levels of its queue are known.
	learnWait = 2 * time.Second
	// learnPause is the pause before another attempt after one that has failed.
	learnPause = 10 * time.Second
)

// learning describes whether this Broker knows the levels of a queue to which it publishes.
type learning struct {
	known atomic.Bool
	mu    sync.Mutex // held while the server is asked
	again time.Time  // no question before that
}

// learnLevels reads the levels and the fairness of a queue into b.queues, if m has a fairness key
// or a priority. So messages reach their lane and their level also from a process that has not
// declared the queue. It does nothing for other messages, and after the first answer.
//
// It waits for the server, at most learnWait, and opens the connection for consumers. If the levels
// cannot be read, it logs that once, and asks again with a message after learnPause.
func (b *Broker) learnLevels(ctx context.Context, queue string, m *broker.Message) {
	if m.Key == "" && m.Priority == defaultPriority || !naming.ValidName(queue) {
		return
	}
	v, ok := b.learned.Load(queue)
	if !ok {
		v, _ = b.learned.LoadOrStore(queue, new(learning))
	}
	l := v.(*learning) //nolint:forcetypeassert // nothing else is in it
	if l.known.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known.Load() || time.Now().Before(l.again) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, learnWait)
	defer cancel()
	// The levels are stored before the AMQP queue is created. So a queue that exists and has no levels
	// never gets any.
	_, err := b.countReady(ctx, []string{b.names.work(queue)})
	if err == nil {
		err = b.loadLevels(ctx, queue)
	}
	switch {
	case err == nil, errors.Is(err, amqpconn.ErrAccess):
		l.known.Store(true)
	default:
		l.again = time.Now().Add(learnPause)
	}
	if err == nil || amqpconn.IsNotFound(err) {
		return
	}
	if _, logged := b.warned.LoadOrStore("learn "+queue, struct{}{}); !logged {
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "amqp: the levels and the fairness of a queue cannot be read; if it has any, its messages go into the lane of light keys in the middle level",
			slog.String("queue", queue), slog.String("error", err.Error()))
	}
}

// noteLearned records that this process has declared the queue, so that learnLevels does nothing.
func (b *Broker) noteLearned(queue string) {
	l := new(learning)
	l.known.Store(true)
	b.learned.Store(queue, l)
}
