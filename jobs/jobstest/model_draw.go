package jobstest

import (
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/task"
)

// draw draws one of the values in from. what names the draw in the output of a failure.
func draw[T any](p *play, what string, from ...T) T { return rapid.SampledFrom(from).Draw(p.t, what) }

// one draws a number and returns true in one of n cases.
func (p *play) one(n int, what string) bool { return rapid.IntRange(1, n).Draw(p.t, what) == n }

// name draws a name of a job; "a" is drawn twice as often as the others.
func (p *play) name() string { return draw(p, "name", append(modelNames(), "a")...) }

// modelNames returns the drawn names.
func modelNames() []string { return []string{"a", "b", "c/1", "manual-d"} }

// data draws the data of a job: up to two members.
func (p *play) data() fields {
	f := fields{}
	for _, k := range []string{"n", "m"} {
		if p.one(2, k) {
			f[k] = draw(p, "value", "1", "2", `"x"`)
		}
	}
	return f
}

// when draws a time from two hours before p.now to two days after it. Only Advance makes a later
// time due.
func (p *play) when() time.Time {
	return p.now.Add(draw(p, "when", -2*time.Hour, -time.Minute, 0, time.Hour, 48*time.Hour))
}

// priority draws one of three priorities. In two of three cases the result is unset.
func (p *play) priority() task.Opt[int] {
	if p.one(3, "with priority") {
		return task.Set(draw(p, "priority", 50, 100, 150))
	}
	return task.Opt[int]{}
}

// repeat draws one of the texts in modelRepeats.
func (p *play) repeat() string {
	return draw(p, "repeat", slices.Sorted(maps.Keys(modelRepeats))...)
}

// pick draws the id of a job of the model: usually one for which pass is true, else any job, or an
// id that no job has. A nil pass is true for all jobs.
func (p *play) pick(what string, pass func(*modelJob) bool) jobs.ID {
	from := p.model.all(pass)
	if len(from) == 0 || p.one(6, "any job") {
		from = p.model.all(nil)
	}
	if len(from) == 0 || p.one(40, "no job") {
		return 1 << 50
	}
	return from[rapid.IntRange(0, len(from)-1).Draw(p.t, what)].ID
}

// runs reports whether the job is RUNNING or RUNQUEUED.
func runs(j *modelJob) bool { return j.State.Runs() }

// token draws a token for a command on the job id: usually that of its current attempt or 0, at
// times the one before or after it.
func (p *play) token(id jobs.ID) int64 {
	if j := p.model.jobs[id]; j != nil && p.one(2, "with token") {
		return j.Token + draw(p, "token", int64(0), 0, 0, 0, -1, 1)
	}
	return 0
}

// spec draws the Spec of a job, at times one that the service must refuse.
func (p *play) spec() *modelSpec {
	s := &modelSpec{data: p.data()}
	s.Name, s.Priority = p.name(), p.priority()
	if p.one(3, "with first run") {
		s.FirstRun = p.when()
	}
	if p.one(3, "with repeat") {
		s.Repeat = p.repeat()
	}
	if p.one(4, "with retry after") {
		s.RetryAfter = draw(p, "retry after", slices.Sorted(maps.Keys(modelRetries))...)
	}
	if p.one(3, "with parent") {
		s.Parent = p.pick("parent", func(j *modelJob) bool { return j.Parent == 0 && (runs(j) || j.State == jobs.Paused) })
	}
	if p.one(3, "with key") && (s.Repeat == "" && s.Parent == 0 || p.one(10, "with both")) {
		s.SequenceKey = draw(p, "key", "k", "k", "l")
	}
	s.Mock = p.one(8, "mock")
	defer p.queueSpec(s)
	if s.Unique = p.one(5, "unique"); s.Unique {
		s.Keep = p.one(3, "keep")
		if p.one(4, "null") {
			s.data["n"] = "null"
		}
	}
	if s.Data = s.data.text(); len(s.data) == 0 && p.one(2, "no data") {
		s.Data = nil
	}
	return s
}
