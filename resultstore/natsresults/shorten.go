package natsresults

import (
	"context"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/resultstore"
)

const (
	// goroutines of shorten; beyond it the arrival itself shortens and waits, until its context ends
	maxShortens = 8
	shortenTime = 5 * time.Minute // for all members of a group
)

// shorten reduces the retention of the members with the indexes from to to, both included, to twice
// that of the decided group. It skips indexes that have not arrived. The members were stored with
// the longer retention of an undecided group. Call it when the arrival a decided the group or found
// it decided. After Close it does nothing. It takes s.mu, but not while it works.
//
// It works on a goroutine of its own if fewer than maxShortens exist, also after the end of ctx.
// Otherwise the caller does the work and blocks until the end of ctx at most. Both end after
// shortenTime or at Close. It makes two round trips for each member. It stops at the first failure
// and logs it, which only means that members use the stream longer.
func (s *Store) shorten(ctx context.Context, st *stream, a *resultstore.Arrival, g *groupState, from, to int) {
	group, ttl := a.Group, 2*a.Kept(true)
	if !s.begin() {
		return
	}
	do := func(ctx context.Context) {
		defer s.end()
		ctx, cancel := context.WithTimeout(ctx, shortenTime)
		defer cancel()
		go func() {
			select {
			case <-s.done:
				cancel()
			case <-ctx.Done():
			}
		}()
		for i := from; i <= to; i++ {
			if !g.has(i) {
				continue
			}
			if err := s.shortenOne(ctx, st, memberKey(group, i), ttl); err != nil {
				s.cfg.Logger.LogAttrs(ctx, slog.LevelDebug, "could not shorten the retention of a decided group's members; the server keeps them longer",
					slog.String("group", string(group)), slog.Any("error", err))
				return
			}
		}
	}
	select {
	case s.shortens <- struct{}{}:
		go func() {
			defer func() { <-s.shortens }()
			do(context.WithoutCancel(ctx))
		}()
	default:
		do(ctx)
	}
}

// shortenOne writes a member again with retention ttl, unless it is gone or expires at most a
// minute after ttl. It makes two round trips and waits for them. It returns their errors without
// repeating the requests.
func (s *Store) shortenOne(ctx context.Context, st *stream, key string, ttl time.Duration) error {
	data, seq, left, err := s.getTimed(ctx, st, key)
	// the clocks may differ a little
	if err != nil || data == nil || left > 0 && left <= ttl+time.Minute {
		return err
	}
	return s.set(ctx, st, key, seq, data, ttl)
}
