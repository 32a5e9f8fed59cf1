package sqljobs_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"testing/fstest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/jobs"
)

// firstVersion makes the tables that the first version made.
func firstVersion(t *testing.T, conn *sqlconn.Conn) {
	t.Helper()
	files := fstest.MapFS{}
	for _, d := range []string{"sqlite", "postgres"} {
		name := d + "/0001_jobs.sql"
		text, err := os.ReadFile("migrations/" + name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: text}
	}
	if err := conn.Migrate(bound(t), "jobs", files); err != nil {
		t.Fatal(err)
	}
}

// The tables of the first version, with jobs in them, are brought up to date: what is there is as it was, and runs; and jobs of queues can be
// added. A process of the first version that still runs goes on adding jobs.
func TestUpgrade(t *testing.T) {
	each(t, func(t *testing.T, dsn string) {
		conn, err := sqlconn.New(sqlconn.Config{URL: dsn, Backoff: quick})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := conn.Close(bound(t)); err != nil {
				t.Error(err)
			}
		}()
		firstVersion(t, conn)
		past := time.Now().Add(-time.Minute).Truncate(time.Microsecond).UTC()
		insert := func(name string, priority int) {
			t.Helper()
			if err := conn.Update(bound(t), func(ctx context.Context, tx *sqlconn.Tx) error {
				for _, query := range []string{
					fmt.Sprintf(`INSERT INTO swarmiji_job (name, state, priority, created, changed, next_run, due, has_children, mock, run, token, data)
						VALUES ('%s', 'QUEUED', %d, %[3]d, %[3]d, %[3]d, %[3]d, 0, 0, 0, 0, '{"a":1}')`, name, priority, past.UnixMicro()),
					fmt.Sprintf(`INSERT INTO swarmiji_job_name (name) VALUES ('%s') ON CONFLICT DO NOTHING`, name),
				} {
					if _, err := tx.Exec(ctx, query); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		insert("old", 1)
		insert("old", 2)
		s := open(t, dsn)
		all := found(t, s, jobs.Query{})
		want := job("old", 1, past)
		want.ID, want.Data = 1, []byte(`{"a":1}`)
		if len(all) != 2 || !gocmp.Equal(*want, all[0]) {
			t.Fatalf("%d jobs (-want +got):\n%s", len(all), gocmp.Diff(*want, all[0]))
		}
		insert("late", 3)
		waits := job("new", 1, past)
		waits.Queue, waits.Weight = "q", 1000
		save(t, s, waits)
		got, _, err := taken(bound(t), s, pattern("*"), 9, time.Minute)
		if err != nil || len(got) != 3 || got[2].Name != "late" {
			t.Errorf("taken: %v, %v", names(got), err)
		}
		line := found(t, s, jobs.Query{Limit: 9, Line: &jobs.Line{Queue: "q", State: jobs.Queued}})
		if len(line) != 1 || !gocmp.Equal(*waits, line[0]) {
			t.Errorf("in the line: %v", names(line))
		}
	})
}
