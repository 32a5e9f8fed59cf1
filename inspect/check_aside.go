package inspect

import (
	"github.com/swarmiji/swarmiji/inspect/internal/asides"
	"github.com/swarmiji/swarmiji/internal/cmdline"
)

// checkAside adds the finding about a queue in which tasks wait that no consumer takes, if these
// are the messages of a paused task. It reports whether they are. c may be nil.
func checkAside(f *findings, a *asides.Known, q *Queue, c *census) bool {
	from, ok := a.Of(q.Name)
	if !ok || q.Consumers > 0 || q.Ready <= 0 {
		return false
	}
	served := false
	if c != nil {
		c.consumers(from.Queue, func(*Worker, *ServedQueue) { served = true })
	}
	check, pause, resume := "queue "+q.Name, cmdline.Swarmiji("pause", "--task", from.Task), cmdline.Swarmiji("resume", "--task", from.Task)
	switch {
	case a.Paused(from.Task):
		f.warn(check, "%d tasks %s of queue %s wait here while their name is paused: %s", q.Ready, from.Task, from.Queue, resume)
	case !served:
		f.warn(check, "%d tasks %s wait here since a pause; start a consumer of queue %s, which moves them back", q.Ready, from.Task, from.Queue)
	case from.Returning:
		f.ok(check, "%d tasks %s wait here since a pause, and the consumers of queue %s move them back", q.Ready, from.Task, from.Queue)
	default:
		f.warn(check, "%d tasks %s wait here since a pause that is forgotten; another pause moves them back to queue %s: %s, then %s", q.Ready, from.Task, from.Queue, pause, resume)
	}
	return true
}
