package browsertest

import (
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/task"
)

// batch is the number of tasks that seed stores in one transaction.
const batch = 2000

// seed stores the history of n tasks of the last hours, without running them. One in every failing
// has failed; 0: none.
func (w *world) seed(n, failing int) {
	w.Helper()
	now := time.Now().UTC()
	for first := 0; first < n; first += batch {
		b := history.Batch{Now: now}
		for i := first; i < min(first+batch, n); i++ {
			b.Facts = append(b.Facts, pastTask(i, now.Add(-6*time.Hour).Add(time.Duration(i)*5*time.Hour/time.Duration(n)), failing > 0 && i%failing == 0))
		}
		_, err := w.history.Record(testwait.Long(w.T), &b)
		w.no(err)
	}
}

// pastTask returns the facts of a task that was sent at a time and has ended.
func pastTask(i int, sent time.Time, failed bool) *history.Facts {
	id := task.ID(fmt.Sprintf("past-%07d", i))
	event := func(kind string, after time.Duration) *events.Event {
		return &events.Event{Type: kind, TaskID: id, NodeID: fmt.Sprintf("past-%d", i%20), Time: sent.Add(after)}
	}
	sentEvent := event(events.TaskSent, 0)
	sentEvent.Name, sentEvent.Queue = fmt.Sprintf("past.kind%d", i%40), fmt.Sprintf("past-%d", i%10)
	f := history.NewFacts(sentEvent)
	f.Merge(history.NewFacts(event(events.TaskStarted, 30*time.Millisecond)))
	end := event(events.TaskSucceeded, 90*time.Millisecond)
	if failed {
		end.Type, end.Exception = events.TaskFailed, fmt.Sprintf("row %d cannot be read", i)
	}
	end.Runtime = 60 * time.Millisecond
	f.Merge(history.NewFacts(end))
	return f
}
