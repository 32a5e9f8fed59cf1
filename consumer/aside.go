package consumer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer/internal/intake"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/settings"
)

// asideRetry is the delay of a paused task whose message cannot be moved now.
const asideRetry = 5 * time.Second

// moveIfPaused reports whether tasks of this name are paused, by Config.Settings. If so, another
// goroutine moves the message to the queue for messages of this paused task.
func (r *run) moveIfPaused() bool {
	s := r.queue.c.steer
	if s == nil || !s.TaskPaused(r.request.Name) {
		return false
	}
	r.queue.settling.Go(r.moveAside)
	return true
}

// moveAside moves the message of a paused task to a queue for such messages. Before that it
// declares the queue and stores a setting that names it. No attempt is counted. If one of these two
// steps fails, the message is delivered again after asideRetry.
func (r *run) moveAside() {
	q, name := r.queue, r.request.Name
	to := settings.AsideQueue(q.name, name)
	ctx, cancel := context.WithTimeout(q.c.settle, loadTimeout)
	err := errors.Join(broker.Declare(ctx, q.c.cfg.Broker, broker.Queue{Name: to, Levels: q.cfg.Levels, Fair: q.cfg.Fair}), q.c.steer.Moving(ctx, q.name, name))
	cancel()
	if err != nil {
		r.log(slog.LevelWarn, "the message of a paused task cannot be moved now; it is delayed", slog.Any("error", err))
		r.replace(q.source, r.next(), time.Now().Add(asideRetry), "delay of a paused task")
		return
	}
	if r.replace(to, r.next(), time.Time{}, "move of a paused task") {
		q.c.steer.Moved(q.name, name)
	}
}

// asideTasks handles a queue of moved messages: it moves them back to the queue q.name.
type asideTasks struct{ queueTasks }

// Handle moves one message back, on another goroutine. If the task is paused again, it gives the
// message back. A message that cannot be decoded is dead-lettered.
func (q asideTasks) Handle(d broker.Delivery, worker int) {
	r, err := q.read(d, worker)
	switch {
	case err != nil:
		q.deadLetterUnreadable(d, err)
	case q.c.steer.TaskPaused(r.request.Name):
		r.giveBackUnstarted()
	default:
		q.settling.Go(func() {
			if !r.replace(q.name, r.next(), time.Time{}, "return of a paused task") {
				q.c.steer.Moved(q.name, r.request.Name) // back to the queue that was found empty meanwhile
			}
		})
	}
}

// emptyAsides starts a goroutine for each task whose messages were moved out of this queue and that
// is no longer paused, unless it runs already. The goroutine moves the messages back.
func (q *queue) emptyAsides() {
	for name := range q.c.steer.Asides(q.name) {
		source := settings.AsideQueue(q.name, name)
		if _, running := q.c.asides.LoadOrStore(source, true); !running {
			q.settling.Go(func() {
				q.emptyAside(name, source)
				wake.Sleep(q.fetch, retrySettings)
				q.c.asides.Delete(source)
				q.c.steer.Wake() // the task may have been paused and resumed meanwhile
			})
		}
	}
}

// asidePrefetch is the number of messages that are moved back at once.
const asidePrefetch = 100

// emptyAside consumes the queue source, in which the messages of a paused task were kept, and moves
// them back to the queue q.name. It blocks until source is empty for all consumers, the task is
// paused again, or this consumer stops or leaves the queue. It logs the start, and an error. See
// [steer.Steer.Empty].
func (q *queue) emptyAside(name, source string) {
	cfg := q.cfg
	cfg.Workers, cfg.Prefetch, cfg.Bounds, cfg.Floor = 1, asidePrefetch, broker.Bounds{}, 0
	a := &queue{c: q.c, name: q.name, source: source, cfg: cfg, meta: q.meta, settling: q.c.settling.Part()}
	a.open(asideTasks{queueTasks{a}})
	defer a.endFetch()
	defer context.AfterFunc(q.fetch, a.endFetch)()
	a.log(slog.LevelInfo, "the messages of a task that is no longer paused are moved back", slog.String(middleware.LogTask, name))
	inspector, _ := capability.As[broker.Inspector](q.c.cfg.Broker)
	err := q.c.steer.Empty(a.fetch, q.name, name, source, a.in, q.c.failed, inspector, func(t *intake.Workers) error {
		a.workers = t
		return a.leave()
	})
	if err != nil && a.fetch.Err() == nil {
		a.log(slog.LevelWarn, "moving the messages of a task back failed", slog.Any("error", err))
	}
}
