package sqljobs

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// findLine returns at most limit due jobs of the queue q.Queue that q selects, in the order of q.
// Without q.By, due means due now. In an update on PostgreSQL it locks them and skips locked jobs.
// An invalid queue or state selects no job. Returns ErrBadJob if limit is not positive, and errors
// of the database. Neither fails the transaction: Line does.
func (t *tx) findLine(ctx context.Context, q *jobstore.Line, limit int) ([]jobstore.Row, error) {
	if limit <= 0 {
		return nil, fmt.Errorf("%w: a line is asked for with the limit %d", jobstore.ErrBadJob, limit)
	}
	if q.Queue == "" || !possible(q.Queue) || !possible(string(q.State)) {
		return nil, nil
	}
	b := builder{lite: t.s.lite}
	lock := ""
	if !t.s.lite && !t.view {
		lock = " FOR UPDATE SKIP LOCKED"
	}
	var by any
	switch {
	case !q.By.IsZero():
		by = q.By.UnixMicro()
	case t.s.lite:
		by = t.clock()
	}
	query := b.line(q, limit, by, lock)
	found, _, err := t.jobs(ctx, query, b.args...)
	return found, err
}

// line returns the SELECT statement for a [jobstore.Line] and adds its arguments. by is the latest
// due time in microseconds; nil means the server's time. lock is a clause for its end, or "".
// Queued jobs by priority have their own index. All other lines are found by time, where few rows
// do not qualify.
func (b *builder) line(q *jobstore.Line, limit int, by any, lock string) string {
	most, first := b.arg(limit, "bigint"), b.arg(by, "bigint")
	with := ""
	if !b.lite {
		with, first = now(sqlconn.Postgres), "coalesce("+first+", (SELECT t FROM n))"
	}
	queue := b.arg(q.Queue, "text")
	light := ""
	if w, ok := q.MaxWeight.Get(); ok {
		weight := b.arg(w, "bigint")
		if light = " AND j.weight <= " + weight; q.State == jobstore.Queued {
			// NULL compares to no time, so the statement returns no row.
			first = "CASE WHEN " + b.lightest(queue) + " <= " + weight + " THEN " + first + " END"
		}
	}
	if q.Order == jobstore.PriorityFirst && q.State == jobstore.Queued {
		return "WITH RECURSIVE " + with + b.urgent(q, queue, first, light, most, lock)
	}
	cols, order := "j.queue_due, j.priority, j.id", []any{int64(0), int64(0), int64(0)}
	if a := q.After; a != nil {
		order = []any{a.Due.UnixMicro(), int64(a.Priority), int64(a.ID)}
	}
	if q.Order == jobstore.PriorityFirst {
		cols = "j.priority, j.queue_due, j.id"
		order[0], order[1] = order[1], order[0]
	}
	where := "j.queue = " + queue + " AND j.state = " + b.arg(string(q.State), "text") + " AND j.queue_due <= " + first + light
	if q.After != nil {
		where += " AND (" + cols + ") > (" + b.arg(order[0], "bigint") + ", " + b.arg(order[1], "bigint") + ", " + b.arg(order[2], "bigint") + ")"
	}
	if with != "" {
		with = "WITH " + with[:len(with)-len(", ")] + " "
	}
	return with + "SELECT " + columns("j") + " FROM " + b.table("swarmiji_job_queue") + " WHERE " + where + b.names("swarmiji_job_queue") +
		" ORDER BY " + cols + " LIMIT " + most + lock
}

// urgent returns the end of a statement for queued jobs in the order of priority, behind WITH
// RECURSIVE. It seeks once in each priority, so jobs that are not due are not scanned. queue, by,
// light and most are parts of the statement.
func (b *builder) urgent(q *jobstore.Line, queue, by, light, most, lock string) string {
	s := source{
		d: b.dialect(), where: "queue = " + queue + " AND state = 'QUEUED' AND queue_due IS NOT NULL", index: "swarmiji_job_line",
		by: by, due: "queue_due", most: most, also: light,
	}
	if !b.lite {
		s.where += " AND name > ''"
	}
	if a := q.After; a != nil {
		priority := b.arg(int64(a.Priority), "bigint")
		at := func(of any) string {
			return "CASE WHEN p.priority = " + priority + " THEN " + b.arg(of, "bigint") + " ELSE " + fmt.Sprint(int64(none)) + " END"
		}
		s.least = " AND f.priority >= " + priority
		s.also += " AND (j.queue_due, j.id) > (" + at(a.Due.UnixMicro()) + ", " + at(int64(a.ID)) + ")"
	}
	return s.priorities() + " " + s.rows(columns("j"), lock)
}

// lightest returns a subquery for the least weight of the waiting jobs of a queue, due or not. It
// is NULL for an empty queue. The statement compares it with the greatest wanted weight, so that it
// reads no job if all are heavier.
func (b *builder) lightest(queue string) string {
	i := "swarmiji_jobs AS i"
	if b.lite {
		i += " INDEXED BY swarmiji_job_light"
	}
	where := "i.queue = " + queue + " AND i.state = 'QUEUED' AND i.queue_due IS NOT NULL"
	if !b.lite {
		where += " AND i.has_children > -1"
	}
	return "(SELECT i.weight FROM " + i + " WHERE " + where + " ORDER BY i.weight LIMIT 1)"
}

// dialect returns the dialect of SQL for which b builds the statement.
func (b *builder) dialect() sqlconn.Dialect {
	if b.lite {
		return sqlconn.SQLite
	}
	return sqlconn.Postgres
}

// table returns the table of jobs under the alias j. On SQLite it adds an INDEXED BY clause for the
// index. On PostgreSQL the condition of names selects the index, see the migration.
func (b *builder) table(index string) string {
	if b.lite && index != "" {
		return "swarmiji_jobs AS j INDEXED BY " + index
	}
	return "swarmiji_jobs AS j"
}

// names returns conditions, each with a leading AND, that make the database use the index: the
// conditions of a partial index. On PostgreSQL a condition that always holds marks the index, see
// the migration. Returns "" for other indexes.
func (b *builder) names(index string) string {
	guard, states := "", ""
	switch index {
	case "swarmiji_job_queue":
		guard = " AND j.mock > -1"
	case indexQueueID:
		guard = " AND j.attempts > -1"
	case indexRuns:
		guard, states = " AND j.token > -1", " AND j.state IN ('RUNNING', 'RUNQUEUED')"
	case indexRest:
		guard, states = " AND j.token > -1", " AND j.state NOT IN ('QUEUED', 'RUNNING', 'RUNQUEUED')"
	}
	if b.lite {
		return states
	}
	return states + guard
}

// Weigh returns the number and the total weight of the running jobs of a queue, including those
// that await answers. It returns 0 for an invalid queue. It locks nothing. A database error fails
// the transaction, and later calls return it. It implements [jobstore.Weigher].
func (t *tx) Weigh(ctx context.Context, queue string) (n, weight int64, err error) {
	if t.err != nil || queue == "" || !possible(queue) {
		return 0, 0, t.err
	}
	err = t.c.Row(ctx, t.s.text.weigh, queue).Scan(&n, &weight)
	return n, weight, t.fail("weigh", err)
}

// weighText returns the statement that counts the running jobs of the queue $1 and adds up their
// weight. It reads the index alone. It searches both states separately: with a list of states,
// PostgreSQL would read the whole queue if the table was empty when it made the plan.
func weighText(d sqlconn.Dialect) string {
	b := builder{lite: d == sqlconn.SQLite}
	of := func(state jobstore.State) string {
		return "SELECT j.weight FROM " + b.table("swarmiji_job_queue") + " WHERE j.queue = " + cast(1, "text") + " AND j.state = '" + string(state) + "'" +
			b.names("swarmiji_job_queue")
	}
	return "SELECT count(*), CAST(coalesce(sum(r.weight), 0) AS bigint) FROM (" + of(jobstore.Running) + " UNION ALL " + of(jobstore.RunQueued) + ") AS r"
}
