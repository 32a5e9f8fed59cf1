package sqltx_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/tx"
	"github.com/swarmiji/swarmiji/tx/sqltx"
)

// Wrap passes statements to the transaction, with each type of parameter. Errors are those of the
// driver.
func TestWrap(t *testing.T) {
	for kind, url := range map[string]string{
		"sqlite": "sqlite:" + t.TempDir() + "/app.db", "postgres": testserver.RequirePostgres(t).URL(),
	} {
		t.Run(kind, func(t *testing.T) {
			ctx := testwait.Long(t)
			db := sqltest.OpenSQL(t, url)
			own, err := db.BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			wrapped := sqltx.Wrap(own)
			bytes := map[string]string{"sqlite": "blob", "postgres": "bytea"}[kind]
			if _, err := wrapped.Exec(ctx, "CREATE TEMPORARY TABLE wrapped (a text, b bigint, c "+bytes+")"); err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				n, err := wrapped.Exec(ctx, "INSERT INTO wrapped (a, b, c) VALUES ($1, $2, $3)", fmt.Sprint(i), int64(i), []byte{byte(i), 0})
				if err != nil || n != 1 {
					t.Fatalf("Exec changes %d rows: %v", n, err)
				}
			}
			rows, err := wrapped.Query(ctx, "SELECT a, b, c FROM wrapped WHERE b > $1 ORDER BY b", int64(0))
			if err != nil {
				t.Fatal(err)
			}
			if got := read(t, rows); got != "1 1 [1 0], 2 2 [2 0], " {
				t.Errorf("the rows are %q", got)
			}
			if err := own.Rollback(); err != nil {
				t.Fatal(err)
			}
			if _, err := wrapped.Exec(ctx, "SELECT 1"); !errors.Is(err, sql.ErrTxDone) {
				t.Errorf("Exec after the end: %v", err)
			}
			rows, err = wrapped.Query(ctx, "SELECT 1")
			if !errors.Is(err, sql.ErrTxDone) || rows != nil {
				t.Errorf("Query after the end: %v, %v", rows, err)
			}
		})
	}
}

// read returns the rows as a text.
func read(t *testing.T, rows tx.Rows) (text string) {
	t.Helper()
	for rows.Next() {
		var (
			a string
			b int64
			c []byte
		)
		if err := rows.Scan(&a, &b, &c); err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintf("%s %d %v, ", a, b, c)
	}
	if err := errors.Join(rows.Err(), rows.Close(), rows.Close()); err != nil {
		t.Fatal(err)
	}
	return text
}

// Wrap converts a transaction of database/sql, and the types of other libraries with its methods.
func ExampleWrap() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	own, err := db.BeginTx(ctx, nil)
	if err != nil {
		panic(err)
	}
	defer own.Rollback() // does nothing after the commit
	t := sqltx.Wrap(own) // pass it to SubmitTx, and commit own
	_, err = t.Exec(ctx, "CREATE TABLE orders (item text)")
	fmt.Println(err, own.Commit())
	// Output: <nil> <nil>
}
