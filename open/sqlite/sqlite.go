// Package sqlite registers the driver of SQLite files with package open, for the scheme sqlite:. A
// program imports it for this effect:
//
//	import _ "github.com/swarmiji/swarmiji/open/sqlite"
package sqlite

import (
	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/sqlbroker"
	"github.com/swarmiji/swarmiji/connect/sqliteconnect"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/sqlevents"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/sqljobs"
	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/limit/sqllimit"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/open/internal/params"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/sqlresults"
	"github.com/swarmiji/swarmiji/schedule/sqlschedule"
)

func init() { open.Register(Driver{}) }

// Driver constructs the adapters of SQLite. The zero value is usable. Safe for concurrent use.
type Driver struct{}

// Schemes implements [open.Driver]. It returns sqlite.
func (Driver) Schemes() []open.Scheme {
	return []open.Scheme{{
		Name: "sqlite", Form: "sqlite:///path/app.db", Place: open.PlaceDatabase, Server: "SQLite",
		Params: []string{params.DeadTTL, params.DeadMax},
	}}
}

// Parts implements [open.Driver]. It returns the constructors of all adapters. Returns an error if
// the TLS of the options is not a *tls.Config, or a limit of dead letters is invalid. The
// constructors check the URL itself.
func (Driver) Parts(t *open.Target) (open.Parts, error) {
	given, err := params.Given(t)
	if err != nil {
		return open.Parts{}, err
	}
	ttl, most, err := params.Dead(t)
	if err != nil {
		return open.Parts{}, err
	}
	return open.Parts{
		Broker: func(namespace string) (broker.Broker, error) {
			return sqlbroker.New(sqlbroker.Config{
				Engine: sqliteconnect.Engine{}, URL: t.URL, Name: t.Name, Namespace: namespace, Logger: t.Logger, DeadTTL: ttl, DeadMax: most,
			})
		},
		Results: func(namespace string) (resultstore.ResultStore, error) {
			return sqlresults.New(sqlresults.Config{Engine: sqliteconnect.Engine{}, URL: t.URL, Name: t.Name, Namespace: namespace, Logger: t.Logger})
		},
		Events: func(namespace string, retain events.Retention) (events.EventBus, error) {
			return sqlevents.New(sqlevents.Config{
				Engine: sqliteconnect.Engine{}, URL: t.URL, Name: t.Name, Namespace: namespace, Retain: retain, Logger: t.Logger,
			})
		},
		Limiter: func(namespace string) (limit.Limiter, error) {
			return sqllimit.New(sqllimit.Config{Engine: sqliteconnect.Engine{}, URL: t.URL, Name: t.Name, Namespace: namespace, Logger: t.Logger})
		},
		Schedule: func(name string) (open.ScheduleStore, error) {
			return sqlschedule.New(sqlschedule.Config{Engine: sqliteconnect.Engine{}, URL: t.URL, Name: name, TLS: given, Logger: t.Logger})
		},
		Jobs: func() (jobs.Store, error) {
			return sqljobs.New(sqljobs.Config{Engine: sqliteconnect.Engine{}, URL: t.URL, TLS: given, Logger: t.Logger})
		},
	}, nil
}
