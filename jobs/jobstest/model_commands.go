package jobstest

import (
	"context"
	"errors"
	"fmt"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/task"
)

// create creates a job with a drawn spec, in the service and in the model (make).
func (p *play) create() { p.make(p.spec()) }

// make calls Service.Create with the spec s and compares the result with the model (both).
func (p *play) make(s *modelSpec) {
	var got jobs.Created
	p.both(fmt.Sprintf("create %+v", *s), func(ctx context.Context) (err error) {
		got, err = p.service.Create(ctx, s.Spec)
		return err
	}, func(m *model, now time.Time) []error { return m.created(s, got, now) })
}

// created applies s to the model, with got, the result of the service, as the id of the job.
// Returns the errors that the service may return. Returns an error that no service returns if the
// rules lead to another id or another Existed than got.
func (m *model) created(s *modelSpec, got jobs.Created, now time.Time) []error {
	id, existed, errs := m.create(s, got.ID, now)
	if len(errs) == 0 && got.ID != 0 && (id != got.ID || existed != got.Existed) {
		return []error{fmt.Errorf("the answer is %+v, the rules say job %d, existed %v", got, id, existed)}
	}
	return errs
}

// createAll calls Service.CreateAll with up to four drawn specs and compares the result with the
// model (both).
func (p *play) createAll() {
	specs := make([]jobs.Spec, rapid.IntRange(1, 4).Draw(p.t, "specs"))
	mine := make([]*modelSpec, len(specs))
	for i := range specs {
		mine[i] = p.spec()
		specs[i] = mine[i].Spec
	}
	var got []jobs.Created
	p.both(fmt.Sprintf("create all %+v", specs), func(ctx context.Context) (err error) {
		got, err = p.service.CreateAll(ctx, specs)
		return err
	}, func(m *model, now time.Time) (errs []error) {
		fresh := m.last
		for i := range mine {
			answer := jobs.Created{}
			if got != nil {
				answer = got[i]
			} else { // it was refused: any id reveals the reason
				fresh++
				answer.ID = fresh
				if id, existed, _ := m.clone().create(mine[i], fresh, now); existed {
					answer = jobs.Created{ID: id, Existed: true}
				}
			}
			errs = append(errs, m.created(mine[i], answer, now)...)
		}
		return errs
	})
}

// get claims jobs by a drawn request and compares them with the model (ask).
func (p *play) get() {
	r := jobs.Request{Max: draw(p, "max", 0, 1, 2, 5)}
	switch draw(p, "selector", "pattern", "pattern", "names") {
	case "pattern":
		r.Pattern = draw(p, "pattern", "*", "*", "a", "[ab]", "c/?", "man*", "z*")
	default:
		r.Names = draw(p, "names", []string{"a"}, []string{"b", "c/1", "b"})
	}
	r.Mock = p.one(4, "mocks too")
	if p.one(4, "one priority") {
		r.Priority = task.Set(draw(p, "of priority", 50, 100))
	}
	if p.one(3, "with lease") {
		r.Lease = draw(p, "lease", time.Minute, 3*time.Hour)
	}
	p.ask(r)
}

// ask calls Service.Get and compares the claimed jobs, their order and all returned fields with the
// model. It adds the claims to p.handouts. A difference ends the run as failed.
func (p *play) ask(r jobs.Request) {
	var got []jobs.Handout
	var want []handout
	p.t.Logf("get %+v", r)
	p.both("get", func(ctx context.Context) (err error) {
		got, err = p.service.Get(ctx, r)
		return err
	}, func(m *model, now time.Time) []error {
		if want = m.get(r.Selector, r.Lease, max(r.Max, 1), now, p.times); len(want) == 0 {
			return []error{jobs.ErrNoJob}
		}
		return nil
	})
	if len(got) != len(want) {
		p.t.Fatalf("%d jobs were handed out, the rules say %d: %v, %v", len(got), len(want), got, want)
	}
	for i := range got {
		if err := p.model.shows(&got[i], want[i]); err != nil {
			p.t.Fatalf("the answer, job %d of %d: %v", i, len(got), err)
		}
		p.handouts = append(p.handouts, kept{got[i], want[i]})
	}
}

// shows compares a claim of the service with the claim want of the model: the job with the data
// from before the claim, its parent's data and its ended children. Returns the differences, joined,
// or nil.
func (m *model) shows(got *jobs.Handout, want handout) error {
	j := m.jobs[want.id]
	now := *j
	now.data = want.data
	errs := []error{now.compare(&got.Row)}
	if got.ID != want.id || got.GivenUp != want.givenUp {
		errs = append(errs, fmt.Errorf("job %d, given up %v; the rules say job %d, %v", got.ID, got.GivenUp, want.id, want.givenUp))
	}
	if want.givenUp { // it was not claimed, so it includes no other jobs
		if got.ParentData != nil || len(got.FinishedChildren)+len(got.CancelledChildren) > 0 {
			errs = append(errs, errors.New("a job that was given up comes with its parent's data or with children"))
		}
		return errors.Join(errs...)
	}
	var parent fields
	if p := m.jobs[j.Parent]; p != nil {
		parent = p.data
	}
	errs = append(errs, sameFields("the parent's data", got.ParentData, parent))
	finished, cancelled := []*modelJob{}, []*modelJob{}
	for _, c := range m.children(j.ID) {
		switch c.State {
		case jobs.Finished:
			finished = append(finished, c)
		case jobs.Cancelled:
			cancelled = append(cancelled, c)
		}
	}
	return errors.Join(append(errs, sameChildren("finished", got.FinishedChildren, finished), sameChildren("cancelled", got.CancelledChildren, cancelled))...)
}

// sameFields compares a JSON object with the expected fields; nil equals nil only. Returns the
// difference, or an error if got is not a JSON object. what names the object.
func sameFields(what string, got []byte, want fields) error {
	if got == nil && want == nil {
		return nil
	}
	f, err := readFields(got)
	if diff := gocmp.Diff(want, f); err != nil || diff != "" {
		return fmt.Errorf("%s: %w, (-want +got):\n%s", what, err, diff)
	}
	return nil
}

// sameChildren compares the ids and data of children, in order, with those of the model. Returns
// the differences, joined, or nil. what names their state.
func sameChildren(what string, got []jobs.Child, want []*modelJob) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d children are %s, the rules say %d", len(got), what, len(want))
	}
	var errs []error
	for i := range got {
		if got[i].ID != want[i].ID {
			errs = append(errs, fmt.Errorf("child %d is %s, the rules say %d", got[i].ID, what, want[i].ID))
		}
		errs = append(errs, sameFields("a child's data", got[i].Data, want[i].data))
	}
	return errors.Join(errs...)
}

// result draws the data at the end of a run: nil, some data, or data that end its repeats.
func (p *play) result() fields {
	if p.one(3, "without data") {
		return nil
	}
	f := p.data()
	if p.one(2, "to be deleted") {
		f["delete"] = draw(p, "delete", `"true"`, "true", "false")
	}
	return f
}

// finish calls Service.Finish with a drawn job, token and data, and compares the result with the
// model (both).
func (p *play) finish() {
	id, data := p.pick("job", runs), p.result()
	f := jobs.Finish{ID: id, Token: p.token(id), Data: data.text()}
	p.both(fmt.Sprintf("finish %+v %s", f, f.Data), func(ctx context.Context) error { return p.service.Finish(ctx, f) },
		func(m *model, now time.Time) []error { return m.finish(f.ID, f.Token, data, now) })
}

// retry calls Service.Retry with a drawn job, token and fields, and compares the result with the
// model (both).
func (p *play) retry() {
	r := &modelRetry{data: p.result()}
	r.ID = p.pick("job", runs)
	r.Token, r.Data, r.Priority, r.IgnoreRepeat = p.token(r.ID), r.data.text(), p.priority(), p.one(3, "ignore repeat")
	if p.one(3, "with name") {
		r.Name = p.name()
	}
	if p.one(2, "with next run") {
		r.NextRun = p.when()
	}
	r.Delay = draw(p, "delay", 0, time.Minute, 3*time.Hour)
	p.both(fmt.Sprintf("retry %+v", *r), func(ctx context.Context) error { return p.service.Retry(ctx, r.Retry) },
		func(m *model, now time.Time) []error { return m.retry(r, now) })
}

// fail calls Service.Fail with a drawn job, token, data and reason, and compares the result with
// the model (both).
func (p *play) fail() {
	id, data := p.pick("job", runs), p.result()
	f := jobs.Fail{ID: id, Token: p.token(id), Data: data.text(), Reason: draw(p, "reason", "", "no luck")}
	p.both(fmt.Sprintf("fail %+v", f), func(ctx context.Context) error { return p.service.Fail(ctx, f) },
		func(m *model, now time.Time) []error { return m.fail(f.ID, f.Token, data, f.Reason, now) })
}

// update draws the arguments of Service.Update and calls it (change).
func (p *play) update() {
	u := &modelUpdate{data: p.data()}
	u.ID = p.pick("job", draw(p, "whichever", nil, runs))
	u.Token, u.Data, u.Priority = p.token(u.ID), u.data.text(), p.priority()
	if p.one(3, "with repeat") {
		u.Repeat = task.Set(draw(p, "new repeat", "", p.repeat(), p.repeat()))
	}
	if p.one(3, "with next run") {
		u.NextRun = p.when()
	}
	p.change(u)
}

// change calls Service.Update with u and compares the result with the model (both).
func (p *play) change(u *modelUpdate) {
	p.both(fmt.Sprintf("update %+v", *u), func(ctx context.Context) error { return p.service.Update(ctx, u.Update) },
		func(m *model, now time.Time) []error { return m.update(u, now) })
}

// remove calls Service.Delete for a drawn job, usually one that does not run, and compares the
// result with the model (both).
func (p *play) remove() {
	id := p.pick("job", func(j *modelJob) bool { return j.State != jobs.Paused && !runs(j) })
	p.both(fmt.Sprintf("delete %d", id), func(ctx context.Context) error { return p.service.Delete(ctx, id) },
		func(m *model, now time.Time) []error { return m.remove(id, now) })
}

// cancel calls Service.Cancel for a drawn job, usually a child, and compares the result with the
// model (both).
func (p *play) cancel() {
	id := p.pick("child", func(j *modelJob) bool { return j.Parent != 0 })
	p.both(fmt.Sprintf("cancel %d", id), func(ctx context.Context) error { return p.service.Cancel(ctx, id) },
		func(m *model, now time.Time) []error { return m.cancel(id, now) })
}

// requeue calls Service.Requeue with one or more drawn jobs, at times with a name, and compares the
// result with the model (both).
func (p *play) requeue() {
	list := []jobs.ID{p.pick("job", func(j *modelJob) bool { return j.State == jobs.Failed || runs(j) })}
	for p.one(3, "one more") {
		list = append(list, p.pick("job", nil))
	}
	name := ""
	if p.one(3, "with name") {
		name = p.name()
	}
	p.both(fmt.Sprintf("requeue %v %q", list, name), func(ctx context.Context) error { return p.service.Requeue(ctx, list, name) },
		func(m *model, now time.Time) []error { return m.requeue(list, name, now) })
}

// renew calls Service.Renew with a drawn job, token and lease, and compares the result with the
// model (both).
func (p *play) renew() {
	id := p.pick("job", runs)
	token, lease := p.token(id), draw(p, "lease", time.Minute, 3*time.Hour)
	p.both(fmt.Sprintf("renew %d token %d", id, token), func(ctx context.Context) error { return p.service.Renew(ctx, id, token, lease) },
		func(m *model, now time.Time) []error { return m.renew(id, token, lease, now) })
}

// giveBack calls Service.GiveBack for the last recorded claim, which it removes, and compares the
// result with the model (both). Without a recorded claim it does nothing.
func (p *play) giveBack() {
	if len(p.handouts) == 0 {
		return
	}
	h := p.handouts[len(p.handouts)-1]
	p.handouts = p.handouts[:len(p.handouts)-1]
	p.both(fmt.Sprintf("give back %d token %d", h.want.id, h.want.token), func(ctx context.Context) error { return p.service.GiveBack(ctx, h.real) },
		func(m *model, now time.Time) []error {
			if h.want.was.RetryAfter == "" && h.real.Token != h.real.Run {
				// A claim in one step does not distinguish a run whose lease had ended from one that was given
				// back. Its number is the same in both cases, also at the next claim.
				if j, err := p.service.Query(p.t.Context(), h.want.id); err == nil && j.State.Active() {
					h.want.was.State = j.State
				}
			}
			return m.giveBack(h.want, now)
		})
}

// family creates a parent, claims it, creates up to three children, and finishes the parent, each
// compared with the model. Single random commands rarely have this order. It stops if the parent
// was not claimed.
func (p *play) family() {
	name := p.name()
	parent := &modelSpec{data: fields{}}
	parent.Name, parent.Repeat = name, draw(p, "repeat of the parent", "", p.repeat())
	p.make(parent)
	p.ask(jobs.Request{Max: 9, Selector: jobs.Selector{Names: []string{name}, Mock: true}})
	id := p.model.last
	if j := p.model.jobs[id]; j == nil || !j.State.Runs() {
		return
	}
	for range rapid.IntRange(1, 3).Draw(p.t, "children") {
		child := &modelSpec{data: fields{}}
		child.Name, child.Parent = p.name(), id
		p.make(child)
	}
	p.both("finish the parent", func(ctx context.Context) error { return p.service.Finish(ctx, jobs.Finish{ID: id}) },
		func(m *model, now time.Time) []error { return m.finish(id, 0, nil, now) })
}

// wear draws a RUNQUEUED job and claims it up to twelve times, so that RetryAfter gives it up.
// Before each claim it makes the job due with Update.
func (p *play) wear() {
	id := p.pick("to wear out", func(j *modelJob) bool { return j.State == jobs.RunQueued })
	for range rapid.IntRange(1, 12).Draw(p.t, "times") {
		j := p.model.jobs[id]
		if j == nil || j.State != jobs.RunQueued {
			return
		}
		u := &modelUpdate{data: fields{"n": "1"}}
		u.ID, u.Data, u.NextRun = id, u.data.text(), p.now.Add(-time.Minute)
		p.change(u)
		p.ask(jobs.Request{Max: 5, Selector: jobs.Selector{Names: []string{j.Name}, Mock: true}})
	}
}

// pass advances the clock of the store by a drawn time.
func (p *play) pass() {
	p.advance(draw(p, "time", time.Second, time.Minute, 40*time.Minute, 3*time.Hour, 72*time.Hour))
}
