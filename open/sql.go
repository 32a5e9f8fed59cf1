package open

import (
	"context"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/sqldb"
)

// Database returns the SQL database of a URL, to migrate its tables or to construct adapters that
// share it. It takes the same URLs and options as [Open]. It does not connect. Close it after use.
//
//	sqlite:///path/app.db, sqlite:app.db     a SQLite file; the second in the working directory
//	postgres://user:password@host/database   PostgreSQL
//
// Returns an error if the URL is invalid, or is not that of a SQL database. Errors contain no
// password.
func Database(ctx context.Context, url string, o Options) (sqldb.DB, error) {
	return registered.Database(ctx, url, o)
}

// Database returns the SQL database of the broker's URL, or nil if the broker uses none. The Swarm
// closes it.
func (s *Swarm) Database() sqldb.DB { return s.targets.broker.parts.Database }

// Schedule returns the store of the schedule with this name, on the server of the broker. With a
// SQL database it shares the connections of the Swarm. Close it before the Swarm. Returns an error
// if the server keeps no schedules.
func (s *Swarm) Schedule(name string) (ScheduleStore, error) {
	return made(s.targets.broker.schedule(name))
}

// Jobs returns the job store on the server of the broker. With a SQL database it shares the
// connections of the Swarm. Close it before the Swarm. Returns an error if the server keeps no
// jobs.
func (s *Swarm) Jobs() (jobs.Store, error) { return made(s.targets.broker.jobs()) }
