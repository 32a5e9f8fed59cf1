package natsresults

import (
	"context"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/resultstore"
)

const (
	maxShortens = 8               // goroutines that shorten; beyond it the arrival waits, as long as its context lets it
	shortenTime = 5 * time.Minute // for all members of a group
)

// shorten gives the members from one index to another the time of a decided group. They were stored
// with that of an undecided one, which is longer; a has decided the group, or found it decided.
//
// It makes two trips for each member. A failure costs only room in the stream.
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
				s.cfg.Logger.LogAttrs(ctx, slog.LevelDebug, "members of a decided group are kept longer than need be",
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

func (s *Store) shortenOne(ctx context.Context, st *stream, key string, ttl time.Duration) error {
	data, seq, left, err := s.getTimed(ctx, st, key)
	if err != nil || data == nil || left > 0 && left <= ttl+time.Minute { // the clocks differ a little
		return err
	}
	return s.set(ctx, st, key, seq, data, ttl)
}
