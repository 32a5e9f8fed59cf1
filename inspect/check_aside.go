package inspect

import (
	"context"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/internal/cmdline"
	"github.com/swarmiji/swarmiji/settings"
)

// asides tells which queues hold the messages of paused tasks. See settings.AsideQueue.
type asides struct {
	state settings.State
	known map[string]aside // by the name of the queue
}

// aside is the origin of the messages of such a queue.
type aside struct {
	queue, task string
	// returning reports that consumers move the messages back when the task is not paused.
	returning bool
}

// readAsides reads the settings. Without a store it knows no queue.
func (l *Local) readAsides(ctx context.Context) (asides, error) {
	a := asides{known: make(map[string]aside)}
	if l.cfg.Settings == nil {
		return a, nil
	}
	values, err := l.cfg.Settings.List(ctx, "")
	a.state = settings.Read(values)
	for key := range a.state.Aside {
		queue, task, _ := strings.Cut(key, "/")
		a.known[settings.AsideQueue(queue, task)] = aside{queue, task, true}
	}
	return a, err
}

// of returns the origin of the messages in a queue. Of a queue that the settings do not have it is
// the name alone that tells.
func (a *asides) of(queue string) (aside, bool) {
	if known, ok := a.known[queue]; ok {
		return known, true
	}
	from, task, ok := strings.Cut(queue, ".paused.")
	return aside{queue: from, task: task}, ok && settings.AsideQueue(from, task) == queue
}

// paused reports whether the tasks of a name are paused, by hand or by a breaker.
func (a *asides) paused(task string) bool {
	now := time.Now()
	pause, ok := a.state.TaskPauses[task]
	return ok && pause.Active(now) || now.Before(a.state.TaskBreakers[task].Until)
}

// check adds the finding about a queue in which tasks wait that no consumer takes, if these are the
// messages of a paused task. It reports whether they are. c may be nil.
func (a *asides) check(f *findings, q *Queue, c *census) bool {
	from, ok := a.of(q.Name)
	if !ok || q.Consumers > 0 || q.Ready <= 0 {
		return false
	}
	served := false
	if c != nil {
		c.consumers(from.queue, func(*Worker, *ServedQueue) { served = true })
	}
	check, pause, resume := "queue "+q.Name, cmdline.Swarmiji("pause", "--task", from.task), cmdline.Swarmiji("resume", "--task", from.task)
	switch {
	case a.paused(from.task):
		f.warn(check, "%d tasks %s of queue %s wait here while their name is paused: %s", q.Ready, from.task, from.queue, resume)
	case !served:
		f.warn(check, "%d tasks %s wait here since a pause; start a consumer of queue %s, which moves them back", q.Ready, from.task, from.queue)
	case from.returning:
		f.ok(check, "%d tasks %s wait here since a pause, and the consumers of queue %s move them back", q.Ready, from.task, from.queue)
	default:
		f.warn(check, "%d tasks %s wait here since a pause that is forgotten; another pause moves them back to queue %s: %s, then %s", q.Ready, from.task, from.queue, pause, resume)
	}
	return true
}
