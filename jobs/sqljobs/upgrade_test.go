package sqljobs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/deferrals"
	"github.com/swarmiji/swarmiji/jobs/jobstest"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/jobs/sqljobs"
	"github.com/swarmiji/swarmiji/task"
)

const migrations = "../../internal/sqlconn/migrations/jobs/"

// oldVersion creates the tables of an earlier version.
func oldVersion(t *testing.T, conn *sqlconn.Conn, version int) {
	t.Helper()
	files := fstest.MapFS{}
	for _, d := range []string{"sqlite", "postgres"} {
		all, err := os.ReadDir(migrations + d)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range all[:version] {
			name := d + "/" + f.Name()
			text, err := os.ReadFile(migrations + name)
			if err != nil {
				t.Fatal(err)
			}
			files[name] = &fstest.MapFile{Data: text}
		}
	}
	if err := conn.Migrate(bound(t), files); err != nil {
		t.Fatal(err)
	}
}

// fixtureEpoch is the creation time of the first job in testdata/version3.sql.
const fixtureEpoch = 1795406212313253

// oldRows fills the tables of an old version. The times are as recent as if the old program had
// just ended.
func oldRows(t *testing.T, conn *sqlconn.Conn, version int) {
	t.Helper()
	text, err := os.ReadFile("testdata/version3.sql")
	if err != nil {
		t.Fatal(err)
	}
	by := time.Now().UnixMicro() - fixtureEpoch
	times := []string{"created", "changed", "next_run", "last_run", "scheduled", "due"}
	if version > 1 {
		times = append(times, "queue_due", "deadline", "expires")
	}
	var sets []string
	for _, c := range times {
		sets = append(sets, fmt.Sprintf("%s = %[1]s + %d", c, by))
	}
	if err := conn.Update(bound(t), func(ctx context.Context, tx *sqlconn.Tx) error {
		for line := range strings.Lines(string(text)) {
			newer := regexp.MustCompile(`\bqueue\b|answer_key|unique_key`).MatchString(line)
			if strings.HasPrefix(line, "--") || version == 1 && newer {
				continue
			}
			if _, err := tx.Exec(ctx, strings.TrimSuffix(strings.TrimSpace(line), ";")); err != nil {
				return fmt.Errorf("%s: %w", line, err)
			}
		}
		if _, err := tx.Exec(ctx, "UPDATE swarmiji_job SET "+strings.Join(sets, ", ")); err != nil {
			return err
		}
		if tx.Dialect() == sqlconn.Postgres {
			_, err := tx.Exec(ctx, "SELECT setval(pg_get_serial_sequence(' swarmiji_job', 'id'), 39)")
			return err
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// withNUL gives a deferred task a header with a NUL, and a header that looks like a field.
func withNUL(t *testing.T, conn *sqlconn.Conn, version int) {
	t.Helper()
	if version == 1 {
		return
	}
	if err := conn.Update(bound(t), func(ctx context.Context, tx *sqlconn.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE swarmiji_job SET data = '{"task":"d4","deliveries":1,"onward":{"h":"\u0000\"atMostOnce\":true"}}' WHERE unique_key = 'swarmiji.deferred/d4'`)
		if err == nil && n != 1 {
			err = fmt.Errorf("%d rows are of task d4", n)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// usersJobs returns the rows of users' jobs in a table, by id.
func usersJobs(t *testing.T, conn *sqlconn.Conn, table string, version int) map[int64]string {
	t.Helper()
	columns := []string{
		"name", "state", "priority", "created", "changed", "next_run", "last_run", "scheduled", "due", "parent", "has_children", "mock", "run", "token", "repeat",
		"retry_after", "sequence_key", "reason",
	}
	where := ""
	if version > 1 {
		where = " WHERE queue IS NULL OR queue NOT LIKE 'swarmiji.%'"
		columns = append(columns, "queue", "queue_due", "weight", "time_window", "timeout", "deadline", "unique_key", "answer_key", "phase", "respond", "answer", "expires")
	}
	for i, c := range columns {
		columns[i] = "coalesce(CAST(" + c + " AS text), '-')"
	}
	rows := map[int64]string{}
	if err := conn.View(bound(t), func(ctx context.Context, tx *sqlconn.Tx) error {
		clear(rows)
		found, err := tx.Query(ctx, "SELECT id, "+strings.Join(columns, " || ' ' || ")+" FROM "+table+where)
		if err != nil {
			return err
		}
		for found.Next() {
			var id int64
			var text string
			if err := found.Scan(&id, &text); err != nil {
				return err
			}
			rows[id] = text
		}
		return errors.Join(found.Err(), found.Close())
	}); err != nil {
		t.Fatal(err)
	}
	return rows
}

// wantCounts holds the attempts, the hand-outs and the data of each job after the upgrade. Old
// versions stored both counts in the data. They have columns now, and only the user's data remain
// there.
var wantCounts = map[jobstore.ID]string{
	1: `0 0 {"a":1}`, 4: `1 1 {}`, 5: `1 0 {}`, 6: `1 0 {}`, 7: `0 0 {}`, 8: `0 0 {}`, 37: `2 0 {"n":1.50}`, 38: `3 0 {}`, 39: `2 2 {"a":{"retryAfterCount":9}}`,
}

func checkCounts(t *testing.T, s *sqljobs.Store, version int) {
	t.Helper()
	got := map[jobstore.ID]string{}
	for id := range wantCounts {
		if err := s.View(bound(t), func(ctx context.Context, tx jobstore.Tx) error {
			j, err := tx.Get(ctx, id)
			// SQLite formats JSON again
			data := regexp.MustCompile(` *([:{}]) *`).ReplaceAllString(string(j.Data), "$1")
			got[id] = fmt.Sprint(j.Attempt, " ", j.Handouts, " ", data)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if version > 1 { // the messages of tasks with conditions were stored as data of their jobs
		if err := s.View(bound(t), func(ctx context.Context, tx jobstore.Tx) error {
			messages, err := tx.Messages(ctx, 18, 19, 20)
			for id, text := range messages {
				j, _ := tx.Get(ctx, id)
				got[id] = fmt.Sprintf("%s %s", j.Data, text)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(got[19], `{} {"swarmiji":1,"queue":"q","message":{"v":1,"id":"c1"`) || !strings.HasPrefix(got[20], `{} {"swarmiji":1,"queue":"q","message":{"v":1,"id":"c2"`) {
			t.Errorf("the messages are %q and %q", got[19], got[20])
		}
		delete(got, 19)
		delete(got, 20)
	}
	if diff := gocmp.Diff(wantCounts, got); diff != "" {
		t.Errorf("attempts, hand-outs and data (-want +got):\n%s", diff)
	}
}

// upgrade migrates a database of an old version, with two processes at once, and returns the store
// of one of them.
func upgrade(t *testing.T, dsn string, version int) *sqljobs.Store {
	t.Helper()
	conn := jobsConn(t, dsn)
	oldVersion(t, conn, version)
	oldRows(t, conn, version)
	withNUL(t, conn, version)
	// Statements that an old process has prepared fail after the migration.
	old := func() error {
		return conn.Update(bound(t), func(ctx context.Context, tx *sqlconn.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE swarmiji_job SET token = token WHERE id = $1", 1)
			return err
		})
	}
	if err := old(); err != nil {
		t.Fatal(err)
	}
	before := usersJobs(t, conn, "swarmiji_job", version)
	var both sync.WaitGroup
	stores := []*sqljobs.Store{open(t, dsn), open(t, dsn)}
	for _, s := range stores {
		both.Go(func() {
			if err := s.View(bound(t), func(context.Context, jobstore.Tx) error { return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if diff := gocmp.Diff(before, usersJobs(t, conn, "swarmiji_jobs", version)); diff != "" || len(before) < 12 {
		t.Errorf("the jobs are others than before (-before +after):\n%s", diff)
	}
	if err := old(); err == nil || !strings.Contains(err.Error(), "swarmiji_job") || strings.Contains(err.Error(), "swarmiji_jobs") {
		t.Errorf("a process of the old version goes on, with the error %v", err)
	}
	checkCounts(t, stores[0], version)
	return stores[0]
}

// TestUpgradeFromVersion1 shows that jobs in the tables of version 1 can be claimed, and that jobs
// of queues can be added.
func TestUpgradeFromVersion1(t *testing.T) {
	each(t, func(t *testing.T, dsn string) {
		s := upgrade(t, dsn, 1)
		past := time.Now().Add(-time.Minute).Truncate(time.Microsecond).UTC()
		waits := job("new", 1, past)
		waits.Queue, waits.Weight = "q", 1000
		save(t, s, waits)
		got, _, err := taken(bound(t), s, pattern("queued"), 9, time.Minute)
		if err != nil || len(got) != 1 || got[0].ID != 1 || string(got[0].Data) != `{"a":1}` {
			t.Errorf("taken: %+v, %v", got, err)
		}
		line := found(t, s, jobstest.Query{Page: jobstore.Page{Limit: 9}, Line: &jobstore.Line{Queue: "q", State: jobstore.Queued}})
		if len(line) != 1 || !gocmp.Equal(*waits, line[0]) {
			t.Errorf("in the line: %v", names(line))
		}
	})
}

// TestUpgradeKeepsAnswers shows that early answers and deferred tasks of versions 2 and 3 are
// unchanged after the upgrade, each in its present table.
func TestUpgradeKeepsAnswers(t *testing.T) {
	for _, version := range []int{2, 3} {
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) {
			each(t, func(t *testing.T, dsn string) { keepsAnswers(t, upgrade(t, dsn, version)) })
		})
	}
}

func keepsAnswers(t *testing.T, store *sqljobs.Store) {
	t.Helper()
	s, err := jobs.New(jobs.Config{Store: store, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := deferrals.New(deferrals.Config{Jobs: s})
	if err != nil {
		t.Fatal(err)
	}
	ctx := bound(t)
	if left := found(t, store, jobstest.Query{Name: "ask"}); len(left) != 0 {
		t.Errorf("among the jobs are still %v", names(left))
	}
	var got []string
	if err := store.View(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		got = nil
		for i := 1; i <= 12; i++ {
			all, err := tx.Deferrals(ctx, task.ID(fmt.Sprint("d", i)))
			if err != nil {
				return err
			}
			for j := range all {
				got = append(got, told(&all[j]))
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`d1 q ask 0 once=false k1 RESERVED "" "" "" claimed=false fence=1 deadline=true due=true expires=false {"task":"d1","deliveries":1}`,
		`d2 q ask 0 once=false k2 RESERVED "ANSWER" "2" "" claimed=false fence=1 deadline=true due=true expires=false {"task":"d2","deliveries":1}`,
		`d3 q ask 0 once=true k3 RESERVED "REFUSAL" "" "no" claimed=false fence=1 deadline=true due=true expires=false {"task":"d3","deliveries":1,"atMostOnce":true}`,
		`d4 q ask 2 once=false k4 AWAITING "" "" "" claimed=false fence=1 deadline=true due=true expires=false {"task":"d4","deliveries":1,"onward":{"h":"\u0000\"atMostOnce\":true"}}`,
		`d5 q ask 0 once=false k5 OVER "ANSWER" "" "" claimed=true fence=3 deadline=false due=false expires=true `,
		`d6 q ask 0 once=false k6 OVER "" "" "" claimed=true fence=2 deadline=false due=false expires=true `,
		`d7 q ask 1 once=false k7 RESERVED "" "" "" claimed=false fence=4 deadline=true due=true expires=false `,
		`d8 q ask 0 once=false k8 DECIDED "TIMEOUT" "" "" claimed=true fence=2 deadline=true due=true expires=false {"task":"d8","deliveries":1}`,
		`d9 q ask 0 once=false k9 DECIDED "ANSWER" "9" "" claimed=true fence=3 deadline=false due=true expires=false {"task":"d9","deliveries":1}`,
		`d10 q ask 0 once=false k10 DECIDED "ANSWER" "10" "" claimed=true fence=4 deadline=false due=true expires=false {"task":"d10","deliveries":1}`,
		`d11 q ask 0 once=false k11 DECIDED "REFUSAL" "" "no" claimed=true fence=4 deadline=false due=true expires=false {"task":"d11","deliveries":1}`,
		`d12 q ask 1 once=false k12b RESERVED "" "" "" claimed=false fence=1 deadline=true due=true expires=false {"task":"d12","deliveries":1}`,
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("deferrals (-want +got):\n%s", diff)
	}
	if err := store.View(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		l, err := tx.QueueLease(ctx, "line")
		if l == nil || l.Fence != 3 || l.Admissions != 4 || string(l.Status) != `{"node":"n1","limit":2000}` || !l.Until.After(time.Now()) {
			t.Errorf("the lease of the queue is %+v", l)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	answer := func(name, key string, want jobs.ReceiptKind) {
		t.Helper()
		if r, err := s.Complete(ctx, name, key, 1); err != nil || r.Kind != want {
			t.Errorf("an answer for %s: %+v, %v; want %s", key, r, err, want)
		}
	}
	answer("early", "e1", jobs.Duplicate)
	answer("early", "e2", jobs.Duplicate)
	answer("waits", "w", jobs.Accepted)
	answer("answered", "x", jobs.Duplicate)
	answer("over", "o", jobs.Duplicate)
	for i, want := range map[int]jobs.ReceiptKind{
		1: jobs.Accepted, 2: jobs.Duplicate, 4: jobs.Accepted, 5: jobs.Duplicate, 6: jobs.Late, 7: jobs.Accepted, 8: jobs.Late, 9: jobs.Duplicate,
	} {
		answer("ask", fmt.Sprint("k", i), want)
	}
	for _, e := range []struct{ key, state string }{{"e1", `{"n":1}`}, {"e2", "too busy"}} {
		made, err := s.Create(ctx, jobs.Spec{Name: "early", Key: e.key, Respond: true})
		if err != nil {
			t.Fatal(err)
		}
		h, err := s.Get(ctx, jobs.Request{Max: 9, Selector: jobstore.Selector{Names: []string{"early"}}, Lease: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		mine := slices.IndexFunc(h, func(h jobstore.Handout) bool { return h.ID == made.ID })
		there, err := s.Await(ctx, jobs.Await{ID: made.ID, Token: h[mine].Token})
		if j, _ := s.Query(ctx, made.ID); err != nil || !there || string(j.Answer)+j.Reason != e.state {
			t.Errorf("the early answer %s came to %v, %v: %+v", e.key, there, err, j)
		}
	}
	a := deferral.Attempt{Queue: "q", Name: "ask", Task: "d2", State: []byte("{}")}
	if err := kept.Reserve(ctx, a, "k2"); err != nil {
		t.Fatal(err)
	}
	if status, err := kept.Defer(ctx, a, "k2", time.Hour); err != nil || !status.Answered {
		t.Errorf("the answer of a repeated attempt: %+v, %v", status, err)
	}
	sub, err := kept.Subscribe(ctx, []string{"q"}, broker.SubscribeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[task.ID]deferral.Kind{}
	for len(seen) < 4 {
		d, err := sub.Receive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if seen[d.Attempt().Task] = d.Outcome().Kind; d.Ack(ctx) != nil {
			t.Error("a deferral is not settled")
		}
	}
	if diff := gocmp.Diff(map[task.ID]deferral.Kind{"d2": deferral.Answered, "d4": deferral.Answered, "d10": deferral.Answered, "d11": deferral.Refused}, seen); diff != "" {
		t.Errorf("handed out (-want +got):\n%s", diff)
	}
	if err := errors.Join(sub.Close(ctx), s.Close(ctx)); err != nil {
		t.Error(err)
	}
}

func told(d *jobstore.Deferral) string {
	return fmt.Sprintf("%s %s %s %d once=%t %s %s %q %q %q claimed=%t fence=%d deadline=%t due=%t expires=%t %s", d.Task, d.Queue, d.Name, d.Generation, d.AtMostOnce,
		d.Key, d.Phase, d.Verdict, d.Answer, d.Refusal, d.Claimed, d.Fence, !d.Deadline.IsZero(), !d.Due.IsZero(), !d.Expires.IsZero(), d.State)
}
