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

// Defaults of [Config].
const (
	DefaultLease = 30 * time.Second
	DefaultDelay = time.Second
)

// askTimeout limits one call to the limiter.
const askTimeout = 2 * time.Second

// Config configures [Admit]. Limiter and one of Tasks and Permits must be set.
type Config struct {
	Limiter Limiter
	// Tasks maps the name of a task to the permits that each of its runs needs.
	Tasks map[string][]Permit
	// Permits returns the permits for a request instead of Tasks, for example by a header with a
	// tenant. It must be safe for concurrent use. An empty result means no limit. An invalid permit
	// fails the task.
	Permits func(*task.Request) []Permit
	// Lease is the time after which the permits of a dead process become free. A run renews its
	// permits at each third of this time. Default: 30 s.
	Lease time.Duration
	// Delay is the minimum delay of a task that was not admitted, or whose limiter did not answer, if
	// the limiter reports no time. A random 10 % to 50 % of Delay is added. Default: 1 s.
	Delay time.Duration
	// Logger gets a warning when the limiter does not answer. Default: slog.Default().
	Logger *slog.Logger
}

// Admit returns a function for consumer.Config.Admit that acquires permits from a [Limiter] before
// a task starts, and releases them after its run. A task that is not admitted is delayed, as by
// [task.Snooze]. No attempt and no failure is counted, and no worker waits. A task whose limiter
// does not answer within two seconds is delayed too, so that the limit is kept.
//
// Tasks that wait for the same permits are spread. They retry about twice as often as tasks of this
// process are admitted. At least one task retries in ten Delays, and each task every 15 minutes,
// also if its rate admits it later: the limit may change.
//
// If the limiter is unavailable for longer than Lease, a run loses its lease but continues. More
// than Max may then be held for the duration of this run.
//
// The error joins all problems of the configuration.
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
			errs = append(errs, fmt.Errorf("limit: %s is %s, but must be at least %s", d.name, *d.value, MinLease))
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

// admitter implements Admit for one or several consumers of a process.
type admitter struct {
	Config
	waiting lines
}

// admit acquires the permits of a task and implements [middleware.Admit]. It blocks for at most
// askTimeout. It counts an admission or a refusal in the line of the permits, which sets the
// delays. A task without permits may start: both results are nil. Otherwise:
//
//   - Granted: it starts a goroutine that renews the permits until release is called. release is
//     nil if no permit has a Max.
//   - Refused, or no answer: err is a [task.Snooze] with the delay. No answer is logged.
//   - An invalid permit: err fails the task for good.
func (c *admitter) admit(ctx context.Context, r *task.Request) (release func(), err error) {
	ps := c.Tasks[r.Name]
	if c.Permits != nil {
		ps = c.Permits(r)
	}
	if len(ps) == 0 {
		return nil, nil
	}
	line := lineKey(ps)
	// An attempt that still runs while its task runs elsewhere is another holder.
	holder := string(r.ID) + "/" + strconv.Itoa(r.Generation) + "." + strconv.Itoa(r.Deliveries)
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	d, err := c.Limiter.Acquire(asking, holder, c.Lease, ps...)
	cancel()
	switch {
	case errors.Is(err, ErrBadPermit):
		return nil, task.Fail(err)
	case err != nil:
		c.log(ctx, r, "the limiter did not answer; the task is delayed", err)
		return nil, task.Snooze(c.spread(c.Delay))
	case !d.Granted:
		least := d.RetryAfter
		if least == 0 {
			least = c.Delay
		}
		return nil, task.Snooze(c.spread(c.waiting.refused(line, least, c.Delay)))
	}
	c.waiting.admitted(line, c.Delay)
	return c.hold(ctx, r, holder, ps), nil
}

// spread returns d plus a random 10 % to 50 % of Config.Delay, so that tasks refused together do
// not retry together.
func (c *admitter) spread(d time.Duration) time.Duration {
	return d + c.Delay/10 + rand.N(c.Delay*4/10+1)
}

// hold renews the permits of a run on a goroutine until release is called. release ends the
// goroutine and releases the permits, within askTimeout each; an error is logged. The end of ctx
// has no effect. If no permit has a Max, hold returns nil: there is nothing to renew.
func (c *admitter) hold(ctx context.Context, r *task.Request, holder string, ps []Permit) (release func()) {
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
		<-done // a late renewal could acquire the permits again after their release
		releasing, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		if err := c.Limiter.Release(releasing, holder, held...); err != nil {
			c.log(ctx, r, "releasing permits failed; they become free when their lease ends", err)
		}
	}
}

// renew renews the permits of a run at each third of the lease. It blocks until ctx ends. If the
// permits are lost, it tries to acquire them again. Errors are logged, and the run continues
// without its permits.
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
		if errors.Is(err, ErrLost) { // acquire again if permits are free
			var d Decision
			if d, err = c.Limiter.Acquire(asking, holder, c.Lease, ps...); err == nil && !d.Granted {
				err = ErrLost
			}
		}
		cancel()
		if err != nil && ctx.Err() == nil {
			c.log(ctx, r, "renewing the permits of a running task failed", err)
		}
	}
}

// log logs msg as a warning with the task of r and err.
func (c *admitter) log(ctx context.Context, r *task.Request, msg string, err error) {
	c.Logger.LogAttrs(ctx, slog.LevelWarn, msg, slog.String(middleware.LogTaskID, string(r.ID)), slog.String(middleware.LogTask, r.Name),
		slog.Any("error", err))
}
