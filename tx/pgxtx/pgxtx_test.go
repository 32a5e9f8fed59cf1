package pgxtx_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/tx/pgxtx"
)

// Wrap passes statements to the transaction, with each type of parameter. Errors are those of pgx;
// those of a query may come with its rows.
func TestWrap(t *testing.T) {
	ctx := testwait.Long(t)
	conn, err := pgx.Connect(ctx, testserver.RequirePostgres(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := conn.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	own, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	wrapped := pgxtx.Wrap(own)
	if _, err := wrapped.Exec(ctx, "CREATE TEMPORARY TABLE wrapped (a text, b bigint, c bytea)"); err != nil {
		t.Fatal(err)
	}
	n, err := wrapped.Exec(ctx, "INSERT INTO wrapped (a, b, c) VALUES ($1, $2, $3), ($1, $2 + 1, $3)", "a", int64(1), []byte{0, 1})
	if err != nil || n != 2 {
		t.Fatalf("Exec changes %d rows: %v", n, err)
	}
	rows, err := wrapped.Query(ctx, "SELECT a, b, c FROM wrapped WHERE b > $1", int64(1))
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for rows.Next() {
		var (
			a string
			b int64
			c []byte
		)
		if err := rows.Scan(&a, &b, &c); err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintf("%s %d %v", a, b, c)
	}
	if err := errors.Join(rows.Err(), rows.Close(), rows.Close()); err != nil || text != "a 2 [0 1]" {
		t.Errorf("the rows are %q: %v", text, err)
	}
	rows, err = wrapped.Query(ctx, "SELECT 1 / $1", int64(0))
	if err == nil {
		rows.Next()
		err = errors.Join(rows.Err(), rows.Close())
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "22012" {
		t.Errorf("a division by zero gives %v", err)
	}
	if err := own.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := wrapped.Exec(ctx, "SELECT 1"); !errors.Is(err, pgx.ErrTxClosed) {
		t.Errorf("Exec after the end: %v", err)
	}
	if rows, err := wrapped.Query(ctx, "SELECT 1"); !errors.Is(err, pgx.ErrTxClosed) || rows != nil {
		t.Errorf("Query after the end: %v, %v", rows, err)
	}
}
