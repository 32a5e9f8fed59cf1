package open

import (
	"context"
	"log/slog"

	"github.com/swarmiji/swarmiji/schedule"
)

// ScheduleOptions holds the settings of a schedule store that are not part of its URL. The zero
// value is usable.
type ScheduleOptions struct {
	// Name is the name of the schedule. The keys in Redis begin with it. Default: "default".
	Name string
	// TLS is for URLs with TLS, see [Options]. It makes TLS mandatory for postgres://. If nil, the URL
	// decides.
	TLS TLSConfig
	// Logger receives the log messages of the store. Default: slog.Default().
	Logger *slog.Logger
}

// ScheduleStore is a store of a schedule. Close it after use.
type ScheduleStore interface {
	schedule.Store
	schedule.Lister
	Close(ctx context.Context) error
}

// Schedule returns the schedule store of a URL. capability.As finds all its capabilities.
//
//	redis://, rediss://                      as for a broker; the name is the key
//	redis-cluster://, redis-sentinel://      as for a broker; the name is the key
//	nats://, tls://                          as for a broker
//	nats-embedded:///directory               a NATS server in this process, see Open; Close stops it
//	sqlite:///path/app.db, sqlite:app.db     a SQLite file; the second in the working directory
//	postgres://user:password@host/database   PostgreSQL
//	mem://                                   in this process; every call returns a separate store
//
// The parameter namespace is ignored. Schedule does the same I/O as [Open]. Errors contain no
// password.
func Schedule(ctx context.Context, url string, o ScheduleOptions) (ScheduleStore, error) {
	return registered.Schedule(ctx, url, o)
}

// RedactSchedule returns a URL for logs, without user, password and parameters: see [Redact].
func RedactSchedule(text string) string { return Redact(text) }
