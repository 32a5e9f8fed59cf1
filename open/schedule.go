package open

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"strings"

	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/schedule/memschedule"
	"github.com/swarmiji/swarmiji/schedule/natsschedule"
	"github.com/swarmiji/swarmiji/schedule/redisschedule"
	"github.com/swarmiji/swarmiji/schedule/sqlschedule"
)

// ScheduleOptions are what the URL of a schedule's store does not say. The zero value is usable.
type ScheduleOptions struct {
	// Name is the name of the schedule. In Redis its keys begin with it. "": "default".
	Name string
	// TLS is for URLs through TLS, see [Options]; with postgres:// it insists on TLS. nil: what the URL says.
	TLS *tls.Config
	// Logger gets what the store logs. nil: slog.Default().
	Logger *slog.Logger
}

// ScheduleStore is a store of a schedule. Close ends it.
type ScheduleStore interface {
	schedule.Store
	schedule.Lister
	Close(ctx context.Context) error
}

// Schedule makes the store of a schedule of a URL, with everything that the store can do, for capability.As:
//
//	redis://, rediss://, redis-cluster://, redis-sentinel://   as for a broker; a namespace has no meaning, the name is the key
//	nats://, tls://                                            as for a broker; a namespace has no meaning
//	nats-embedded:///directory                                 a NATS server in this process, see Open; Close ends it
//	sqlite:///path/app.db, sqlite:app.db                       a SQLite file; the second is in the working directory
//	postgres://user:password@host/database                     PostgreSQL
//	mem://                                                     in this process; every call makes a store of its own
//
// Its I/O is what that of [Open] is, and no error holds a password.
func Schedule(ctx context.Context, url string, o ScheduleOptions) (ScheduleStore, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("open: %w", context.Cause(ctx))
	}
	if isSQL(url) {
		s, err := sqlschedule.New(sqlschedule.Config{URL: url, Name: o.Name, TLS: o.TLS, Logger: o.Logger})
		if err != nil {
			return nil, fmt.Errorf("open: schedule: %w", err)
		}
		return s, nil
	}
	t, err := parse(url, Options{TLS: o.TLS, Logger: o.Logger, Name: "swarmiji"})
	if err == nil && t.scheme.schedule == nil {
		err = fmt.Errorf("%s:// keeps no schedules; %s:// do", t.scheme.name, strings.Join(scheduleSchemes(), "://, "))
	}
	if err != nil {
		return nil, fmt.Errorf("open: schedule: %w", err)
	}
	return lone(ctx, t, func(t *target) (ScheduleStore, error) { return t.scheme.schedule(t, o.Name) })
}

// RedactSchedule is [Redact], which knows the URLs of schedules' stores as well.
func RedactSchedule(text string) string { return Redact(text) }

func scheduleSchemes() []string {
	var names []string
	for _, s := range schemes() {
		if s.schedule != nil {
			names = append(names, s.name)
		}
	}
	return append(names, sqlSchemes()...)
}

func memSchedule(_ *target, name string) (ScheduleStore, error) {
	return memschedule.New(memschedule.Config{Name: name})
}

func redisSchedule(t *target, name string) (ScheduleStore, error) {
	return redisschedule.New(redisschedule.Config{Redis: t.redis, Name: name, Logger: t.options.Logger})
}

func natsSchedule(t *target, name string) (ScheduleStore, error) {
	replicas, err := t.replicas()
	if err != nil {
		return nil, err
	}
	c := natsschedule.Config{
		Connect: t.nats(), Name: name, Replicas: replicas, Logger: t.options.Logger,
	}
	s, err := natsschedule.New(c)
	if err != nil || t.embedded == nil {
		return s, err
	}
	return ownedSchedule{s, t.embedded}, nil
}
