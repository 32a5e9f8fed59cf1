// Package asides tells which queues hold the messages of paused tasks, see settings.AsideQueue.
package asides

import (
	"context"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/settings"
)

// Known holds the queues of a store of settings. Read returns one.
type Known struct {
	state settings.State
	known map[string]Origin // by the name of the queue
}

// Origin is the origin of the messages of such a queue.
type Origin struct {
	Queue, Task string
	// Returning reports that consumers move the messages back when the task is not paused.
	Returning bool
}

// Read reads the settings. Without a store it knows no queue. Returns the error of the store.
func Read(ctx context.Context, store settings.Store) (Known, error) {
	k := Known{known: make(map[string]Origin)}
	if store == nil {
		return k, nil
	}
	values, err := store.List(ctx, "")
	k.state = settings.Read(values)
	for key := range k.state.Aside {
		queue, task, _ := strings.Cut(key, "/")
		k.known[settings.AsideQueue(queue, task)] = Origin{queue, task, true}
	}
	return k, err
}

// Of returns the origin of the messages in a queue. For a queue that the settings do not have it
// reads the name of the queue.
func (k *Known) Of(queue string) (Origin, bool) {
	if known, ok := k.known[queue]; ok {
		return known, true
	}
	from, task, ok := strings.Cut(queue, ".paused.")
	return Origin{Queue: from, Task: task}, ok && settings.AsideQueue(from, task) == queue
}

// Paused reports whether the tasks of a name are paused, by hand or by a breaker.
func (k *Known) Paused(task string) bool {
	now := time.Now()
	pause, ok := k.state.TaskPauses[task]
	return ok && pause.Active(now) || now.Before(k.state.TaskBreakers[task].Until)
}
