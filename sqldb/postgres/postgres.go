// Package postgres opens PostgreSQL databases for the SQL adapters: version 13 and later.
//
//	db, err := postgres.Open("postgres://user:password@host/database", postgres.Config{})
//	b, err := sqlbroker.New(sqlbroker.Config{DB: db})
//
// A DB uses at most pool_max_conns connections, by default 16, and one more while an adapter waits
// for notifications.
package postgres

import (
	"crypto/tls"
	"errors"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/sqlconn/postgres"
	"github.com/swarmiji/swarmiji/sqldb"
	"github.com/swarmiji/swarmiji/task"
)

// Config holds the settings of [Open] and [FromPool]. The zero value is usable.
type Config struct {
	// TLS makes TLS mandatory for the connections of Open and of ListenURL. It is not changed. A
	// missing ServerName is the URL's host. The minimum is TLS 1.2. InsecureSkipVerify is an error.
	// Default: the URL decides.
	TLS *tls.Config
	// Name is shown in the server's list of sessions, unless the URL has an application_name. Default:
	// swarmiji.
	Name string
	// Schema contains all tables, and names the channel of the notifications. Two schemas in one
	// database are two separate swarms. A missing schema is created with the tables. The search path
	// has no effect. 1 to 48 letters, digits, '_' and '-'. Default: public.
	Schema string
	// PgBouncer says that PgBouncer, or another pooler of transactions, is between this program and
	// the server. Then statements are not prepared, and parameters are set in each transaction.
	// Without ListenURL, changes by other processes are found by polls, 100 ms to 1 s apart.
	PgBouncer bool
	// ListenURL is the URL of the same database without PgBouncer, for the one connection that
	// receives notifications. Default: the URL of Open or the configuration of the pool.
	ListenURL string
	// Backoff is the wait between two attempts. Default: up to 100 ms at first, up to 5 s later.
	Backoff task.Backoff
	// Logger receives messages about interrupted notifications and about migrations that wait.
	// Default: slog.Default().
	Logger *slog.Logger
}

// Open returns the database of a URL: postgres://user:password@host:5432/database, with further
// hosts after commas. It takes the parameters of the client pgx, and these:
//
//   - pool_max_conns is the largest number of connections. Default: 16.
//   - sslmode is verify-full, verify-ca or disable. Without it the service file decides, then
//     PGSSLMODE. Otherwise it is disable if all hosts are sockets, localhost or loopback addresses,
//     and verify-full if not. The other modes verify no certificate, and are errors.
//   - target_session_attrs=read-write chooses the primary of several hosts, also after a failover.
//   - schema, pgbouncer=true and listen_url set the fields of [Config].
//
// It does not connect: the first call of an adapter does. Close the DB after its adapters. Returns
// all faults of the arguments, joined, without the URL.
func Open(url string, c Config) (sqldb.DB, error) {
	return open(postgres.Driver{}, url, c)
}

// FromPool returns the database of a pool of the program. The DB does not close the pool, and does
// not change the parameters of its sessions: it sets its own in each transaction, in the same round
// trip. Its connection for notifications is not one of the pool's, and is made with the pool's
// configuration.
//
// Close the DB before the pool. Returns an error if TLS or Name is set, since they belong to the
// pool, or another field is invalid.
func FromPool(pool *pgxpool.Pool, c Config) (sqldb.DB, error) {
	if pool == nil {
		return nil, errors.New("sql: the pool is nil")
	}
	if c.Name != "" || c.TLS != nil && c.ListenURL == "" {
		return nil, errors.New("sql: Name and TLS belong to the configuration of the pool")
	}
	return open(postgres.Driver{Pool: pool}, "", c)
}

func open(d postgres.Driver, url string, c Config) (sqldb.DB, error) {
	db, err := sqlconn.Open(d, sqlconn.Config{
		URL: url, TLS: c.TLS, Name: c.Name, Schema: c.Schema, PgBouncer: c.PgBouncer, ListenURL: c.ListenURL, Backoff: c.Backoff, Logger: c.Logger,
	})
	if err != nil {
		return nil, err // not a nil *sqlconn.DB in an interface
	}
	return db, nil
}
