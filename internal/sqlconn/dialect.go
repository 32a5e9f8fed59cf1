package sqlconn

import "time"

// Dialect is a kind of database.
type Dialect string

// The dialects.
const (
	SQLite   Dialect = "sqlite"
	Postgres Dialect = "postgres"
)

// Now returns an SQL expression for the database's clock, in microseconds since 1970. It gives the
// time of its evaluation, not of the start of the transaction. SQLite uses the clock of the
// machine, cut to milliseconds. PostgreSQL uses the clock of the server.
func (d Dialect) Now() string {
	if d == Postgres {
		return "CAST(floor(extract(epoch FROM clock_timestamp()) * 1000000) AS bigint)"
	}
	return "(CAST(unixepoch('subsec') * 1000 AS INTEGER) * 1000)"
}

// Micros returns a time in its stored form: microseconds since 1970. It rounds up, so a record is
// not due too early. The zero time is 0.
func Micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	us := t.UnixMicro()
	if t.Nanosecond()%1000 != 0 {
		us++
	}
	return us
}

// Time returns a stored time, in UTC. 0 is the zero time.
func Time(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
