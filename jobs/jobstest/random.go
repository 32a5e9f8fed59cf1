package jobstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// randomCases returns the case that compares a store with a ledger after random calls.
func randomCases() []testCase {
	return []testCase{{
		Area: "update", Name: "as a list would do",
		Explain: "After any calls, in committed and undone transactions, a store returns the same as a list that is searched from its start.",
		Run: func(w *world) {
			s := w.Open()
			base := w.now(s)
			rapid.Check(w.TB, func(t *rapid.T) {
				r := ledger{}
				ctx, cancel := w.Ctx()
				defer cancel()
				if err := s.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
					found, err := tx.All(ctx, jobstore.Page{})
					return errors.Join(err, tx.Delete(ctx, ids(found)...))
				}); err != nil {
					t.Fatal(err)
				}
				for range rapid.IntRange(1, 2).Draw(t, "transactions") {
					ops := rapid.SliceOfN(genOp(base), 1, 6).Draw(t, "ops") // drawn before fn, which may run again
					commit := rapid.IntRange(0, 3).Draw(t, "commit") > 0
					var after ledger
					err := s.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
						after = r.clone()
						for i, o := range ops {
							if err := o.run(ctx, tx, &after); err != nil {
								return fmt.Errorf("op %d: %w", i, err)
							}
						}
						if !commit {
							return errCase
						}
						return nil
					})
					if commit && err != nil || !commit && !errors.Is(err, errCase) {
						t.Fatal(err)
					}
					if commit {
						r = after
					}
					if err := s.View(ctx, func(ctx context.Context, tx jobstore.Tx) error { return r.compare(ctx, tx) }); err != nil {
						t.Fatal(err)
					}
				}
			})
		},
	}}
}

// ledger contains the expected jobs of a store, in the order of ids.
type ledger struct{ jobs []jobs.Row }

// clone returns a copy whose list can be changed without a change of r.
func (r *ledger) clone() ledger { return ledger{slices.Clone(r.jobs)} }

// compare reads all jobs and returns an error if they differ from the ledger, or the error of the
// read.
func (r *ledger) compare(ctx context.Context, tx jobstore.Tx) error {
	found, err := tx.All(ctx, jobstore.Page{})
	if err != nil {
		return err
	}
	return differ("all", found, r.jobs)
}

// differ returns an error with the difference of two lists of jobs, or nil if they are equal. what
// names the lists.
func differ(what string, got, want []jobs.Row) error {
	if len(got)+len(want) == 0 {
		return nil
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("%s (-want +got):\n%s", what, diff)
	}
	return nil
}

// index returns the position of a job in r.jobs, or -1.
func (r *ledger) index(id jobs.ID) int {
	return slices.IndexFunc(r.jobs, func(j jobs.Row) bool { return j.ID == id })
}

// op is one call, drawn beforehand.
type op struct {
	Kind  string
	Pick  int // index of the job
	Job   jobs.Row
	Query Query
	Token int64
	Lease time.Duration
}

// pick returns the id of the expected job with the number n, counted in a circle. For one n in ten,
// and without jobs, it returns an id that no job has.
func (r *ledger) pick(n int) jobs.ID {
	if len(r.jobs) == 0 || n%10 == 9 {
		return 1 << 50
	}
	return r.jobs[n%len(r.jobs)].ID
}

// run performs the call in tx and the same change in the ledger r. Returns an error if the results
// differ, or the error of the call. A call that tx does not implement is skipped.
func (o *op) run(ctx context.Context, tx jobstore.Tx, r *ledger) error {
	id := r.pick(o.Pick)
	at := r.index(id)
	switch o.Kind {
	case "add":
		return o.add(ctx, tx, r)
	case "change":
		if at < 0 {
			return nil
		}
		j := o.Job
		j.ID = id
		r.jobs[at] = j
		return tx.Save(ctx, &j)
	case "get":
		got, err := tx.Get(ctx, id)
		if at < 0 {
			if !errors.Is(err, jobs.ErrNotFound) {
				return fmt.Errorf("getting a job that is not there: %w", err)
			}
			return nil
		}
		return errors.Join(err, differ("get", []jobs.Row{got}, r.jobs[at:at+1]))
	case "delete":
		if at >= 0 {
			r.jobs = slices.Delete(r.jobs, at, at+1)
		}
		return tx.Delete(ctx, id)
	case "find":
		found, err := o.Query.Find(ctx, tx)
		return errors.Join(err, differ(fmt.Sprintf("find %+v", o.Query), found, filter(r.jobs, &o.Query)))
	case "due":
		found, err := o.Query.Find(ctx, tx)
		return errors.Join(err, differ(fmt.Sprintf("due %+v", *o.Query.Due), found, pick(r.jobs, o.Query.Due.Selector, o.Query.Due.By, o.Query.Limit)))
	case "line":
		found, err := o.Query.Find(ctx, tx)
		return errors.Join(err, differ(fmt.Sprintf("line %+v", *o.Query.Line), found, inLine(r.jobs, o.Query.Line, o.Query.Line.By, o.Query.Limit)))
	case "weigh":
		if g, ok := capability.As[jobstore.Weigher](tx); ok {
			n, weight, err := g.Weigh(ctx, "q")
			if wantN, want := weighed(r.jobs, "q"); err == nil && (n != wantN || weight != want) {
				err = fmt.Errorf("%d run that weigh %d, not %d that weigh %d", n, weight, wantN, want)
			}
			return err
		}
	case "take":
		if t, ok := capability.As[jobstore.Taker](tx); ok {
			return o.take(ctx, t, r)
		}
	case "drop":
		if d, ok := capability.As[jobstore.Dropper](tx); ok {
			return o.drop(ctx, d, r, id)
		}
	}
	return nil
}

// add saves two new jobs in tx and appends them to r. Returns an error if their ids do not grow, or
// the error of Save.
func (o *op) add(ctx context.Context, tx jobstore.Tx, r *ledger) error {
	one, two := o.Job, o.Job
	two.Name = "second"
	if err := tx.Save(ctx, &one, &two); err != nil {
		return err
	}
	last := jobs.ID(0)
	if n := len(r.jobs); n > 0 {
		last = r.jobs[n-1].ID
	}
	if one.ID <= last || two.ID <= one.ID {
		return fmt.Errorf("the ids after %d are %d and %d", last, one.ID, two.ID)
	}
	r.jobs = append(r.jobs, one, two)
	return nil
}

// take calls Take and claims the expected jobs in r. Returns an error if the claimed jobs or rest
// differ, or the error of Take. The time of the claims is taken from the store.
func (o *op) take(ctx context.Context, t jobstore.Taker, r *ledger) error {
	got, rest, err := t.Take(ctx, *o.Query.Due, o.Query.Limit, o.Lease)
	if err != nil {
		return err
	}
	var want []jobs.Row
	wantRest := false
	for _, j := range pick(r.jobs, o.Query.Due.Selector, o.Query.Due.By, o.Query.Limit) {
		if j.RetryAfter != "" || j.Parent != 0 || j.HasChildren {
			wantRest = true
			break
		}
		if j.State == jobs.Queued {
			j.Run++
			j.Scheduled = j.NextRun
		}
		if j.State != jobs.Running {
			j.Attempt++
		}
		j.State, j.Due = jobs.Running, time.Time{}
		j.Token++
		if len(got) > len(want) { // the time is the store's
			j.LastRun = got[len(want)].LastRun
		}
		j.Changed = j.LastRun
		if o.Lease > 0 {
			j.Due = j.LastRun.Add(o.Lease)
		}
		want = append(want, j)
		r.jobs[r.index(j.ID)] = j
	}
	if rest != wantRest {
		err = fmt.Errorf("rest is %v after %d jobs", rest, len(got))
	}
	return errors.Join(err, differ(fmt.Sprintf("take %+v", *o.Query.Due), got, want))
}

// drop calls Drop for the job id and deletes the job from r if Drop must delete it. Returns an
// error if the results differ, or the error of Drop.
func (o *op) drop(ctx context.Context, d jobstore.Dropper, r *ledger, id jobs.ID) error {
	at := r.index(id)
	want := at >= 0 && r.jobs[at].Simple() && r.jobs[at].State.Runs() && (o.Token == 0 || o.Token == r.jobs[at].Token)
	got, err := d.Drop(ctx, id, o.Token)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("dropped: %v, should be: %v", got, want)
	}
	if want {
		r.jobs = slices.Delete(r.jobs, at, at+1)
	}
	return nil
}

// genOp generates calls whose times lie around base.
func genOp(base time.Time) *rapid.Generator[op] {
	job, query, selector, line := genJob(base), genQuery(base), genSelector(), genLine(base)
	return rapid.Custom(func(t *rapid.T) op {
		o := op{
			Kind: rapid.SampledFrom([]string{"add", "add", "add", "change", "change", "get", "delete", "find", "due", "line", "line", "weigh", "take", "drop"}).Draw(t, "kind"),
			Pick: rapid.IntRange(0, 99).Draw(t, "pick"),
		}
		switch o.Kind {
		case "add", "change":
			o.Job = job.Draw(t, "job")
		case "find":
			o.Query = query.Draw(t, "query")
		case "line":
			o.Query = Query{Page: jobstore.Page{Limit: rapid.SampledFrom([]int{1, 2, 100}).Draw(t, "limit")}, Line: line.Draw(t, "line")}
		case "due", "take":
			o.Query = Query{Page: jobstore.Page{Limit: rapid.SampledFrom([]int{1, 2, 100}).Draw(t, "limit")}, Due: &jobs.Due{Selector: selector.Draw(t, "selector"), By: base.Add(time.Duration(rapid.IntRange(-3, 1).Draw(t, "by")) * time.Second)}}
			o.Lease = time.Duration(rapid.IntRange(0, 1).Draw(t, "lease")) * time.Hour
		case "drop":
			o.Token = int64(rapid.IntRange(0, 2).Draw(t, "token"))
		}
		return o
	})
}

// genJob generates jobs that differ in all fields that a search or a claim reads. Their times lie
// around base.
func genJob(base time.Time) *rapid.Generator[jobs.Row] {
	all := []jobs.State{jobs.Queued, jobs.Queued, jobs.Running, jobs.Running, jobs.RunQueued, jobs.Paused, jobs.Waiting, jobs.Finished, jobs.Failed, jobs.Cancelled}
	return rapid.Custom(func(t *rapid.T) jobs.Row {
		j := jobs.Row{Job: jobs.Job{Name: rapid.SampledFrom([]string{"a", "ab", "b", "second"}).Draw(t, "name"), State: rapid.SampledFrom(all).Draw(t, "state"), Priority: rapid.IntRange(99, 101).Draw(t, "priority"), Data: []byte(`{}`), Created: base, Changed: base, NextRun: base}, Run: int64(rapid.IntRange(0, 2).Draw(t, "run")), Token: int64(rapid.IntRange(0, 2).Draw(t, "token"))}
		if due := rapid.IntRange(-4, 1).Draw(t, "due"); due != 1 {
			j.Due = base.Add(time.Duration(due) * time.Second)
		}
		some := func(what string) bool { return rapid.IntRange(0, 4).Draw(t, what) == 4 }
		if some("repeat") {
			j.Repeat = "FINISHED, +1 HOUR"
		}
		if some("retryAfter") {
			j.RetryAfter = "+1 HOUR"
		}
		if some("parent") {
			j.Parent = 5
		}
		if some("key") {
			j.SequenceKey = "k"
		}
		j.HasChildren, j.Mock = some("children"), some("mock")
		if rapid.IntRange(0, 2).Draw(t, "queue") == 2 {
			genQueued(t, &j)
		}
		return j
	})
}

// genQueued draws the fields of j for queues, keys and answers. The queue may be "".
func genQueued(t *rapid.T, j *jobs.Row) {
	j.Queue = rapid.SampledFrom([]string{"q", "q", "q", "Q", ""}).Draw(t, "which queue")
	j.Weight = rapid.Int64Range(0, 2).Draw(t, "weight")
	j.Attempt, j.Timeout, j.Window = j.Run, time.Duration(j.Token)*time.Minute, rapid.SampledFrom([]string{"", "06:00-22:00"}).Draw(t, "window")
	j.Key = rapid.SampledFrom([]string{"", "k", "K"}).Draw(t, "answer key")
	j.UniqueKey = rapid.SampledFrom([]string{"", "k", "u"}).Draw(t, "unique key")
	j.Phase = rapid.SampledFrom([]jobs.Phase{"", jobs.Awaiting, jobs.Answered}).Draw(t, "phase")
	if j.Respond = rapid.Bool().Draw(t, "respond"); j.Respond {
		j.Answer, j.Deadline = []byte(`{"a":1}`), j.Created.Add(time.Hour)
	}
	if at := rapid.IntRange(-2, 1).Draw(t, "expires"); at != 1 {
		j.Expires = j.Created.Add(time.Duration(at) * time.Second)
	}
}

// genLine generates arguments of Line, whose times lie around base.
func genLine(base time.Time) *rapid.Generator[*jobs.Line] {
	return rapid.Custom(func(t *rapid.T) *jobs.Line {
		at := func(what string) time.Time {
			return base.Add(time.Duration(rapid.IntRange(-4, 1).Draw(t, what)) * time.Second)
		}
		l := &jobs.Line{
			Queue: rapid.SampledFrom([]string{"q", "q", "Q"}).Draw(t, "queue"), State: rapid.SampledFrom([]jobs.State{jobs.Queued, jobs.Running}).Draw(t, "state"),
			By: at("by"), Order: jobs.Order(rapid.IntRange(0, 1).Draw(t, "order")),
		}
		if most := rapid.Int64Range(0, 3).Draw(t, "most"); most != 3 {
			l.MaxWeight = task.Set(most)
		}
		if rapid.Bool().Draw(t, "after") {
			l.After = &jobs.Row{Job: jobs.Job{Priority: rapid.IntRange(98, 102).Draw(t, "priority"), ID: jobs.ID(rapid.IntRange(1, 20).Draw(t, "id"))}, Due: at("after's due")}
		}
		return l
	})
}

// genQuery generates queries for Find, except those with Due or Line.
func genQuery(base time.Time) *rapid.Generator[Query] {
	return rapid.Custom(func(t *rapid.T) Query {
		q := Query{}
		name := rapid.SampledFrom([]string{"a", "ab", "A"}).Draw(t, "name")
		q.Limit = rapid.IntRange(0, 3).Draw(t, "limit")
		switch rapid.IntRange(0, 9).Draw(t, "of") {
		case 0:
			q.Queue = "q"
		case 1:
			q.Name, q.Key = name, "k"
		case 2:
			q = uniqueKey(name, "k")
		case 3, 4:
			q = sequence(rapid.SampledFrom([]string{"k", "K"}).Draw(t, "key"))
		case 5:
			q.Parent = rapid.SampledFrom([]jobs.ID{5, 6}).Draw(t, "parent")
		case 6, 7:
			q.Name = name
		case 8:
			q = unique(name)
		}
		if rapid.Bool().Draw(t, "states") {
			q.States = []jobs.State{jobs.Queued, jobs.Failed, jobs.Waiting}
		}
		return q
	})
}

// genSelector generates selectors for Due.
func genSelector() *rapid.Generator[jobs.Selector] {
	return rapid.Custom(func(t *rapid.T) jobs.Selector {
		s := jobs.Selector{
			Pattern: rapid.SampledFrom([]string{"*", "*", "a*", "a", "?", "", "[^a]*"}).Draw(t, "pattern"),
			Names:   rapid.SampledFrom([][]string{nil, {"a"}, {"b", "ab", "b"}}).Draw(t, "names"),
			Mock:    rapid.Bool().Draw(t, "mock"),
		}
		if rapid.IntRange(0, 3).Draw(t, "one priority") == 3 {
			s.Priority = task.Set(100)
		}
		return s
	})
}
