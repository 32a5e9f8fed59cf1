package sqlresults_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/sqlresults"
)

// TestCheckpointRights shows that a role without rights on the table of checkpoints, as before an
// upgrade, stores all records, also those that drop checkpoints. It deletes and sweeps records too.
// One warning names the grant.
func TestCheckpointRights(t *testing.T) {
	// not parallel: the suite ends the sessions of all clients
	ctx, dsn := testwait.Long(t), database(t, testserver.RequirePostgres(t))
	first := opened(t, sqlresults.Config{DB: sqltest.Open(t, dsn)})
	save(t, first, done("", 0)) // makes the tables, but not that of checkpoints
	db, role := sqltest.OpenSQL(t, dsn), testserver.Namespace()
	count := func(query string) (n int) {
		t.Helper()
		if err := db.QueryRowContext(ctx, query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count("SELECT count(*) FROM swarmiji_schema WHERE component = 'checkpoints'"); n != 0 {
		t.Error("a plain record has made the table of checkpoints")
	}
	if err := first.SaveCheckpoint(ctx, resultstore.Attempt{ID: "task-9"}, resultstore.Checkpoint{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	do := func(text string) {
		t.Helper()
		if _, err := db.ExecContext(ctx, text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	do("CREATE ROLE " + role)
	t.Cleanup(func() { _, _ = db.Exec("DROP OWNED BY " + role + "; DROP ROLE " + role) })
	do("GRANT USAGE ON SCHEMA public TO " + role)
	do("GRANT SELECT ON swarmiji_schema TO " + role)
	do("GRANT SELECT, INSERT, UPDATE, DELETE ON swarmiji_result, swarmiji_result_group, swarmiji_result_member, swarmiji_result_begun TO " + role)

	var logged bytes.Buffer
	s, err := sqlresults.New(sqlresults.Config{
		DB: sqltest.Open(t, dsn+"&role="+role), Logger: slog.New(slog.NewTextHandler(&logged, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	dropping := func(i int) resultstore.Record {
		r := done("node", i)
		r.DropCheckpoints = true
		return r
	}
	save(t, s, dropping(1), dropping(1), done("node", 2)) // the second time it is stored already
	for i, err := range s.SaveBatch(ctx, []resultstore.Record{done("node", 3), dropping(4), done("node", 5)}) {
		if err != nil {
			t.Errorf("record %d of the batch: %v", i, err)
		}
	}
	for i := range 6 {
		if _, err := s.Load(ctx, done("", i).ID); err != nil {
			t.Errorf("task %d: %v", i, err)
		}
	}
	if err := s.Delete(ctx, done("", 5).ID); err != nil {
		t.Errorf("Delete: %v", err)
	}
	do("INSERT INTO swarmiji_result_group (namespace, id, size, done, failed, largest, decider, expires) VALUES ('n', 'g', 0, 0, 0, -1, -1, 1)")
	sqlresults.Swept(s)
	sqlresults.Sweep(s, 10)
	if n := count("SELECT count(*) FROM swarmiji_result_group"); n != 0 {
		t.Errorf("%d expired groups after the sweep", n)
	}
	closed(t, s)
	if n := strings.Count(logged.String(), "level="); n != 1 || !strings.Contains(logged.String(), "swarmiji_result_checkpoint") {
		t.Errorf("%d messages, want one that names the grant:\n%s", n, &logged)
	}
}
