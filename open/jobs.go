package open

import (
	"context"
	"log/slog"

	"github.com/swarmiji/swarmiji/jobs"
)

// JobsOptions holds the settings of a job store that are not part of its URL. The zero value is
// usable.
type JobsOptions struct {
	// TLS makes TLS mandatory for postgres://. It is an error for a store without a connection. If
	// nil, the URL decides.
	TLS TLSConfig
	// Logger receives the log messages of the store. Default: slog.Default().
	Logger *slog.Logger
}

// Jobs returns the job store of a URL. Close it after use.
//
//	sqlite:///path/jobs.db, sqlite:jobs.db    a SQLite file; the second in the working directory
//	postgres://user:password@host/database    PostgreSQL
//	mem://                                    in this process; every call returns a separate store
//
// Jobs does not connect. The first call of the store does, and creates missing tables. Returns an
// error if the URL is invalid or its server has no job store. Errors contain no password.
func Jobs(ctx context.Context, url string, o JobsOptions) (jobs.Store, error) {
	return registered.Jobs(ctx, url, o)
}
