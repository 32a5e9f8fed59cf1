package open

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/jobs/sqljobs"
)

// JobsOptions are what the URL of a store of jobs does not say. The zero value is usable.
type JobsOptions struct {
	// TLS insists on TLS with postgres://. It is refused with what has no connection. nil: what the URL says.
	TLS *tls.Config
	// Logger gets what the store logs. nil: slog.Default().
	Logger *slog.Logger
}

// Jobs makes the store of jobs of a URL. Its Close ends it.
//
//	sqlite:///path/jobs.db, sqlite:jobs.db       a SQLite file; the second is in the working directory
//	postgres://user:password@host/database       PostgreSQL
//	mem://                                       in this process; every call makes a store of its own
//
// It connects to nothing: the first call of the store does. No error holds a password.
func Jobs(ctx context.Context, url string, o JobsOptions) (jobs.Store, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("open: %w", context.Cause(ctx))
	}
	s, err := jobStore(url, o)
	if err != nil {
		return nil, fmt.Errorf("open: jobs: %w", err)
	}
	return s, nil
}

func jobStore(url string, o JobsOptions) (jobs.Store, error) {
	if isSQL(url) {
		return sqljobs.New(sqljobs.Config{URL: strings.TrimSpace(url), TLS: o.TLS, Logger: o.Logger})
	}
	t, err := parse(url, Options{TLS: o.TLS, Logger: o.Logger, Name: "swarmiji"})
	switch {
	case err != nil:
		return nil, err
	case t.scheme.name != "mem":
		return nil, fmt.Errorf("%s:// keeps no jobs; mem://, %s:// do", t.scheme.name, strings.Join(sqlSchemes(), "://, "))
	case o.TLS != nil:
		return nil, errors.New("mem:// has no use for TLS")
	}
	return memjobs.New(memjobs.Config{})
}
