package jobstest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/when"
)

// queueSpec draws the fields of a spec for queues and answers, and sets them in s. In half of the
// cases it sets none. It rarely combines fields that exclude each other.
func (p *play) queueSpec(s *modelSpec) {
	if !p.one(2, "with queue or keys") {
		return
	}
	if p.one(2, "with queue") {
		s.Queue = draw(p, "queue", "q", "q", "r")
		if !p.one(10, "what a queue does not go with") {
			s.RetryAfter, s.Parent, s.Mock, s.Unique = "", 0, false, false
		}
	}
	if s.Queue != "" || p.one(20, "queue's fields without one") {
		if p.one(3, "with weight") {
			s.Weight = task.Set(draw(p, "weight", 0, 0.5, 1.0004, 2))
		}
		if p.one(3, "with timeout") {
			s.Timeout = task.Set(draw(p, "timeout", 0, time.Hour))
		}
		if p.one(3, "with windows") {
			w, err := when.ParseWindows(modelWindow, nil)
			if err != nil {
				p.t.Fatal(err)
			}
			s.Windows = w
		}
	}
	if p.one(2, "with key") {
		s.Key = draw(p, "key of answers", modelKeys()...)
	}
	if p.one(3, "with unique key") {
		s.UniqueKey = draw(p, "unique key", modelKeys()...)
	}
	if s.Key != "" || s.UniqueKey != "" {
		s.Unique = s.Unique && p.one(10, "unique all the same")
	}
	s.Respond = p.one(2, "respond")
}

// weights contains the drawn weights and their values in thousandths, rounded up.
var weights = map[float64]int64{0: 0, 0.5: 500, 1: 1000, 1.0004: 1001, 2: 2000}

// inQueue copies the fields of a spec for queues and answers to its new job j in the model, with
// their defaults. For a job of a queue it also moves NextRun to now or later and into the window.
func (j *modelJob) inQueue(s *modelSpec, now time.Time) {
	j.Queue, j.Key, j.UniqueKey, j.Respond = s.Queue, s.Key, s.UniqueKey, s.Respond
	if j.Queue == "" {
		return
	}
	j.Weight, j.Timeout = weights[s.Weight.Or(1)], s.Timeout.Or(24*time.Hour)
	if s.Windows != nil {
		j.Window = s.Windows.String()
	}
	if j.NextRun.Before(now) {
		j.NextRun = now
	}
	j.NextRun = j.placed(j.NextRun, now)
}

// admit draws a job of a queue that is QUEUED, or that runs and is due. It starts or claims the job
// as the leader of the queue does (admitID).
func (p *play) admit() {
	p.admitID(p.pick("to admit", func(j *modelJob) bool {
		return j.Queue != "" && (j.State == jobs.Queued || j.State == jobs.Running && !j.lease.IsZero() && !j.lease.After(p.now))
	}))
}

// admitID starts or claims the job id as the leader of its queue does: it changes the stored job in
// a transaction, then the job in the model, and compares them (both). It does nothing if the job is
// not of a queue, or is neither QUEUED nor due.
func (p *play) admitID(id jobs.ID) {
	j := p.model.jobs[id]
	if j == nil || j.Queue == "" || j.State != jobs.Queued && (j.State != jobs.Running || j.lease.IsZero() || j.lease.After(p.now)) {
		return
	}
	lease := draw(p, "lease", time.Minute, 3*time.Hour)
	p.both(fmt.Sprintf("admit %d for %v", id, lease), func(ctx context.Context) error {
		return p.store.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
			now, err := tx.Now(ctx)
			if err != nil {
				return err
			}
			j, err := tx.Get(ctx, id)
			if err != nil {
				return err
			}
			j.Changed, j.LastRun = now, now
			j.Token++
			if j.State == jobs.Queued {
				if j.Attempt == 0 || j.Scheduled.IsZero() {
					j.Scheduled = j.NextRun
				}
				j.State, j.Answer, j.Reason = jobs.Running, nil, ""
				j.Run, j.Attempt = j.Run+1, j.Attempt+1
				if j.Timeout > 0 {
					j.Deadline = now.Add(j.Timeout)
				}
			} else if j.Phase == "" && j.Key != "" && (j.Answer != nil || j.Reason != "") {
				j.Phase, j.Deadline = jobs.Answered, time.Time{}
			}
			j.Due = now.Add(lease)
			return tx.Save(ctx, &j)
		})
	}, func(m *model, now time.Time) []error {
		m.admit(id, lease, now)
		return nil
	})
}

// expect calls Service.Expect with a drawn job, token and key, and compares the result with the
// model (both).
func (p *play) expect() {
	id, key := p.pick("job", runs), draw(p, "key", modelKeys()...)
	token := p.token(id)
	p.both(fmt.Sprintf("expect %d token %d key %s", id, token, key), func(ctx context.Context) error {
		return p.service.Expect(ctx, jobs.Expect{ID: id, Token: token, Key: key})
	},
		func(m *model, now time.Time) []error { return m.expect(id, token, key, now) })
}

// await calls Service.Await with a drawn job, token, key and timeout, and compares the result with
// the model (both).
func (p *play) await() {
	a := jobs.Await{ID: p.pick("job", runs)}
	a.Token = p.token(a.ID)
	if j := p.model.jobs[a.ID]; j == nil || j.Key == "" || p.one(4, "with key") {
		a.Key = draw(p, "key", "", "x", "x", "y")
	}
	if p.one(2, "with timeout") {
		a.Timeout = task.Set(draw(p, "timeout", 0, time.Minute, 3*time.Hour))
	}
	var got, want bool
	p.both(fmt.Sprintf("await %+v", a), func(ctx context.Context) (err error) {
		got, err = p.service.Await(ctx, a)
		return err
	}, func(m *model, now time.Time) (errs []error) {
		want, errs = m.await(&a, now)
		return errs
	})
	if got != want {
		p.t.Fatalf("the answer was there: %v, the rules say %v", got, want)
	}
}

// answer gives a drawn answer or refusal for a drawn name and key, often those of a job that awaits
// it. It compares the receipt and the jobs with the model (both).
func (p *play) answer() {
	name, key := p.name(), draw(p, "key", modelKeys()...)
	if j := p.model.jobs[p.pick("to answer", func(j *modelJob) bool { return j.Key != "" && (j.begun() || j.State.Over()) })]; j != nil && j.Key != "" {
		name, key = j.Name, j.Key
	}
	result, refusal := draw(p, "result", "null", `{"r":1}`, "7"), ""
	if p.one(3, "refusal") {
		refusal = "refused"
	}
	var got jobs.Receipt
	var want jobs.ReceiptKind
	p.both(fmt.Sprintf("answer %s %s with %s%s", name, key, result, refusal), func(ctx context.Context) (err error) {
		if refusal != "" {
			got, err = p.service.Reject(ctx, name, key, errors.New(refusal))
			return err
		}
		all, err := p.service.AnswerAll(ctx, []jobs.Answer{{Name: name, Key: key, Result: []byte(result)}})
		if err == nil {
			got = all[0]
		}
		return err
	}, func(m *model, now time.Time) []error {
		want = m.answer(name, key, result, refusal, now)
		return nil
	})
	if got.Kind != want {
		p.t.Fatalf("the answer was %s, the rules say %s", got.Kind, want)
	}
}

// withdraw calls Service.Withdraw for a drawn job, usually an open one, and compares the result
// with the model (both).
func (p *play) withdraw() {
	id := p.pick("job", func(j *modelJob) bool { return !j.State.Over() })
	p.both(fmt.Sprintf("withdraw %d", id), func(ctx context.Context) error { return p.service.Withdraw(ctx, id) },
		func(m *model, now time.Time) []error { return m.withdraw(id, now) })
}

// purge calls Service.Purge and compares the number of deleted jobs and the jobs with the model
// (both).
func (p *play) purge() {
	var got, want int
	p.both("purge", func(ctx context.Context) (err error) {
		got, err = p.service.Purge(ctx)
		return err
	}, func(m *model, now time.Time) []error {
		want = m.purge(now)
		return nil
	})
	if got != want {
		p.t.Fatalf("%d jobs were deleted, the rules say %d", got, want)
	}
}

// correspondence creates a job and claims it. Then it draws up to six of these commands: requests,
// answers and claims of due jobs, and steps of the clock. Single random commands rarely have this
// order.
func (p *play) correspondence() {
	s := &modelSpec{data: fields{}}
	s.Name, s.Respond = p.name(), p.one(2, "respond")
	if p.one(2, "with queue") {
		s.Queue = "q"
	}
	if p.one(3, "with repeat") {
		s.Repeat = p.repeat()
	}
	p.make(s)
	id := p.model.last
	if s.Queue == "" {
		p.ask(jobs.Request{Max: 9, Selector: jobs.Selector{Names: []string{s.Name}}})
	} else if p.model.jobs[id] != nil {
		p.admitID(id)
	}
	for range rapid.IntRange(1, 6).Draw(p.t, "moves") {
		draw(p, "move", p.await, p.await, p.answer, p.answer, p.expect, p.pass, p.handOut)()
	}
}

// handOut claims all due jobs, at most nine, with a lease of a minute, and compares them with the
// model (ask).
func (p *play) handOut() {
	p.ask(jobs.Request{Max: 9, Selector: jobs.Selector{Pattern: "*"}, Lease: time.Minute})
}
