package pages_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/inspect"
)

// failing is an API whose history has the same failure in two queues.
type failing struct{ *system }

func (failing) ListTasks(context.Context, inspect.TaskQuery) (inspect.TaskPage, error) {
	now := time.Now()
	return inspect.TaskPage{Tasks: []inspect.Task{
		{ID: "a", Name: "mail", Queue: "fast", Error: "no route to 10.0.0.1", Ended: now},
		{ID: "b", Name: "mail", Queue: "slow", Error: "no route to 10.0.0.2", Ended: now},
	}}, nil
}

// TestGroups shows that a group of failures is of one queue, since a requeue changes one queue.
func TestGroups(t *testing.T) {
	status, body := get(t, serve(t, failing{hostile(t)}, nil), "")
	sound(t, body)
	if n := strings.Count(body, `<input type="hidden" name="do" value="requeue-dead">`); status != http.StatusOK || n != 2 {
		t.Errorf("%d: %d groups offer a requeue, want 2", status, n)
	}
	for _, queue := range []string{"fast", "slow"} {
		if !strings.Contains(body, `<input type="hidden" name="queue" value="`+queue+`">`) {
			t.Errorf("nothing requeues the failures of queue %s", queue)
		}
	}
}

// unrecorded is an API without a history. Its queue has dead letters with many reasons, and without
// one.
type unrecorded struct{ *system }

func (unrecorded) ListTasks(context.Context, inspect.TaskQuery) (inspect.TaskPage, error) {
	return inspect.TaskPage{}, &inspect.Error{Code: inspect.CodeUnsupported, Text: "no history"}
}

func (unrecorded) ListQueues(context.Context, inspect.QueueQuery) (inspect.QueuePage, error) {
	return inspect.QueuePage{Queues: []inspect.Queue{{Name: "q", Dead: 9}}}, nil
}

func (unrecorded) SummarizeDead(context.Context, inspect.DeadCount) (inspect.DeadSummary, error) {
	return inspect.DeadSummary{Reasons: map[string]int{"no route to 10.0.0.1": 4, "other": 3, "": 2}}, nil
}

// TestRest shows that a group offers a requeue only if a filter selects its letters, and not those
// of the whole queue.
func TestRest(t *testing.T) {
	status, body := get(t, serve(t, unrecorded{hostile(t)}, nil), "")
	sound(t, body)
	if n := strings.Count(body, `<input type="hidden" name="do" value="requeue-dead">`); status != http.StatusOK || n != 1 || !strings.Contains(body, `<input type="hidden" name="error" value="no route to">`) {
		t.Errorf("%d: %d groups offer a requeue, want the one with a reason", status, n)
	}
	if n := strings.Count(body, "Dead letters of the queue"); n != 2 {
		t.Errorf("%d groups lead to the queue, want 2", n)
	}
}
