package inspect

import (
	"context"
	"crypto/rand"
	"log/slog"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/task"
)

const (
	maxKey   = 255                   // bytes of TaskRun.Key and EntryRun.Key
	makeTime = time.Minute           // limits a call with a key
	holdTime = 2 * makeTime          // until then a key belongs to a call whose process has died
	keptKey  = 24 * time.Hour        // how long the copy of a key is remembered
	keyPause = 50 * time.Millisecond // between two looks at a call of another caller
)

// States of a call with a key: the first byte of the holder of its claim.
const (
	copying = "?" // followed by a random text
	copied  = "=" // followed by the id of the copy
)

// once calls do, which makes a copy, for the first call with a key. The other calls return the same
// copy. A call with another Do, Target or label is another call. Its id for do is derived from all
// of these. Without a key it only calls do, with a random id.
//
// A call during another one waits for its end, and makes the copy if the other call has failed. do
// does not end with ctx: the client of the first of two clicks is gone.
func (l *Local) once(ctx context.Context, c Change, key, label string, do func(ctx context.Context, id task.ID) (Change, error)) (Change, error) {
	if key == "" {
		return do(ctx, task.ID(rand.Text()))
	}
	if len(key) > maxKey {
		return c, errorf(CodeInvalid, "the key has %d bytes, want at most %d", len(key), maxKey)
	}
	id := task.Derive(task.ID(key), strings.Join([]string{string(c.Do), c.Target, label}, "\x00"))
	name, holder := "inspect/"+string(id), copying+rand.Text()
	making, cancel := context.WithTimeout(context.WithoutCancel(ctx), makeTime)
	defer cancel()
	for winner := ""; winner != holder; {
		var err error
		if winner, err = l.claims.Claim(making, name, holder, holdTime); err != nil {
			return c, wrapped(err)
		}
		if made, ok := strings.CutPrefix(winner, copied); ok {
			c.Done, c.Copy, c.Repeated = 1, made, true
			return c, nil
		}
		if winner != holder && !wake.Sleep(ctx, keyPause) {
			return c, errorf(CodeUnavailable, "another call with this key has not ended")
		}
	}
	c, err := do(making, id)
	noting, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	var noted error
	if err == nil {
		noted = l.claims.Pass(noting, name, holder, copied+c.Copy, keptKey)
	} else {
		noted = l.claims.Release(noting, name, holder)
	}
	if noted != nil {
		l.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "inspect: the key of a copy was not stored", slog.String("copy", c.Copy), slog.Any("error", noted))
	}
	return c, err
}
