package wire

import "github.com/swarmiji/swarmiji/task"

// Priority converts a priority of Celery on AMQP, from 0 to 255 with the highest most urgent, to
// one of this module, where 0 is most urgent and [task.DefaultPriority] the default. Celery's
// default, 0, is the default here; 100 and more are 0.
func Priority(celery int) int {
	return task.DefaultPriority - min(max(celery, 0), task.DefaultPriority)
}

// CeleryPriority is the reverse of [Priority]. Priorities that are less urgent than the default
// are 0, since Celery has none below its default.
func CeleryPriority(p int) int { return min(max(task.DefaultPriority-p, 0), task.DefaultPriority) }
