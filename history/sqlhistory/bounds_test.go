package sqlhistory_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/history/sqlhistory"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/task"
)

// rows is the number of records of the tests of this file: more than a page examines. It is
// 1,000,000 with SWARMIJI_THOROUGH, and the value of SWARMIJI_RECORDS if that is set.
func rows() int {
	if n, err := strconv.Atoi(os.Getenv("SWARMIJI_RECORDS")); err == nil {
		return max(n, history.MaxExamined+10_000)
	}
	if testserver.IsThorough() {
		return 1_000_000
	}
	return history.MaxExamined + 10_000
}

func batch(t testing.TB, es ...events.Event) *history.Batch {
	t.Helper()
	b := &history.Batch{Now: time.Now()}
	for i := range es {
		if err := events.Normalize(&es[i]); err != nil {
			t.Fatal(err)
		}
		b.Facts = append(b.Facts, history.NewFacts(&es[i]))
	}
	return b
}

// filled is a store with n tasks that succeeded, of ten names, and 12 that failed among them.
type filled struct {
	testing.TB
	*sqlhistory.Store
	ctx context.Context
	n   int
}

const failedTasks = 12

// fill makes the records in the database: from one record of each kind it makes many.
func fill(t testing.TB, url string, n int) *filled {
	ctx, namespace := context.Background(), testserver.Namespace() // a million rows take minutes
	s := openStore(t, sqltest.Open(t, url), namespace)
	now := time.Now()
	for i := range 10 {
		id := task.ID(fmt.Sprint("ok-", i))
		at := now.Add(-time.Duration(i) * 100 * time.Millisecond)
		_, err := s.Record(ctx, batch(t,
			events.Event{Type: events.TaskReceived, TaskID: id, Time: at, Name: fmt.Sprint("mail.", i), Queue: "mails", Fields: events.TaskInfo{Headers: map[string]string{"tenant": "42"}}.Fields(nil)},
			events.Event{Type: events.TaskSucceeded, TaskID: id, Time: at, Runtime: time.Millisecond},
		))
		if err != nil {
			t.Fatal(err)
		}
	}
	many(t, url, namespace, "ok-%", n/10-1)
	analyze(t, url) // before tasks fail: the statistics know one state only
	_, err := s.Record(ctx, batch(t,
		events.Event{Type: events.TaskReceived, TaskID: "bad", Time: now, Name: "mail.3", Queue: "mails", Fields: events.TaskInfo{Root: "flow", Group: "g"}.Fields(nil)},
		events.Event{Type: events.TaskFailed, TaskID: "bad", Time: now, Exception: "no such host", Fields: events.TaskInfo{Class: "net.DNSError", DeadLetter: true}.Fields(nil)},
	))
	if err != nil {
		t.Fatal(err)
	}
	many(t, url, namespace, "bad", failedTasks-1)
	return &filled{t, s, ctx, n/10*10 + failedTasks}
}

// many copies the records with such ids n times, each a second earlier, in transactions of some of
// the copies.
func many(t testing.TB, url, namespace, like string, n int) {
	t.Helper()
	const each = 2500
	conn, columns := sqltest.Conn(t, url), "ns, state, name, queue, class, node, parent, root, grp, wait, run, attempts, error, facts"
	copies := `WITH RECURSIVE i(n) AS (SELECT CAST($1 AS bigint) UNION ALL SELECT n + 1 FROM i WHERE n < $2)
		INSERT INTO swarmiji_history (id, changed, ` + columns + `) SELECT h.id || '-' || i.n, h.changed - CAST(1000 AS bigint) * i.n, h.` + strings.ReplaceAll(columns, ", ", ", h.") + `
		FROM i CROSS JOIN swarmiji_history AS h WHERE h.seq BETWEEN $3 AND $4`
	headers := `INSERT INTO swarmiji_history_header (seq, label, value, changed) SELECT h.seq, k.id, 'other', h.changed FROM swarmiji_history AS h
		JOIN swarmiji_history_label AS k ON k.ns = h.ns AND k.kind = 4 WHERE h.seq > $1 ON CONFLICT DO NOTHING`
	var first, last int64
	err := conn.View(context.Background(), func(ctx context.Context, tx *sqlconn.Tx) error {
		return tx.Row(ctx, `SELECT min(h.seq), max(h.seq) FROM swarmiji_history AS h JOIN swarmiji_history_space AS s ON s.ns = h.ns
			WHERE s.namespace = $1 AND h.id LIKE $2`, namespace, like).Scan(&first, &last)
	})
	done := first - 1 // records up to this number have their headers
	for from := 1; from <= n && err == nil; from += each {
		err = conn.Update(context.Background(), func(ctx context.Context, tx *sqlconn.Tx) error {
			if _, err := tx.Exec(ctx, copies, from, min(from+each-1, n), first, last); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, headers, done); err != nil {
				return err
			}
			return tx.Row(ctx, "SELECT max(seq) FROM swarmiji_history").Scan(&done)
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// analyze lets PostgreSQL collect statistics, as autovacuum does.
func analyze(t testing.TB, url string) {
	t.Helper()
	conn := sqltest.Conn(t, url)
	if conn.Dialect() != sqlconn.Postgres {
		return
	}
	err := conn.Single(context.Background(), func(ctx context.Context, tx *sqlconn.Tx) error {
		_, err := tx.Exec(ctx, "ANALYZE swarmiji_history")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func parse(t testing.TB, text string) history.Query {
	t.Helper()
	q, err := history.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return q.At(time.Now())
}

// page returns a page and logs its time. With SWARMIJI_THOROUGH that is the shortest of five
// readings.
func (f *filled) page(text string, o history.PageOptions) (p history.Page) {
	f.Helper()
	least, readings := time.Hour, 1
	if testserver.IsThorough() {
		readings = 5
	}
	for range readings {
		begin := time.Now()
		var err error
		if p, err = f.Page(f.ctx, parse(f, text), o); err != nil {
			f.Fatalf("%s: %v", text, err)
		}
		least = min(least, time.Since(begin))
	}
	f.Logf("%-60s %4d records, complete %-5v %v", text, len(p.Records), p.Complete, least.Round(10*time.Microsecond))
	return p
}

// TestBounds shows that the 12 failed tasks are found among many. No page examines more than its
// bound, and the pages behind it have the rest.
func TestBounds(t *testing.T) {
	for name, url := range databases() {
		t.Run(name, func(t *testing.T) {
			f := fill(t, url(t), rows())
			for _, text := range []string{
				"state:failed", "state:dead name:mail.*", "name:mail.3 state:failed queue:mails", "error~HOST", "class:net.*", "root:flow", "group:g -state:succeeded",
				"state:failed since:1h -header.tenant:42", "node:* state:failed,retrying wait<1s", "state:failed run<1s attempts<2",
			} {
				want := failedTasks
				if strings.Contains(text, "wait") { // no start was heard
					want = 0
				}
				if p := f.page(text, history.PageOptions{}); len(p.Records) != want || !p.Complete || p.Next != "" {
					t.Errorf("%s: %d records, complete %v, next %q", text, len(p.Records), p.Complete, p.Next)
				}
			}
			for _, text := range []string{"", "state:succeeded", "name:mail.*", "queue:mails", "name:mail.1,mail.2 -state:failed", "header.tenant:other", "run<1h since:90000h"} {
				if p := f.page(text, history.PageOptions{}); len(p.Records) != history.DefaultPage || !p.Complete || p.Next == "" {
					t.Errorf("%s: %d records, complete %v, next %q", text, len(p.Records), p.Complete, p.Next)
				}
			}
			for text, found := range map[string]int{"run>1h": 0, "name:mail.* error~host": failedTasks, "queue:mails parent:none": 0, "header.tenant:other wait>1h": 0} {
				f.allPages(text, found)
			}
			if n, err := f.Count(f.ctx, parse(t, "state:succeeded")); n.N != history.MaxCount || !n.AtLeast || err != nil {
				t.Errorf("%+v, %v", n, err)
			}
			if n, err := f.Count(f.ctx, parse(t, "state:succeeded run>1h")); n.N != 0 || !n.AtLeast || err != nil {
				t.Errorf("%+v, %v", n, err)
			}
		})
	}
}

// allPages reads the pages of a query whose first one must end at the bound, unless its records are
// found before.
func (f *filled) allPages(text string, want int) {
	f.Helper()
	found, pages, o := 0, 0, history.PageOptions{}
	for {
		p := f.page(text, o)
		found, pages = found+len(p.Records), pages+1
		if p.Complete != (p.Next == "") {
			f.Errorf("%s: page %d is complete: %v, next %q", text, pages, p.Complete, p.Next)
		}
		if o.After = p.Next; o.After == "" || f.Failed() {
			break
		}
	}
	// a few records have another header or none
	if least := (f.n-100)/history.MaxExamined + 1; found != want || want == 0 && pages < least {
		f.Errorf("%s: %d records in %d pages, want %d in at least %d", text, found, pages, want, least)
	}
}

// TestIndexes shows which index answers a query.
func TestIndexes(t *testing.T) {
	for name, url := range databases() {
		t.Run(name, func(t *testing.T) {
			f := fill(t, url(t), 20_000)
			for text, index := range map[string]string{
				"":                                 "swarmiji_history_changed",
				"node:x":                           "swarmiji_history_changed",
				"-state:failed since:1h":           "swarmiji_history_changed",
				"state:failed":                     "swarmiji_history_state",
				"state:failed name:mail.1":         "swarmiji_history_state",
				"name:mail.1 wait>1s":              "swarmiji_history_name",
				"name:mail.3 state:succeeded":      "swarmiji_history_name",
				"queue:mails":                      "swarmiji_history_queue",
				"class:net.DNSError node:x":        "swarmiji_history_class",
				"error~host":                       "swarmiji_history_error",
				"root:flow run>1s":                 "swarmiji_history_root",
				`-root:""`:                         "swarmiji_history_step",
				"group:g":                          "swarmiji_history_grp",
				"header.tenant:42 state:succeeded": "swarmiji_history_header_value",
				"state:succeeded id:ok-1":          "id",
			} {
				plan, err := f.Explain(f.ctx, parse(t, text))
				if err != nil {
					t.Fatalf("%s: %v", text, err)
				}
				used := strings.Contains(plan, index+" ") || index == "id" && (strings.Contains(plan, "autoindex_swarmiji_history_1") || strings.Contains(plan, "swarmiji_history_ns_id_key"))
				if !used || strings.Contains(plan, "Seq Scan on swarmiji_history ") || strings.Contains(plan, "SCAN h") {
					t.Errorf("%q is not answered by %s:\n%s", text, index, plan)
				}
			}
		})
	}
}

// BenchmarkRecord measures the events that a store writes: tasks of four events, in batches of
// 1,000.
func BenchmarkRecord(b *testing.B) {
	for name, url := range databases() {
		b.Run(name, func(b *testing.B) {
			s := openStore(b, sqltest.Open(b, url(b)), testserver.Namespace())
			ctx, n := context.Background(), 0
			b.ReportAllocs()
			for b.Loop() {
				var es []events.Event
				for range 250 {
					n++
					e := events.Event{TaskID: task.ID(fmt.Sprintf("0199ac31-1111-7000-8000-%012d", n)), NodeID: "host-1234-abcdef", Time: time.Now(), Name: fmt.Sprint("mail.", n%20), Queue: "mails", Args: "json, 120 bytes"}
					for _, typ := range []string{events.TaskSent, events.TaskReceived, events.TaskStarted, events.TaskSucceeded} {
						e.Type = typ
						es = append(es, e)
					}
				}
				if _, err := s.Record(ctx, batch(b, es...)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(4*n)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
