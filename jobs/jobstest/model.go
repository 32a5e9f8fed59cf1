package jobstest

import (
	"context"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// ModelConfig configures [Model].
type ModelConfig struct {
	// Open returns a store over a database without jobs. It is called once; the caller closes the
	// store.
	Open func(t testing.TB) jobs.Store
	// Advance moves the store's clock forward; otherwise the clock must stand still. nil: the store
	// uses real time, and no step waits for it.
	Advance func(d time.Duration)
	// Steps is the maximum number of commands per run. Default: 30.
	Steps int
}

// Model calls random commands on a [jobs.Service] over a store and on a simple model of the rules.
// It compares results and jobs after each command. The flag -rapid.checks sets the number of runs;
// default: 100.
func Model(t *testing.T, c ModelConfig) {
	t.Helper()
	if c.Steps == 0 {
		c.Steps = 30
	}
	store := c.Open(t)
	service, err := jobs.New(jobs.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := service.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	advance := c.Advance
	if advance == nil {
		advance = func(time.Duration) {}
	}
	last := jobs.ID(0)
	rapid.Check(t, func(t *rapid.T) {
		p := &play{t: t, store: store, service: service, model: newModel(), advance: advance, clocked: c.Advance != nil}
		p.clear()
		p.now, p.seen, _ = p.look()
		p.model.last = last
		commands := rapid.IntRange(1, c.Steps).Draw(t, "commands")
		for range commands {
			advance(time.Millisecond)
			p.step()
		}
		last = p.model.last
	})
}

// play is one run of random commands on the service and on the model. Each command is a method,
// which draws its arguments and calls both.
type play struct {
	t        *rapid.T
	store    jobs.Store
	service  *jobs.Service
	model    *model
	seen     []jobs.Row            // stored jobs after the last command
	now      time.Time             // the store's time before the command
	times    map[jobs.ID]time.Time // times of the jobs that the command changed
	advance  func(time.Duration)
	clocked  bool
	handouts []kept
}

// kept is a claim that a later command may give back: as the service returned it, and as the model
// expects it.
type kept struct {
	real jobs.Handout
	want handout
}

// modelSpec, modelRetry and modelUpdate are commands with their data as fields.
type (
	modelSpec struct {
		jobs.Spec
		data fields
	}
	modelRetry struct {
		jobs.Retry
		data fields
	}
	modelUpdate struct {
		jobs.Update
		data fields
	}
)

// clear deletes all jobs of the store, and the early answers with the drawn names and keys. An
// error ends the run as failed.
func (p *play) clear() {
	if err := p.store.Update(p.t.Context(), func(ctx context.Context, tx jobstore.Tx) error {
		found, err := tx.All(ctx, jobstore.Page{})
		for _, k := range modelAnswers() {
			err = errors.Join(err, tx.DeleteEarly(ctx, k.Name, k.Key))
		}
		return errors.Join(err, tx.Delete(ctx, ids(found)...))
	}); err != nil {
		p.t.Fatal(err)
	}
}

// look returns the store's time, all jobs in the order of ids, and the early answers with the drawn
// names and keys. It changes nothing. An error ends the run as failed.
func (p *play) look() (now time.Time, list []jobs.Row, early []jobstore.EarlyAnswer) {
	if err := p.store.View(p.t.Context(), func(ctx context.Context, tx jobstore.Tx) (err error) {
		if list, err = tx.All(ctx, jobstore.Page{}); err != nil {
			return err
		}
		early = nil
		for _, k := range modelAnswers() {
			e, err := tx.Early(ctx, k.Name, k.Key)
			if err != nil {
				return err
			}
			if e != nil {
				early = append(early, *e)
			}
		}
		now, err = tx.Now(ctx)
		return err
	}); err != nil {
		p.t.Fatal(err)
	}
	return now, list, early
}

// step draws one of the commands and performs it. Without ModelConfig.Advance the clock is never
// advanced.
func (p *play) step() {
	kinds := []func(){
		p.create, p.create, p.createAll, p.get, p.get, p.get, p.finish, p.finish, p.retry, p.fail, p.update, p.remove, p.cancel, p.requeue, p.renew, p.giveBack, p.wear, p.family,
		p.admit, p.admit, p.expect, p.await, p.await, p.answer, p.answer, p.withdraw, p.purge, p.correspondence,
	}
	if p.clocked {
		kinds = append(kinds, p.pass, p.pass)
	}
	kinds[rapid.IntRange(0, len(kinds)-1).Draw(p.t, "command")]()
}

// both performs one command: do on the service, then rule on a copy of the model, with the time
// that the service used. rule returns the errors that may occur. Without such errors the copy
// becomes the model.
//
// The run ends as failed if the service returned another error, or if the stored jobs and early
// answers then differ from the model. It sets p.now and p.seen for the next command. what names the
// command.
func (p *play) both(what string, do func(ctx context.Context) error, rule func(m *model, now time.Time) []error) {
	err := do(p.t.Context())
	after, list, early := p.look()
	now := p.happened(list, early, after, what == "get")
	m := p.model.clone()
	may := rule(m, now)
	p.t.Logf("%v %s: %v", now.Format(time.RFC3339Nano), what, err)
	if !expected(err, may) {
		p.t.Fatalf("%s: %v, the rules say %v", what, err, may)
	}
	if len(may) == 0 {
		p.model = m
	}
	if err := p.model.compare(list, early, after); err != nil {
		p.t.Fatal(err)
	}
	p.now, p.seen = after, list
}

// happened returns the time that the service used for the last command: the Changed of the jobs in
// list that differ from p.seen. Without such a job it is the time of a new early answer, else
// after. It sets p.times to these times by job.
//
// The run ends as failed if a time is not between p.now and after, or if two jobs have different
// times. With parts, which means that the command used several transactions, they may differ.
func (p *play) happened(list []jobs.Row, early []jobstore.EarlyAnswer, after time.Time, parts bool) time.Time {
	old := map[jobs.ID]time.Time{}
	p.times = map[jobs.ID]time.Time{}
	for _, j := range p.seen {
		old[j.ID] = j.Changed
	}
	at := time.Time{}
	for _, j := range list {
		if o, ok := old[j.ID]; ok && o.Equal(j.Changed) {
			continue
		}
		if !parts && !at.IsZero() && !j.Changed.Equal(at) || j.Changed.Before(p.now) || j.Changed.After(after) {
			p.t.Fatalf("job %d was changed at %v, in a command from %v to %v that changed another at %v", j.ID, j.Changed, p.now, after, at)
		}
		at = j.Changed
		p.times[j.ID] = at
	}
	for i := range early {
		e := &early[i]
		if known, ok := p.model.early[keyName(e.Name, e.Key)]; at.IsZero() && (!ok || !known.until.Equal(e.Expires)) {
			at = e.Expires.Add(-modelEarly)
		}
	}
	if at.IsZero() {
		return after
	}
	return at
}
