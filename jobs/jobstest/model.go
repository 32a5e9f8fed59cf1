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

// ModelConfig is what [Model] runs over.
type ModelConfig struct {
	// Open makes a store over a database without jobs. It is called once; the caller closes what it returns.
	Open func(t testing.TB) jobs.Store
	// Advance puts the store's clock forward, which stands still otherwise. Nil: it goes as it does, and no step waits for it.
	Advance func(d time.Duration)
	// Steps is how many commands a run has at most. Zero: 30.
	Steps int
}

// Model gives random commands to a [jobs.Service] over a store and to a plain model of the rules of a job's life, and compares answers and jobs
// after each. It is run as often as the flag -rapid.checks says, which is a hundred times if it is not given.
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

// play is one run of commands.
type play struct {
	t        *rapid.T
	store    jobs.Store
	service  *jobs.Service
	model    *model
	seen     []jobs.Row            // what was in the store after the last command
	now      time.Time             // of the store, before the command
	times    map[jobs.ID]time.Time // of what the command changed
	advance  func(time.Duration)
	clocked  bool
	handouts []kept
}

// kept is a hand-out that may be given back.
type kept struct {
	real jobs.Handout
	want handout
}

// modelSpec, modelRetry and modelUpdate are commands, with their data taken apart.
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

// clear empties the store.
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

// look reads the store's time, all jobs and all early answers.
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

// step draws a command.
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

// both gives a command to the service, and then to the model with the time at which the service did it. The model's answer is the errors that may
// come, and what it did is forgotten if there are any. Then all jobs are compared.
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

// happened is the time of the last command, which is written in all that it has changed. A command in parts has several times.
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
