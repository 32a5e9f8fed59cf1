package open

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/swarmiji/swarmiji/history"
)

// HistoryOptions holds the settings of a history that are not part of its URL. The zero value is
// usable.
type HistoryOptions struct {
	// Namespace separates histories in one database. It overrides the namespace of the URL. Default:
	// "default".
	Namespace string
	// TLS makes TLS mandatory for postgres://. It is an error for a file. If nil, the URL decides.
	TLS TLSConfig
	// Logger receives the log messages of the database. Default: slog.Default().
	Logger *slog.Logger
}

// HistoryStore is a history in a database. Close it after use.
type HistoryStore interface {
	history.Store
	// Prepare creates the tables. Otherwise the first call of another method does.
	Prepare(ctx context.Context) error
	Close(ctx context.Context) error
}

// History returns the history of tasks in a database, for recorders ([history.NewRecorder]) and for
// queries.
//
//	sqlite:///path/history.db, sqlite:h.db    a SQLite file; the second in the working directory
//	postgres://user:password@host/database    PostgreSQL
//
// History does not connect. The first call of the store does, and creates missing tables. Returns
// an error if the URL is invalid or its server has no history. Errors contain no password.
func History(ctx context.Context, url string, o HistoryOptions) (HistoryStore, error) {
	return registered.History(ctx, url, o)
}

// History constructs the history in a database with the drivers of r, as the function [History]
// does. It connects at first use. Returns an error if the URL is invalid, or its server has no
// history.
func (r *Registry) History(ctx context.Context, url string, o HistoryOptions) (HistoryStore, error) {
	t, err := r.parseOne(ctx, url, forDatabase, Options{Namespace: o.Namespace, TLS: o.TLS, Logger: o.Logger})
	if err != nil {
		return nil, fmt.Errorf("open: history: %w", err)
	}
	return lone(ctx, t, (*target).history, ownHistory)
}

// history constructs the history with t's namespace. Returns an error if the scheme has no history.
func (t *target) history() (HistoryStore, error) {
	d, ok := t.databaseDriver()
	if !ok {
		return nil, fmt.Errorf("%s:// has no history of tasks, which is in a SQL database; sqlite:// and postgres:// do", t.Scheme.Name)
	}
	return d.History(t.parts.Database, t.namespace)
}
