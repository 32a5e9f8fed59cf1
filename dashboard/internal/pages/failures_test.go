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
