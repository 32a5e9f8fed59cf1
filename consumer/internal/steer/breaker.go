package steer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/settings"
)

// Defaults of a [Breaker].
const (
	defaultPause    = 30 * time.Second
	defaultMaxPause = time.Hour
)

// Breaker pauses a queue or a task when Failures of the last Of attempts have failed.
type Breaker struct {
	Failures, Of    int
	Pause, MaxPause time.Duration // the first pause and the longest one; 0: the default
}

// maxAttempts limits Breaker.Of.
const maxAttempts = 1000

// Check returns all problems of b, joined.
func (b Breaker) Check() error {
	var errs []error
	if b.Failures < 1 || b.Failures > b.Of || b.Of > maxAttempts {
		errs = append(errs, fmt.Errorf("%d failures of %d; need 1 <= Failures <= Of <= %d", b.Failures, b.Of, maxAttempts))
	}
	if b.Pause < 0 || b.MaxPause < 0 || b.MaxPause != 0 && b.MaxPause < b.Pause {
		errs = append(errs, fmt.Errorf("Pause is %s and MaxPause %s; need 0 <= Pause <= MaxPause", b.Pause, b.MaxPause))
	}
	return errors.Join(errs...)
}

// window holds the results of the last attempts.
type window struct {
	failed []bool // a ring
	next   int
	count  int // of failures
}

// add adds a result and returns the number of failures among the last size results. size is the
// same at each call.
func (w *window) add(failed bool, size int) int {
	switch {
	case len(w.failed) < size:
		w.failed = append(w.failed, failed)
	default:
		if w.failed[w.next] {
			w.count--
		}
		w.failed[w.next] = failed
	}
	w.next = (w.next + 1) % size
	if failed {
		w.count++
	}
	return w.count
}

// Ended counts the end of an attempt that started at the given time, for the breakers of its queue
// and its name. why is the text of its error. It may trip or reset a breaker, see count. It does
// not block: the changes of breakers are stored on other goroutines. It takes s.mu.
func (s *Steer) Ended(queue, name string, started time.Time, failed bool, why string) {
	state := s.state.Load()
	b := s.cfg.Queue(queue)
	if have, tripped := state.QueueBreakers[queue]; tripped || b.Of > 0 {
		s.count(settings.QueueBreaker(queue), b, &have, tripped, started, failed, why)
	}
	b = s.cfg.Tasks[name]
	if have, tripped := state.TaskBreakers[name]; tripped || b.Of > 0 {
		s.count(settings.TaskBreaker(name), b, &have, tripped, started, failed, why)
	}
}

// count counts the end of an attempt for the breaker with key k. tripped reports whether a stored
// state have of it exists. The changes that it makes are stored by another goroutine. It takes
// s.mu.
//
//   - The breaker has not tripped: it trips if b.Failures of the last b.Of attempts have failed.
//   - It has tripped, and the attempt started after the pause: a failure trips it again, a success
//     resets it.
//   - The attempt started before the end of the pause, or a change of this breaker is being stored:
//     it does nothing.
func (s *Steer) count(k settings.Key[settings.Breaker], b Breaker, have *settings.Breaker, tripped bool, started time.Time, failed bool, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.writing[k.String()], tripped && started.Before(have.Until):
		return
	case tripped && failed:
		s.store(k, func(ctx context.Context) error { return s.trip(ctx, k, b, why) })
	case tripped:
		s.store(k, func(ctx context.Context) error { return s.reset(ctx, k, started) })
	default:
		w := s.windows[k.String()]
		if w == nil {
			w = &window{}
			s.windows[k.String()] = w
		}
		if w.add(failed, b.Of) >= b.Failures && failed {
			delete(s.windows, k.String())
			s.store(k, func(ctx context.Context) error { return s.trip(ctx, k, b, why) })
		}
	}
}

// store runs change, which stores a breaker, on another goroutine, within storeTimeout, and logs
// its error. Until change has ended, attempts do not count for this breaker. Call it with s.mu
// held.
func (s *Steer) store(k settings.Key[settings.Breaker], change func(context.Context) error) {
	s.writing[k.String()] = true
	s.cfg.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		defer cancel()
		err := change(ctx)
		s.mu.Lock()
		delete(s.writing, k.String())
		s.mu.Unlock()
		if err != nil {
			s.cfg.Log(slog.LevelWarn, "a breaker could not be stored", slog.String("key", k.String()), slog.Any("error", err))
		}
	})
}

// errPaused says that another consumer has stored the pause.
var errPaused = errors.New("paused already")

// trip stores and logs the pause of a breaker: the first one, or twice the last one, up to
// MaxPause. If a stored pause lasts at this moment, it does nothing and returns nil. Returns the
// error of the store.
func (s *Steer) trip(ctx context.Context, k settings.Key[settings.Breaker], b Breaker, why string) error {
	var stored settings.Breaker
	err := k.Update(ctx, s.cfg.Store, func(v *settings.Breaker, found bool) error {
		now := time.Now().UTC().Truncate(time.Millisecond)
		if found && now.Before(v.Until) {
			return errPaused
		}
		pause := cmp.Or(b.Pause, defaultPause)
		if found {
			pause = min(2*v.Pause, cmp.Or(b.MaxPause, max(defaultMaxPause, b.Pause)))
		}
		*v = settings.Breaker{
			Until: now.Add(pause), Pause: pause, Trips: v.Trips + 1, Node: s.cfg.Node, Why: utf.Cut(why, settings.MaxWhy), At: now,
		}
		stored = *v
		return nil
	})
	if errors.Is(err, errPaused) {
		return nil
	}
	if err == nil {
		s.cfg.Log(slog.LevelWarn, "a breaker has tripped", slog.String("key", k.String()), slog.Duration("pause", stored.Pause),
			slog.Int("trips", stored.Trips), slog.String("why", stored.Why))
	}
	return err
}

// reset deletes the state of a tripped breaker and logs that. started is the start of the attempt
// that has succeeded. If the stored pause ends after started, because the breaker has tripped
// again, it does nothing. Returns the error of the store.
func (s *Steer) reset(ctx context.Context, k settings.Key[settings.Breaker], started time.Time) error {
	found, err := k.RemoveIf(ctx, s.cfg.Store, func(v *settings.Breaker) bool { return !started.Before(v.Until) })
	if found {
		s.cfg.Log(slog.LevelInfo, "a breaker is reset: a task has succeeded", slog.String("key", k.String()))
	}
	return err
}
