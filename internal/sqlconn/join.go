package sqlconn

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/tx"
)

// ErrForeign reports a transaction of the caller that belongs to another database, or that is none.
// Nothing was written.
var ErrForeign = errors.New("sql transaction that cannot be used")

// The limits of the wait for the Conn's own connection. It may wait for the caller's transaction,
// which holds the lock of a SQLite file or the last connection of a pool of the caller.
const (
	readyWaitSQLite   = time.Second
	readyWaitPostgres = 5 * time.Second
)

// kind returns 'false' on PostgreSQL and '0' on SQLite, and fails on neither. On PostgreSQL the
// second column is the start of the transaction.
const kind = "SELECT CAST(1=0 AS text), CAST(CURRENT_TIMESTAMP AS text)"

// Join runs fn in t, a transaction of the caller. It neither commits nor rolls back. Join does
// not see the commit. So on PostgreSQL the topics that fn passes to [Tx.Notify] are sent several
// times within the next half second. On SQLite they are dropped: the commit changes the file, which
// watchers notice.
//
// ready runs first, without t. It makes the tables and reads by the Conn's own connection. rights
// are the privileges on tables that fn needs, such as "INSERT swarmiji_message". Statements of fn
// have parameters of the types string, int64, []byte, []string and []int64 only.
//
//   - Returns [ErrForeign] if t belongs to another database, or is a connection without a
//     transaction.
//   - Returns [ErrAccess] if t is read-only or its role lacks one of the rights.
//   - Returns [ErrUnavailable] if ready waits too long for a lock or a connection that t may hold.
//   - After these errors, and on SQLite after an error of fn, nothing was written and t can
//     continue.
//   - Other errors are those of ready, fn and the database.
func (c *Conn) Join(ctx context.Context, t tx.Tx, ready func(ctx context.Context) error, rights []string, fn Func) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.running.Done()
	if !c.Shared() {
		return &failure{ErrForeign, errors.New("a database in memory has no other connections; use a file")}
	}
	if err := c.Beside(ctx, ready); err != nil {
		return err
	}
	link := &joined{t: t, db: c.db.db}
	j := NewTx(c.Dialect(), link, false)
	if err := c.checkOnce(ctx, t, j, rights); err != nil {
		return err
	}
	link.checked = true
	if c.Dialect() == Postgres {
		err := j.Verdict(fn(ctx, j))
		switch {
		case err == nil:
			c.reminder.add(j.topics)
		case errors.Is(err, ErrAccess):
			c.db.granted.Clear()
		}
		return err
	}
	return inSavepoint(ctx, j, fn)
}

// Beside runs fn, which uses the Conn's own connection while a transaction of a caller is open.
// Returns [ErrUnavailable] if fn waits too long for a lock or a connection that the transaction may
// hold, and the error of fn otherwise.
func (c *Conn) Beside(ctx context.Context, fn func(ctx context.Context) error) error {
	limit, held := readyWaitSQLite, "the write lock of the SQLite file"
	if c.Dialect() == Postgres {
		limit, held = readyWaitPostgres, "the last connection of the pool"
	}
	short, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := fn(short)
	if errors.Is(err, ErrUnavailable) && short.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("tables or queues must be made before the transaction begins, since it may hold %s: %w", held, err)
	}
	return err
}

// noter is a transaction of the caller that stores the findings of Join about it. Join then checks
// the transaction once and not at each call.
type noter interface {
	Note(key, value any)
	Noted(key any) any
}

// grant is a list of privileges that a role has.
type grant struct{ role, rights string }

// checkOnce does the same as checkJoined, but asks the database only for facts that are not known
// yet. It stores its findings in t, if t is a noter, and in c.db.granted. t and j are the same
// transaction.
func (c *Conn) checkOnce(ctx context.Context, t tx.Tx, j *Tx, rights []string) (err error) {
	n, notes := capability.As[noter](t)
	if !notes {
		_, err = c.checkJoined(ctx, j, rights)
		return err
	}
	role, known := n.Noted(c.db).(string)
	g := grant{role, strings.Join(rights, ", ")}
	switch _, granted := c.db.granted.Load(g); {
	case !known:
		if g.role, err = c.checkJoined(ctx, j, rights); err == nil {
			n.Note(c.db, g.role)
		}
	case c.Dialect() == Postgres && !granted:
		var missing string
		if err = j.Row(ctx, "SELECT "+missingRights(c.schema(), rights)).Scan(&missing); err == nil {
			err = lacks(missing)
		}
	}
	if err == nil {
		c.db.granted.Store(g, true)
	}
	return err
}

// checkJoined checks whether the transaction j can be used, with rights as the needed privileges.
// It returns the role of j on PostgreSQL, "" on SQLite. Returns ErrForeign if j belongs to another
// database or is not in a transaction, and ErrAccess if it is read-only or a privilege is missing.
// Its statements do not fail because of that, so j can continue.
func (c *Conn) checkJoined(ctx context.Context, j *Tx, rights []string) (role string, err error) {
	var answer, begun string
	if err := j.Row(ctx, kind).Scan(&answer, &begun); err != nil {
		return "", err
	}
	if isPostgres := answer == "false"; isPostgres != (c.Dialect() == Postgres) {
		return "", &failure{ErrForeign, fmt.Errorf("it is not a transaction of %s", c.Dialect())}
	}
	if c.Dialect() == SQLite {
		return "", c.checkFile(ctx, j)
	}
	var theirs, still, readOnly, missing string
	identity := identity(c.schema())
	query := identity + ", CAST(CURRENT_TIMESTAMP AS text), CAST(current_user AS text), current_setting('transaction_read_only'), " +
		missingRights(c.schema(), rights) + fromDatabase
	if err := j.Row(ctx, query).Scan(&theirs, &still, &role, &readOnly, &missing); err != nil {
		return "", err
	}
	if still != begun {
		return "", &failure{ErrForeign, errNoTransaction}
	}
	same, err := c.isOwn(ctx, identity+fromDatabase, theirs)
	switch {
	case err != nil:
		return "", err
	case !same:
		return "", &failure{ErrForeign, errors.New("it belongs to another server or database")}
	case missing == "" && readOnly == "on":
		return "", &failure{ErrAccess, errors.New("the transaction is read-only")}
	}
	return role, lacks(missing)
}

// lacks returns ErrAccess with the missing privileges in its text, and nil if missing is "".
func lacks(missing string) error {
	if missing == "" {
		return nil
	}
	return &failure{ErrAccess, fmt.Errorf("the role of the transaction needs the privileges: %s", strings.TrimSuffix(missing, ", "))}
}

// schema returns the name of the schema without its quotes. It has no quotes inside.
func (c *Conn) schema() string {
	schema := c.db.db.Schema()
	return schema[1 : len(schema)-1]
}

// errNoTransaction is the cause of ErrForeign for a connection or a pool without a transaction.
var errNoTransaction = errors.New("it is not in a transaction: begin one and pass that")

const fromDatabase = ` FROM pg_database AS d WHERE d.datname = current_database()`

// identity returns the beginning of a SQL query. Its first column is a text that differs for each
// PostgreSQL server, start of the server, database and table of versions. Two servers that run at
// one time have different start times, also if one is a copy of the other.
func identity(schema string) string {
	return `SELECT CAST(CAST(extract(epoch FROM pg_postmaster_start_time()) * 1000000 AS bigint) AS text) || ' ' || CAST(d.oid AS text)
		|| ' ' || coalesce(CAST(` + oid(schema, "swarmiji_schema") + ` AS text), 'none')`
}

// oid returns the SQL expression for the id of a table, which is null if the table does not exist.
// Unlike to_regclass the expression never fails.
func oid(schema, table string) string {
	return `(SELECT r.oid FROM pg_class AS r JOIN pg_namespace AS n ON n.oid = r.relnamespace WHERE n.nspname = '` + schema + `' AND r.relname = '` + table + `')`
}

// missingRights returns the SQL expression for a text that lists the rights that the current role
// does not have. The text ends with ", ", and is empty if no right is missing.
func missingRights(schema string, rights []string) string {
	parts := []string{`CASE WHEN coalesce(has_schema_privilege((SELECT n.oid FROM pg_namespace AS n WHERE n.nspname = '` + schema + `'), 'USAGE'), false)
		THEN '' ELSE 'USAGE ON SCHEMA ` + schema + `, ' END`}
	for _, r := range rights {
		privilege, table, _ := strings.Cut(r, " ")
		parts = append(parts, fmt.Sprintf(`CASE WHEN coalesce(has_table_privilege(%s, '%s'), false) THEN '' ELSE '%s ON %s, ' END`, oid(schema, table), privilege, privilege, table))
	}
	return strings.Join(parts, " || ")
}

// checkFile returns ErrForeign if j on SQLite is not in a transaction, or not in one of the Conn's
// file.
func (c *Conn) checkFile(ctx context.Context, j *Tx) error {
	// SQLite refuses a transaction in a transaction, and changes nothing.
	if _, err := j.link.Exec(ctx, "BEGIN; ROLLBACK", nil); err == nil {
		return &failure{ErrForeign, errNoTransaction}
	}
	var theirs string
	if err := j.Row(ctx, "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&theirs); err != nil {
		return err
	}
	ours, err := c.db.db.Identity(ctx, "")
	if err == nil && !sameFile(ours, theirs) {
		err = &failure{ErrForeign, errors.New("it belongs to another SQLite file")}
	}
	return err
}

// isOwn reports whether the PostgreSQL database of c has the identity theirs. query is that of
// identity. The identity of the own database is kept. If it differs from theirs, isOwn reads it
// once more, by a connection of its own, since the server may have been started again.
func (c *Conn) isOwn(ctx context.Context, query, theirs string) (bool, error) {
	if ours, ok := c.db.identity.Load().(string); ok && ours == theirs {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readyWaitPostgres)
	defer cancel()
	ours, err := c.db.db.Identity(ctx, query)
	if err != nil {
		return false, Classify(err)
	}
	c.db.identity.Store(ours)
	return ours == theirs, nil
}

// sameFile reports whether two paths name one existing file. It returns false for "", a database in
// memory.
func sameFile(a, b string) bool {
	if a == "" || b == "" {
		return false
	}
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// inSavepoint runs fn in the transaction j on SQLite and returns the error of fn or of its
// statements. After an error it undoes the changes of fn, and j can continue unless SQLite has
// rolled it back.
func inSavepoint(ctx context.Context, j *Tx, fn Func) error {
	if _, err := j.Exec(ctx, "SAVEPOINT swarmiji"); err != nil {
		return err
	}
	err := j.Verdict(fn(ctx, j))
	if err != nil {
		// It fails if SQLite has rolled back the whole transaction. The first error is returned.
		_, _ = j.link.Exec(ctx, "ROLLBACK TO swarmiji", nil)
	}
	if _, e := j.link.Exec(ctx, "RELEASE swarmiji", nil); err == nil {
		err = Classify(e)
	}
	return err
}

// joined runs statements in a transaction of the caller.
type joined struct {
	t       tx.Tx
	db      Database
	checked bool // t is a transaction: its statements may write
}

// Exec implements Link: it runs a statement in t and returns the number of changed rows. Errors of
// a transaction that has ended wrap ErrForeign.
func (j joined) Exec(ctx context.Context, query string, args []any) (int64, error) {
	n, err := j.t.Exec(j.context(ctx), j.text(query), plain(args)...)
	return n, unusable(err)
}

// Query implements Link: it runs a statement in t and returns its rows. Errors of a transaction
// that has ended wrap ErrForeign.
func (j joined) Query(ctx context.Context, query string, args []any) (Rows, error) {
	rows, err := j.t.Query(j.context(ctx), j.text(query), plain(args)...)
	if err != nil {
		return nil, unusable(err)
	}
	return joinedRows{rows}, nil
}

// joinedRows are the rows of a transaction of the caller.
type joinedRows struct{ Rows }

// Err returns the error of the rows, with ErrForeign if the transaction has ended.
func (r joinedRows) Err() error { return unusable(r.Rows.Err()) }

// unusable adds ErrForeign to the error of a transaction that has ended, or that an earlier error
// has made useless. Other errors are returned unchanged.
func unusable(err error) error {
	if err == nil {
		return nil
	}
	const closed = "tx is closed" // of pgx
	e, ok := errors.AsType[postgresError](err)
	if ok && e.SQLState() == "25P02" || errors.Is(err, sql.ErrTxDone) || err.Error() == closed {
		return &failure{ErrForeign, err}
	}
	return err
}

// parameter is a parameter in a statement.
var parameter = regexp.MustCompile(`\$([0-9]+)`)

// text returns the statement with the schema of its tables on PostgreSQL, and with the parameters
// ?1 on SQLite: $1 is a name there, and some drivers number names by their first use.
func (j joined) text(query string) string {
	if j.db.Dialect() == SQLite {
		return parameter.ReplaceAllString(query, "?$1")
	}
	return j.db.Text(query)
}

// plain returns a copy of args in which []int64 and []string are texts, in PostgreSQL's form of
// arrays. The statement casts them: database/sql passes no arrays.
func plain(args []any) []any {
	plain := slices.Clone(args)
	for i, a := range args {
		switch list := a.(type) {
		case []int64:
			texts := make([]string, len(list))
			for k, n := range list {
				texts[k] = strconv.FormatInt(n, 10)
			}
			plain[i] = "{" + strings.Join(texts, ",") + "}"
		case []string:
			texts := make([]string, len(list))
			for k, s := range list {
				texts[k] = `"` + inArray.Replace(s) + `"`
			}
			plain[i] = "{" + strings.Join(texts, ",") + "}"
		}
	}
	return plain
}

// inArray escapes an element of an array of PostgreSQL in its text form.
var inArray = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// context returns the context of a statement: ctx, or on SQLite one that does not end. There an
// interrupted write would roll back the whole transaction.
func (j joined) context(ctx context.Context) context.Context {
	if j.db.Dialect() == SQLite && j.checked {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// Script implements Link. It always returns ErrRefused.
func (joined) Script(context.Context, string) error {
	return &failure{ErrRefused, errors.New("a script in a transaction of the caller")}
}
