package sqloutbox

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/tx"
)

// origin is the identity of the database. Its methods run statements in transactions of users.
// These statements name the schema of the tables, since a transaction of a user may have another
// search path. Their parameters occur in the order of their numbers, which some drivers need.
type origin struct {
	id       string
	postgres bool
	prefix   string // of tables: the quoted schema and a dot, or "" on SQLite
}

// read reads the identity of the database.
func (o *origin) read(ctx context.Context, t *sqlconn.Tx) error {
	o.postgres = t.Dialect() == sqlconn.Postgres
	if err := t.Row(ctx, "SELECT id FROM swarmiji_outbox_origin").Scan(&o.id); err != nil || !o.postgres {
		return err
	}
	var schema string
	err := t.Row(ctx, `SELECT n.nspname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE c.oid = to_regclass('swarmiji_outbox')`).Scan(&schema)
	o.prefix = `"` + strings.ReplaceAll(schema, `"`, `""`) + `".`
	return err
}

// The statements of check. $1 and $2 are tables. They return what is missing, or "".
const (
	probePostgres = `SELECT CASE
		WHEN to_regclass($1) IS NULL OR to_regclass($2) IS NULL THEN 'it has no outbox'
		WHEN NOT (has_table_privilege(to_regclass($1), 'INSERT') AND has_table_privilege(to_regclass($1), 'SELECT')
			AND has_table_privilege(to_regclass($2), 'SELECT')) THEN 'its role may not write to the outbox'
		WHEN current_setting('transaction_read_only') = 'on' THEN 'it is read-only'
		ELSE '' END`
	probeSQLite = `SELECT CASE WHEN count(*) = 2 THEN '' ELSE 'it has no outbox' END FROM sqlite_master
		WHERE type = 'table' AND name IN ($1, $2)`
)

// check returns ErrUnsupported if t cannot write to this outbox. It makes no transaction fail, even
// of another kind of database.
func (o *origin) check(ctx context.Context, t tx.Tx) error {
	missing, err := "", error(nil)
	if o.postgres {
		missing, err = text(ctx, t, probePostgres, o.prefix+"swarmiji_outbox", o.prefix+"swarmiji_outbox_origin")
		if _, lite := errors.AsType[interface {
			error
			Code() int
		}](err); lite {
			missing, err = err.Error(), nil
		}
	} else {
		missing, err = o.checkSQLite(ctx, t)
	}
	if err == nil && missing != "" {
		err = fmt.Errorf("%w: the transaction is of another database, or cannot store messages: %s", broker.ErrUnsupported, missing)
	}
	return err
}

// checkSQLite returns what is missing. A transaction of PostgreSQL goes on after the savepoint.
func (o *origin) checkSQLite(ctx context.Context, t tx.Tx) (missing string, err error) {
	if _, err = t.Exec(ctx, "SAVEPOINT swarmiji_outbox"); err != nil {
		return "", err
	}
	missing, err = text(ctx, t, probeSQLite, "swarmiji_outbox", "swarmiji_outbox_origin")
	if err != nil {
		missing = err.Error()
		if _, err = t.Exec(ctx, "ROLLBACK TO SAVEPOINT swarmiji_outbox"); err != nil {
			return "", err
		}
	}
	_, err = t.Exec(ctx, "RELEASE SAVEPOINT swarmiji_outbox")
	return missing, err
}

// confirm returns ErrUnsupported if t is a transaction of another database that has an outbox too.
func (o *origin) confirm(ctx context.Context, t tx.Tx) error {
	id, err := text(ctx, t, "SELECT id FROM "+o.prefix+"swarmiji_outbox_origin")
	if err == nil && id != o.id {
		err = fmt.Errorf("%w: the transaction is of another database than the outbox", broker.ErrUnsupported)
	}
	return err
}

// text returns the only value of a query.
func text(ctx context.Context, t tx.Tx, query string, args ...any) (s string, err error) {
	rows, err := t.Query(ctx, query, args...)
	if err != nil {
		return "", err
	}
	if rows.Next() {
		err = rows.Scan(&s)
	}
	return s, errors.Join(err, rows.Err(), rows.Close())
}

// columns are the columns that insert sets, with their types. Not among them is "stored".
var columns = [][2]string{
	{"namespace", "text"}, {"bucket", "bigint"}, {"order_key", "text"}, {"queue", "text"}, {"at", "bigint"}, {"from_now", "bigint"},
	{"id", "text"}, {"generation", "bigint"}, {"priority", "bigint"}, {"expires", "bigint"}, {"content_type", "text"},
	{"meta", "bytes"}, {"body", "bytes"},
}

// insert returns the statement that stores n messages. Its parameters are the columns of each
// message, then the id of the database; in another database it stores nothing. The values are cast,
// since a client library may pass them without types.
func (o *origin) insert(t *texts, n int) string {
	var names, values strings.Builder
	for _, c := range columns {
		names.WriteString(c[0] + ", ")
	}
	for i := range n {
		if i > 0 {
			values.WriteString(", ")
		}
		fmt.Fprintf(&values, "(%d", i)
		for j, c := range columns {
			kind := c[1]
			if kind == "bytes" {
				kind = t.bytes
			}
			fmt.Fprintf(&values, ", CAST($%d AS %s)", i*len(columns)+j+1, kind)
		}
		values.WriteString(")")
	}
	return `INSERT INTO ` + o.prefix + `swarmiji_outbox (` + names.String() + `stored)
		SELECT v.column2, v.column3, v.column4, v.column5, CASE WHEN v.column7 = 1 THEN v.column6 + ` + t.now + ` ELSE v.column6 END,
			v.column7, v.column8, v.column9, v.column10, v.column11, v.column12, v.column13, v.column14, ` + t.now + `
		FROM (VALUES ` + values.String() + `) AS v
		WHERE (SELECT id FROM ` + o.prefix + `swarmiji_outbox_origin) = ` + fmt.Sprintf("$%d", n*len(columns)+1) + `
		ORDER BY v.column1 ON CONFLICT (namespace, id, generation, queue) DO NOTHING`
}
