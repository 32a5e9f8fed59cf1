package middleware_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"

	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/task"
)

// Log writes a line at the end of each run: at level debug when it went well, at warn when the task failed.
func ExampleLog() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if slices.Contains([]string{slog.TimeKey, "took"}, a.Key) {
				return slog.Attr{} // different each time
			}
			return a
		},
	}))
	h := middleware.Chain(task.HandlerFunc(func(_ context.Context, r *task.Request) (any, error) {
		if r.ID == "t-2" {
			return nil, errors.New("no paper")
		}
		return "printed", nil
	}), middleware.Log(logger))

	// A consumer does this; without one a handler can be called as in any test.
	for _, id := range []task.ID{"t-1", "t-2"} {
		r := task.NewRequest(&task.Envelope{ID: id, Name: "print"}, nil)
		r.Queue = "office"
		_, _ = h.Handle(context.Background(), r)
	}
	// Output:
	// level=DEBUG msg="task succeeded" task_id=t-1 task=print queue=office attempt=1
	// level=WARN msg="task failed" task_id=t-2 task=print queue=office attempt=1 error="no paper"
}
