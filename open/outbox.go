package open

import (
	"context"
	"log/slog"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/outbox"
)

// OutboxOptions holds the settings of an outbox that are not part of its URL. The zero value is
// usable.
type OutboxOptions struct {
	// Namespace separates outboxes in one database. It overrides the namespace of the URL. Default:
	// "default".
	Namespace string
	// TLS makes TLS mandatory for postgres://. It is an error for a file. If nil, the URL decides.
	TLS TLSConfig
	// Logger receives the log messages of the outbox. Default: slog.Default().
	Logger *slog.Logger
}

// OutboxStore is an outbox in a database. Close it after use.
type OutboxStore interface {
	outbox.Store
	outbox.Inspector
	broker.TxPublisher
	// Prepare creates the tables. Call it before the first transaction.
	Prepare(ctx context.Context) error
	Close(ctx context.Context) error
}

// Outbox returns the outbox in a database, for a producer (producer.Config.Outbox) and for relays
// ([outbox.Config]).
//
//	sqlite:///path/app.db, sqlite:app.db      a SQLite file; the second in the working directory
//	postgres://user:password@host/database    PostgreSQL
//
// Outbox does not connect. The first call of the store does, and creates missing tables. Returns an
// error if the URL is invalid or its server has no outbox. Errors contain no password.
func Outbox(ctx context.Context, url string, o OutboxOptions) (OutboxStore, error) {
	return registered.Outbox(ctx, url, o)
}
