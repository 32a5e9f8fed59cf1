package sqlresults_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/sqlresults"
	"github.com/swarmiji/swarmiji/task"
)

// TestTxRights shows that a role needs the privileges of docs/transactions.md and no others: those
// on the results for a plain task, and those on groups and members only for groups.
func TestTxRights(t *testing.T) {
	ctx, dsn := testwait.Long(t), database(t, testserver.RequirePostgres(t))
	s := opened(t, sqlresults.Config{DB: sqltest.Open(t, dsn)})
	save(t, s, done("", 0)) // makes the tables
	db, role := sqltest.OpenSQL(t, dsn), testserver.Namespace()
	do := func(text string) {
		t.Helper()
		if _, err := db.ExecContext(ctx, text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	do("CREATE ROLE " + role)
	t.Cleanup(func() { _, _ = db.Exec("DROP OWNED BY " + role + "; DROP ROLE " + role) })
	do("GRANT USAGE ON SCHEMA public TO " + role)
	begin := func() sqltest.Transaction {
		t.Helper()
		own := sqltest.Begin(t, dsn)
		if _, err := own.Tx.Exec(ctx, "SET LOCAL ROLE "+role); err != nil {
			t.Fatal(err)
		}
		return own
	}
	member := resultstore.Arrival{Group: "group", Index: 0, Size: 2, Record: done("", 2)}

	do("GRANT SELECT, INSERT, UPDATE ON swarmiji_result TO " + role)
	own := begin()
	if err := s.CheckTx(ctx, own.Tx); err != nil {
		t.Errorf("CheckTx for plain tasks: %v", err)
	}
	for range 2 { // the second record replaces the first
		if err := s.SaveTx(ctx, own.Tx, resultstore.Record{ID: "task-1", Name: "add", State: task.StateStarted}); err != nil {
			t.Errorf("SaveTx: %v", err)
		}
	}
	_, err := s.ArriveTx(ctx, own.Tx, member)
	if !errors.Is(err, sqlconn.ErrAccess) || !strings.Contains(err.Error(), `DELETE ON "public".swarmiji_result_member`) {
		t.Errorf("ArriveTx without the privileges for groups: %v", err)
	}
	if _, err := s.MembersTx(ctx, own.Tx, "group", 0, 1); !errors.Is(err, sqlconn.ErrAccess) {
		t.Errorf("MembersTx without the privileges for groups: %v", err)
	}
	if err := own.Commit(); err != nil {
		t.Fatal(err)
	}

	dropping := resultstore.Record{ID: "task-2", Name: "add", State: task.StateSucceeded, DropCheckpoints: true}
	own = begin()
	if err := s.SaveTx(ctx, own.Tx, dropping); !errors.Is(err, sqlconn.ErrAccess) || !strings.Contains(err.Error(), `DELETE ON "public".swarmiji_result_checkpoint`) {
		t.Errorf("SaveTx without the privileges for checkpoints: %v", err)
	}
	if err := own.Commit(); err != nil {
		t.Fatal(err)
	}
	do("GRANT SELECT, DELETE ON swarmiji_result_checkpoint TO " + role)
	own = begin()
	if err := s.SaveTx(ctx, own.Tx, dropping); err != nil {
		t.Errorf("SaveTx that drops checkpoints: %v", err)
	}
	if err := own.Commit(); err != nil {
		t.Fatal(err)
	}

	do("GRANT SELECT, INSERT, UPDATE ON swarmiji_result_group TO " + role)
	do("GRANT SELECT, INSERT, DELETE ON swarmiji_result_member TO " + role)
	if _, err := s.Arrive(ctx, member); err != nil {
		t.Fatal(err)
	}
	do("UPDATE swarmiji_result_group SET expires = 1") // the next member deletes the members
	own = begin()
	if _, err := s.ArriveTx(ctx, own.Tx, member); err != nil {
		t.Errorf("ArriveTx: %v", err)
	}
	if page, err := s.MembersTx(ctx, own.Tx, "group", 0, 2); err != nil || len(page) != 1 {
		t.Errorf("MembersTx: %d members, %v; want 1", len(page), err)
	}
	if err := own.Commit(); err != nil {
		t.Fatal(err)
	}
}
