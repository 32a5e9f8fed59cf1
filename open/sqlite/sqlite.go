// Package sqlite registers the driver of SQLite files with package open, for the scheme sqlite:. A
// program imports it for this effect:
//
//	import _ "github.com/swarmiji/swarmiji/open/sqlite"
package sqlite

import (
	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/sqlbroker"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/sqlevents"
	"github.com/swarmiji/swarmiji/history/sqlhistory"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/sqljobs"
	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/limit/sqllimit"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/open/internal/params"
	"github.com/swarmiji/swarmiji/outbox/sqloutbox"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/sqlresults"
	"github.com/swarmiji/swarmiji/schedule/sqlschedule"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/settings/sqlsettings"
	"github.com/swarmiji/swarmiji/sqldb"
	"github.com/swarmiji/swarmiji/sqldb/sqlite"
)

func init() { open.Register(Driver{}) }

var _ open.DatabaseDriver = Driver{}

// Driver constructs the adapters of SQLite. The zero value is usable. Safe for concurrent use.
type Driver struct{}

// Schemes implements [open.Driver]. It returns sqlite.
func (Driver) Schemes() []open.Scheme {
	return []open.Scheme{{
		Name: "sqlite", Form: "sqlite:///path/app.db", Place: open.PlaceDatabase, Server: "SQLite",
		Params: []string{params.DeadTTL, params.DeadMax},
	}}
}

// Parts implements [open.Driver]. It returns a database, and the constructors of the adapters,
// which share it. Returns an error if the URL, the TLS of the options or a limit of dead letters
// is invalid.
func (Driver) Parts(t *open.Target) (open.Parts, error) {
	ttl, most, err := params.Dead(t)
	if err != nil {
		return open.Parts{}, err
	}
	db, err := sqlite.Open(t.URL, sqlite.Config{Logger: t.Logger})
	if err != nil {
		return open.Parts{}, err
	}
	return open.Parts{
		Database: db,
		Broker: func(namespace string) (broker.Broker, error) {
			return sqlbroker.New(sqlbroker.Config{DB: db, Namespace: namespace, Logger: t.Logger, DeadTTL: ttl, DeadMax: most})
		},
		Results: func(namespace string) (resultstore.ResultStore, error) {
			return sqlresults.New(sqlresults.Config{DB: db, Namespace: namespace, Logger: t.Logger})
		},
		Events: func(namespace string, retain events.Retention) (events.EventBus, error) {
			return sqlevents.New(sqlevents.Config{DB: db, Namespace: namespace, Retain: retain, Logger: t.Logger})
		},
		Limiter: func(namespace string) (limit.Limiter, error) {
			return sqllimit.New(sqllimit.Config{DB: db, Namespace: namespace, Logger: t.Logger})
		},
		Schedule: func(name string) (open.ScheduleStore, error) {
			return sqlschedule.New(sqlschedule.Config{DB: db, Name: name})
		},
		Settings: func(namespace string) (settings.Store, error) {
			return sqlsettings.New(sqlsettings.Config{DB: db, Namespace: namespace})
		},
		Jobs: func() (jobs.Store, error) { return sqljobs.New(sqljobs.Config{DB: db}) },
	}, nil
}

// Outbox implements [open.DatabaseDriver].
func (Driver) Outbox(db sqldb.DB, namespace string) (open.OutboxStore, error) {
	return sqloutbox.New(sqloutbox.Config{DB: db, Namespace: namespace})
}

// History implements [open.DatabaseDriver].
func (Driver) History(db sqldb.DB, namespace string) (open.HistoryStore, error) {
	return sqlhistory.New(sqlhistory.Config{DB: db, Namespace: namespace})
}
