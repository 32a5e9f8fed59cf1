package middleware

import (
	"context"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/task"
)

// Names of the attributes in all log lines of this module.
const (
	LogTaskID  = "task_id"
	LogTask    = "task"
	LogQueue   = "queue"
	LogAttempt = "attempt"
	LogNode    = "node"
)

// Log logs the end of each run. A success has level debug. An error with a verdict, such as a retry
// or a snooze, has level info, and other errors level warn. Lines with an error have the attribute
// retry: whether the task is retried. Default logger: slog.Default().
func Log(logger *slog.Logger) Middleware {
	return func(next task.Handler) task.Handler {
		return task.HandlerFunc(func(ctx context.Context, r *task.Request) (any, error) {
			l := logger
			if l == nil {
				l = slog.Default()
			}
			begin := time.Now()
			res, err := next.Handle(ctx, r)
			level, msg := slog.LevelDebug, "task succeeded"
			switch {
			case err == nil:
			case isVerdict(err) && r.Outcome(err).State != task.StateFailed:
				level, msg = slog.LevelInfo, "task ended with a verdict"
			default:
				level, msg = slog.LevelWarn, "task failed"
			}
			if l.Enabled(ctx, level) {
				attrs := []slog.Attr{
					slog.String(LogTaskID, string(r.ID)), slog.String(LogTask, r.Name), slog.String(LogQueue, r.Queue),
					slog.Int(LogAttempt, r.Retries+1), slog.Duration("took", time.Since(begin)),
				}
				if err != nil {
					attrs = append(attrs, slog.String("error", utf.Cut(err.Error(), task.MaxErrorText)),
						slog.Bool("retry", r.Outcome(err).State == task.StateRetrying))
				}
				l.LogAttrs(ctx, level, msg, attrs...)
			}
			return res, err
		})
	}
}
