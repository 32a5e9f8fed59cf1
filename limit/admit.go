package limit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/task"
)

// Defaults of a [Config].
const (
	DefaultLease = 30 * time.Second
	DefaultDelay = time.Second
)

// askTimeout bounds one question to the limiter.
const askTimeout = 2 * time.Second

// Config configures [Admit]. Limiter must be set, and Tasks or Permits.
type Config struct {
	Limiter Limiter
	// Tasks says what each run of a task needs, by its name.
	Tasks map[string][]Permit
	// Permits says it instead for a request, such as by a header that names a tenant. It is called from many goroutines. An empty
	// answer is no limit. A permit that is none fails the task.
	Permits func(*task.Request) []Permit
	// Lease is how long the permits of a process that has died stay taken. A run renews its own three times as often. 0: 30 s.
	Lease time.Duration
	// Delay is for how long a task is put back at least that finds no room, or no limiter, if it is not known when there will be
	// some; a tenth to a half of it is added by chance. 0: 1 s.
	Delay time.Duration
	// Logger is told when the limiter does not answer. nil: slog.Default().
	Logger *slog.Logger
}

// Admit makes what has tasks ask a [Limiter] before they start, for consumer.Config.Admit. A task that is refused is put back
// with a delay, as [task.Snooze] does: neither an attempt nor a failure is counted, and no worker waits. So is a task whose
// limiter does not answer: the limit is kept, and the task runs later.
//
// Where many tasks wait for the same permits, they come back one after the other: about twice as often as tasks of this process
// are admitted, at least one every ten Delays, and each of them at least every 15 minutes. When a run's lease is lost because the limiter was away
// for longer than Lease, the run goes on, so that for its duration more than Max may be held.
//
// It returns every problem of the configuration, joined.
func Admit(c Config) (middleware.Admit, error) {
	var errs []error
	if c.Limiter == nil {
		errs = append(errs, errors.New("limit: Limiter is not set"))
	}
	if len(c.Tasks) == 0 && c.Permits == nil {
		errs = append(errs, errors.New("limit: neither Tasks nor Permits is set"))
	}
	c.Tasks = maps.Clone(c.Tasks)
	for name, ps := range c.Tasks {
		c.Tasks[name] = slices.Clone(ps)
		if _, err := Check("check", MinLease, ps); err != nil {
			errs = append(errs, fmt.Errorf("limit: Tasks: %q: %w", name, err))
		}
	}
	for _, d := range []struct {
		name      string
		value     *time.Duration
		otherwise time.Duration
	}{{"Lease", &c.Lease, DefaultLease}, {"Delay", &c.Delay, DefaultDelay}} {
		if *d.value == 0 {
			*d.value = d.otherwise
		}
		if *d.value < MinLease {
			errs = append(errs, fmt.Errorf("limit: %s is %s, at least %s", d.name, *d.value, MinLease))
		}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	a := &admitter{Config: c}
	return a.admit, nil
}

// admitter is the admission of one consumer, or several of a process.
type admitter struct {
	Config
	waiting lines
}

func (c *admitter) admit(ctx context.Context, r *task.Request) (release func(), err error) {
	ps := c.Tasks[r.Name]
	if c.Permits != nil {
		ps = c.Permits(r)
	}
	if len(ps) == 0 {
		return nil, nil
	}
	line := lineKey(ps)
	// An attempt that goes on although its task runs elsewhere already is another holder.
	holder := string(r.ID) + "/" + strconv.Itoa(r.Generation) + "." + strconv.Itoa(r.Deliveries)
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	d, err := c.Limiter.Acquire(asking, holder, c.Lease, ps...)
	cancel()
	switch {
	case errors.Is(err, ErrBadPermit):
		return nil, task.Fail(err)
	case err != nil:
		c.log(ctx, r, "the limiter did not answer; the task is put back", err)
		return nil, task.Snooze(c.spread(c.Delay))
	case !d.Granted:
		least := d.RetryAfter
		if least == 0 {
			least = c.Delay
		}
		return nil, task.Snooze(c.spread(c.waiting.refused(line, least, c.Delay)))
	}
	c.waiting.admitted(line, c.Delay)
	return c.keep(ctx, r, holder, ps), nil
}

// spread adds to d what keeps those that were refused together from coming back together.
func (c *admitter) spread(d time.Duration) time.Duration {
	return d + c.Delay/10 + rand.N(c.Delay*4/10+1)
}

// keep renews what a run holds until the function that it returns is called, which releases it.
func (c *admitter) keep(ctx context.Context, r *task.Request, holder string, ps []Permit) (release func()) {
	held := make([]Permit, 0, len(ps))
	for _, p := range ps {
		if p.Max > 0 {
			held = append(held, p)
		}
	}
	if len(held) == 0 {
		return nil
	}
	ctx = context.WithoutCancel(ctx) // a handler that ignores its context still runs
	renewing, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.renew(renewing, r, holder, held)
	}()
	return func() {
		stop()
		<-done // else a late renewal could take again what is released
		releasing, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		if err := c.Limiter.Release(releasing, holder, held...); err != nil {
			c.log(ctx, r, "permits are not released; they become free with their lease", err)
		}
	}
}

func (c *admitter) renew(ctx context.Context, r *task.Request, holder string, ps []Permit) {
	tick := time.NewTicker(c.Lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		err := c.Limiter.Renew(asking, holder, c.Lease, ps...)
		if errors.Is(err, ErrLost) { // take it again if there is room
			var d Decision
			if d, err = c.Limiter.Acquire(asking, holder, c.Lease, ps...); err == nil && !d.Granted {
				err = ErrLost
			}
		}
		cancel()
		if err != nil && ctx.Err() == nil {
			c.log(ctx, r, "permits of a running task are not renewed", err)
		}
	}
}

func (c *admitter) log(ctx context.Context, r *task.Request, msg string, err error) {
	c.Logger.LogAttrs(ctx, slog.LevelWarn, msg, slog.String(middleware.LogTaskID, string(r.ID)), slog.String(middleware.LogTask, r.Name),
		slog.Any("error", err))
}
