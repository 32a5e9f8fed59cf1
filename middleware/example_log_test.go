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

// Log logs the end of each run: at level debug after a success, at warn after a failure.
func ExampleLog() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if slices.Contains([]string{slog.TimeKey, "took"}, a.Key) {
				return slog.Attr{} // differs in each run
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

	// A consumer does this. A handler can also be called without a consumer, as in tests.
	for _, id := range []task.ID{"t-1", "t-2"} {
		r := task.NewRequest(&task.Envelope{ID: id, Name: "print"}, nil)
		r.Queue = "office"
		_, _ = h.Handle(context.Background(), r)
	}
	// Output:
	// level=DEBUG msg="task succeeded" task_id=t-1 task=print queue=office attempt=1
	// level=WARN msg="task failed" task_id=t-2 task=print queue=office attempt=1 error="no paper" retry=false
}
