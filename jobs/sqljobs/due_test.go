package sqljobs_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/internal/glob"
	"github.com/swarmiji/swarmiji/jobs/jobstest"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// expected returns the correct answer for d, computed from all jobs.
func expected(all []*jobstore.Row, d jobstore.Due, now time.Time, limit int) (want []jobstore.Row) {
	p := glob.Compile(d.Pattern)
	for _, j := range all {
		switch priority, set := d.Priority.Get(); {
		case j.Due.IsZero() || j.Due.After(now) || j.Mock && !d.Mock || set && priority != j.Priority:
		case d.Pattern != "" && !p.Match(j.Name), d.Pattern == "" && !slices.Contains(d.Names, j.Name):
		default:
			want = append(want, *j)
		}
	}
	slices.SortFunc(want, func(a, b jobstore.Row) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.Due.Compare(b.Due), cmp.Compare(a.ID, b.ID))
	})
	return want[:min(len(want), limit)]
}

// TestDueAgainstAllJobs compares the answers to random queries for due jobs with a check of every
// job. It asks in a View, in a transaction that locks, and from a process that has not written.
func TestDueAgainstAllJobs(t *testing.T) {
	each(t, func(t *testing.T, dsn string) {
		s, other := open(t, dsn), open(t, dsn)
		r := rand.New(rand.NewPCG(1, 2))
		start := time.Now().Add(-time.Hour).Truncate(time.Microsecond).UTC()
		var all []*jobstore.Row
		for round := range 3 {
			var fresh []*jobstore.Row
			for range 200 {
				name := fmt.Sprintf("%c%c/%d", 'a'+rune(r.IntN(3)), 'x'+rune(r.IntN(2)), r.IntN(10+20*round))
				j := job(name, r.IntN(4)*250, start.Add(time.Duration(r.IntN(120))*time.Minute))
				if j.Mock = r.IntN(10) == 0; r.IntN(5) == 0 {
					j.Due = time.Time{}
				}
				fresh = append(fresh, j)
			}
			save(t, s, fresh...)
			all = append(all, fresh...)
			for range 30 {
				d := jobstore.Due{By: start.Add(time.Duration(r.IntN(120)) * time.Minute)}
				switch r.IntN(3) {
				case 0:
					d.Names = []string{all[r.IntN(len(all))].Name, "nobody", all[r.IntN(len(all))].Name}[:1+r.IntN(3)]
				default:
					d.Pattern = []string{
						"*", "**", "a*", "*3", "*9", "[ab]x*", "?y/1", "ax/5", "zz*", "*[", "c[x]/[^1]", "*/2?", "bx/1*",
					}[r.IntN(13)]
				}
				if r.IntN(3) == 0 {
					d.Priority = task.Set(r.IntN(5) * 250)
				}
				d.Mock = r.IntN(3) == 0
				limit := 1 + r.IntN(12)
				want := expected(all, d, d.By, limit)
				for where, ask := range map[string]func(context.Context, func(context.Context, jobstore.Tx) error) error{
					"View": s.View, "Update": s.Update, "Single": s.Single, "another process": other.View,
				} {
					var got []jobstore.Row
					err := ask(bound(t), func(ctx context.Context, tx jobstore.Tx) (err error) {
						got, err = tx.Due(ctx, d, limit)
						return err
					})
					if err != nil || !gocmp.Equal(names(want), names(got)) {
						t.Fatalf("%s: %+v, limit %d: %v\n%s", where, d, limit, err, gocmp.Diff(names(want), names(got)))
					}
				}
			}
		}
	})
}

// TestNewNamesAreFound shows that every process finds a job that was committed before its call,
// however new the job's name is.
func TestNewNamesAreFound(t *testing.T) {
	each(t, func(t *testing.T, dsn string) {
		a, b := open(t, dsn), open(t, dsn)
		ctx := bound(t)
		for i := range 200 { // more names than one sweep removes
			name := fmt.Sprintf("kind-%d-end", i)
			save(t, a, job(name, 100, time.Now().Add(-time.Second)))
			got, _, err := taken(ctx, b, pattern(fmt.Sprintf("k*-%d-*", i)), 1, 0)
			if err != nil || len(got) != 1 || got[0].Name != name {
				t.Fatalf("%s: %v, %v", name, names(got), err)
			}
			err = b.Single(ctx, func(ctx context.Context, tx jobstore.Tx) error {
				if ok, err := tx.(jobstore.Dropper).Drop(ctx, got[0].ID, got[0].Token); err != nil || !ok {
					return cmp.Or(err, errors.New("not dropped"))
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		save(t, a, job("kind-7-end", 100, time.Now())) // a name that was removed, or is about to be
		if got, _, err := taken(ctx, b, pattern("*-7-*"), 1, 0); err != nil || len(got) != 1 {
			t.Errorf("%v, %v", got, err)
		}
		if n := countNames(t, dsn); n > 150 {
			t.Errorf("%d names are kept of 200 whose jobs are gone", n)
		}
	})
}

// TestTake shows which fields Take changes and at which job it stops.
func TestTake(t *testing.T) {
	each(t, func(t *testing.T, dsn string) {
		s := open(t, dsn)
		ctx := bound(t)
		past := time.Now().Add(-time.Minute).Truncate(time.Microsecond).UTC()
		first, second, third := job("a", 1, past), job("a", 2, past), job("b", 3, past)
		first.SequenceKey, first.Repeat = "key", "DAILY"
		third.RetryAfter = "+5 MINUTES"
		save(t, s, first, second, third)
		for _, p := range []string{"*", "[ab]"} {
			got, rest, err := taken(ctx, s, pattern(p), 5, time.Minute)
			if err != nil || !rest || len(got) != 2 {
				t.Fatalf("%v, %t, %v", names(got), rest, err)
			}
			for i, was := range []*jobstore.Row{first, second} {
				want := *was
				want.State, want.Run, want.Token, want.Attempt, want.Scheduled = jobstore.Running, 1, was.Token+1, was.Attempt+1, past
				want.LastRun, want.Changed, want.Due = got[i].LastRun, got[i].LastRun, got[i].LastRun.Add(time.Minute)
				if diff := gocmp.Diff(want, got[i]); diff != "" {
					t.Error(diff)
				}
				stored := found(t, s, jobstest.Query{IDs: []jobstore.ID{was.ID}})
				if diff := gocmp.Diff(got[i:i+1], stored); diff != "" {
					t.Error(diff)
				}
				again := got[i]
				again.State, again.Due, again.Run, again.Scheduled = jobstore.Queued, past, 0, time.Time{}
				*was = again
			}
			if err := s.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error { return tx.Save(ctx, first, second) }); err != nil {
				t.Fatal(err)
			}
		}
		if got, rest, err := taken(ctx, s, pattern("b"), 1, 0); err != nil || !rest || len(got) != 0 {
			t.Errorf("%v, %t, %v", names(got), rest, err)
		}
		if got, rest, err := taken(ctx, s, pattern("c"), 1, 0); err != nil || rest || len(got) != 0 {
			t.Errorf("%v, %t, %v", names(got), rest, err)
		}
		if _, _, err := taken(ctx, s, pattern("*"), 0, 0); !errors.Is(err, jobstore.ErrBadJob) {
			t.Errorf("a limit of 0: %v", err)
		}
	})
}

// TestHostileTexts shows that texts with the syntax of a database are stored and found as plain
// texts.
func TestHostileTexts(t *testing.T) {
	each(t, func(t *testing.T, dsn string) {
		s := open(t, dsn)
		ctx := bound(t)
		evil := []string{"' OR 1=1 --", `"; DROP TABLE swarmiji_jobs; --`, "%", "_", `a\`, "$1", "é\u202e", strings.Repeat("x", jobstore.MaxName)}
		for _, name := range evil {
			j := job(name, 100, time.Now().Add(-time.Second))
			j.SequenceKey, j.Reason, j.Data = name, name, []byte(`{"a":"\u0000"}`)
			save(t, s, j)
			for what, q := range map[string]jobstest.Query{
				"name": {Name: name}, "key": {Page: jobstore.Page{Limit: 1}, Group: &jobstore.Group{By: jobstore.BySequence, Key: name}}, "due": {Page: jobstore.Page{Limit: 9}, Due: &jobstore.Due{Selector: jobstore.Selector{Names: []string{name}}}},
			} {
				if got := found(t, s, q); len(got) != 1 || got[0].Name != name || string(got[0].Data) != string(j.Data) {
					t.Errorf("%q by %s: %v", name, what, names(got))
				}
			}
		}
		for _, name := range []string{"a\x00b", "\xff", strings.Repeat("x", 1<<20)} {
			for what, q := range map[string]jobstest.Query{
				"name": {Name: name}, "key": {Page: jobstore.Page{Limit: 1}, Group: &jobstore.Group{By: jobstore.BySequence, Key: name}}, "state": {Page: jobstore.Page{States: []jobstore.State{jobstore.State(name)}}},
				"due":     {Page: jobstore.Page{Limit: 9}, Due: &jobstore.Due{Selector: jobstore.Selector{Names: []string{name}}}},
				"pattern": {Page: jobstore.Page{Limit: 9}, Due: &jobstore.Due{Selector: jobstore.Selector{Pattern: name}}},
				"glob":    {Page: jobstore.Page{Limit: 9}, Due: &jobstore.Due{Selector: jobstore.Selector{Pattern: "[q]*" + name + "*"}}},
			} {
				if got := found(t, s, q); len(got) != 0 {
					t.Errorf("%.9q by %s: %v", name, what, names(got))
				}
			}
			err := s.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error { return tx.Save(ctx, job(name, 1, time.Now())) })
			if !errors.Is(err, jobstore.ErrBadJob) {
				t.Errorf("Save of %.9q: %v", name, err)
			}
			if err := s.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error { return tx.Lock(ctx, name[:min(300, len(name))]) }); err != nil {
				t.Errorf("Lock of %.9q: %v", name, err)
			}
		}
	})
}
