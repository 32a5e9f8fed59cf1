package inspect

import (
	"context"
	"crypto/rand"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/resultstore"
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

// claims is the part of [resultstore.Claimer] that once needs.
type claims interface {
	Claim(ctx context.Context, key, holder string, ttl time.Duration) (winner string, err error)
	Pass(ctx context.Context, key, holder, next string, ttl time.Duration) error
	Release(ctx context.Context, key, holder string) error
}

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

// localClaims keeps claims in this process, where the result store cannot. Its zero value is empty.
// Safe for concurrent use.
type localClaims struct {
	mu  sync.Mutex
	all map[string]localClaim
}

type localClaim struct {
	holder string
	until  time.Time
}

// Claim claims key for holder if it is free, and returns the holder of the claim.
func (s *localClaims) Claim(_ context.Context, key, holder string, ttl time.Duration) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[string]localClaim)
	}
	now := time.Now()
	for k, c := range s.all {
		if !now.Before(c.until) {
			delete(s.all, k)
		}
	}
	if c, there := s.all[key]; there {
		return c.holder, nil
	}
	s.all[key] = localClaim{holder, now.Add(ttl)}
	return holder, nil
}

// Pass gives the claim of holder to next. Returns [resultstore.ErrStale] if holder has no claim.
func (s *localClaims) Pass(_ context.Context, key, holder, next string, ttl time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[key].holder != holder {
		return resultstore.ErrStale
	}
	s.all[key] = localClaim{next, time.Now().Add(ttl)}
	return nil
}

// Release ends the claim of holder.
func (s *localClaims) Release(_ context.Context, key, holder string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[key].holder == holder {
		delete(s.all, key)
	}
	return nil
}
