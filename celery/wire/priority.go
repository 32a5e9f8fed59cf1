package wire

import "github.com/swarmiji/swarmiji/task"

// Priority converts a priority of Celery on AMQP to one of this module. Celery's go from 0 to 255,
// and 255 is the most urgent. Here 0 is the most urgent. Celery's default, 0, becomes
// [task.DefaultPriority], and 100 and more become 0.
func Priority(celery int) int {
	return task.DefaultPriority - min(max(celery, 0), task.DefaultPriority)
}

// CeleryPriority is the reverse of [Priority]. Priorities that are less urgent than the default
// become 0, since 0 is Celery's least urgent one.
func CeleryPriority(p int) int { return min(max(task.DefaultPriority-p, 0), task.DefaultPriority) }
