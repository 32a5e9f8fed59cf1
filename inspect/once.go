package inspect

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"

	"github.com/swarmiji/swarmiji/inspect/internal/claims"
	"github.com/swarmiji/swarmiji/task"
)

// maxKey limits TaskRun.Key and EntryRun.Key, in bytes.
const maxKey = 255

// once calls do, which makes a copy, for the first call with a key, as [claims.Once] does. A call
// with another Do, Target or label is another call. Its id for do is derived from all of these.
// Without a key it only calls do, with a random id.
func (l *Local) once(ctx context.Context, c Change, key, label string, do func(ctx context.Context, id task.ID) (Change, error)) (Change, error) {
	if key == "" {
		return do(ctx, task.ID(rand.Text()))
	}
	if len(key) > maxKey {
		return c, errorf(CodeInvalid, "the key has %d bytes, want at most %d", len(key), maxKey)
	}
	id := task.Derive(task.ID(key), strings.Join([]string{string(c.Do), c.Target, label}, "\x00"))
	made, repeated, err := claims.Once(ctx, l.claims, "inspect/"+string(id), func(ctx context.Context) (_ string, err error) {
		c, err = do(ctx, id)
		return c.Copy, err
	}, func(err error) {
		l.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "inspect: the key of a copy was not stored", slog.String("copy", c.Copy), slog.Any("error", err))
	})
	switch {
	case errors.Is(err, claims.ErrBusy):
		return c, errorf(CodeUnavailable, "%v", err)
	case repeated:
		c.Done, c.Copy, c.Repeated = 1, made, true
	}
	return c, wrapped(err)
}
