package middleware

import (
	"context"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/task"
)

// The attribute names that every log line of this module uses.
const (
	LogTaskID  = "task_id"
	LogTask    = "task"
	LogQueue   = "queue"
	LogAttempt = "attempt"
	LogNode    = "node"
)

// Log writes a line when a run ends: level debug when it succeeded, warn when it will not be repeated as things stand, info
// for a retry or a snooze. A nil logger means slog.Default().
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
			case isVerdict(err):
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
					attrs = append(attrs, slog.String("error", utf.Cut(err.Error(), task.MaxErrorText)))
				}
				l.LogAttrs(ctx, level, msg, attrs...)
			}
			return res, err
		})
	}
}
