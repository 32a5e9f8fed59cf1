package jobstest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/internal/glob"
	"github.com/swarmiji/swarmiji/jobs"
)

// The rules of a job's life over a map, written before the Service existed. Each function returns
// the errors that may occur; none means that the call must succeed. After errors the changed model
// is discarded.

// modelRepeats contains the drawn repeats: the base and the next run for each.
var modelRepeats = map[string]struct {
	base string
	next func(time.Time) (time.Time, bool)
}{
	"SCHEDULED, +1 HOUR":                           {"SCHEDULED", plus(time.Hour)},
	"STARTED, +30 MINUTES":                         {"STARTED", plus(30 * time.Minute)},
	"finished, +1 day":                             {"FINISHED", plus(24 * time.Hour)},
	"HOURLY":                                       {"FINISHED", plus(time.Hour)},
	"FINISHED, + 2 HOURS, -1 MINUTES":              {"FINISHED", plus(2*time.Hour - time.Minute)},
	"SCHEDULED, +1 DAY, START OF DAY":              {"SCHEDULED", func(t time.Time) (time.Time, bool) { return t.Add(24 * time.Hour).Truncate(24 * time.Hour), true }},
	"FINISHED" + strings.Repeat(", +999 YEARS", 9): {"FINISHED", func(time.Time) (time.Time, bool) { return time.Time{}, false }},
}

// modelRetries contains the drawn values of RetryAfter.
var modelRetries = map[string]time.Duration{"+1 MINUTE": time.Minute, "+2 HOURS": 2 * time.Hour, "-5 minutes": -5 * time.Minute}

// plus returns a function that adds d to a time. Its second result is always true.
func plus(d time.Duration) func(time.Time) (time.Time, bool) {
	return func(t time.Time) (time.Time, bool) { return t.Add(d), true }
}

// next returns the next run of a job with this repeat. The current run was due at scheduled, was
// claimed at started and ends at now. A zero time means now. The second result is false if the next
// run is out of range.
func next(repeat string, scheduled, started, now time.Time) (time.Time, bool) {
	r := modelRepeats[repeat]
	base := now
	if r.base == "SCHEDULED" && !scheduled.IsZero() {
		base = scheduled
	}
	if r.base == "STARTED" && !started.IsZero() {
		base = started
	}
	return r.next(base)
}

// holds reports whether a job blocks later jobs of its sequence. A PAUSED job has begun and
// continues.
func (j *modelJob) holds() bool { return j.State.Active() || j.State == jobs.Paused }

// pendingChild reports whether the parent of j waits for it.
func (j *modelJob) pendingChild() bool { return j.State.Active() || j.State == jobs.Paused }

// held reports whether a sequence has a current job (holds).
func (m *model) held(key string) bool {
	return len(m.all(func(j *modelJob) bool { return j.SequenceKey == key && j.holds() })) > 0
}

// settle lets other jobs proceed after a change of touched: the oldest WAITING job of its sequence
// becomes QUEUED if the sequence has no current job. A PAUSED parent of touched becomes QUEUED if
// it has no pending child.
func (m *model) settle(now time.Time, touched *modelJob) {
	if k := touched.SequenceKey; k != "" && !m.held(k) {
		if w := m.all(func(j *modelJob) bool { return j.SequenceKey == k && j.State == jobs.Waiting }); len(w) > 0 {
			w[0].State, w[0].Changed = jobs.Queued, now
		}
	}
	if p := m.jobs[touched.Parent]; p != nil && p.State == jobs.Paused && !m.pending(p.ID) {
		p.State, p.Changed = jobs.Queued, now
	}
}

// children returns the children of a job in the order of ids, in any state.
func (m *model) children(id jobs.ID) []*modelJob {
	return m.all(func(j *modelJob) bool { return j.Parent == id })
}

// pending reports whether a job has a child for which its parent waits (pendingChild).
func (m *model) pending(id jobs.ID) bool {
	return slices.ContainsFunc(m.children(id), (*modelJob).pendingChild)
}

// create creates the job of a spec in the model, with the id that the service chose; 0 if the
// service refused. With Unique it changes the existing job instead. It returns the id that the
// service must return, whether the job existed, and the errors that the service may return.
func (m *model) create(spec *modelSpec, id jobs.ID, now time.Time) (jobs.ID, bool, []error) {
	if spec.SequenceKey != "" && (spec.Repeat != "" || spec.Parent != 0) || spec.Name == "" || badQueue(spec) {
		return 0, false, []error{jobs.ErrBadJob}
	}
	repeat := spec.Repeat
	if spec.Mock {
		repeat = ""
	}
	if spec.Unique {
		same := m.all(func(j *modelJob) bool {
			// Records that only stay for a time, and jobs of queues, do not count.
			remembered := !j.Expires.IsZero() && j.State != jobs.Failed
			return j.Name == spec.Name && j.Mock == spec.Mock && j.Queue == "" && !remembered
		})
		if len(same) > 0 {
			return same[0].ID, true, m.updateExisting(same[0], spec, repeat, now)
		}
	}
	j := &modelJob{data: maps.Clone(spec.data), Row: jobs.Row{Job: jobs.Job{
		ID: id, Name: spec.Name, State: jobs.Queued,
		Priority: spec.Priority.Or(jobs.DefaultPriority), Created: now, Changed: now, NextRun: spec.FirstRun,
		Repeat: repeat, RetryAfter: spec.RetryAfter, Parent: spec.Parent, SequenceKey: spec.SequenceKey, Mock: spec.Mock,
	}}}
	if j.NextRun.IsZero() {
		j.NextRun = now
	}
	j.inQueue(spec, now)
	errs := m.adopt(j, now)
	if m.taken(j) {
		errs = append(errs, jobs.ErrKeyTaken)
	}
	if len(errs) > 0 {
		return 0, false, errs
	}
	if k := j.SequenceKey; k != "" && (m.held(k) || len(m.all(func(o *modelJob) bool { return o.SequenceKey == k && o.State == jobs.Waiting })) > 0) {
		j.State = jobs.Waiting
	}
	if id != 0 && id <= m.last {
		return 0, false, []error{fmt.Errorf("no id as low as %d", id)}
	}
	m.last = id
	m.jobs[id] = j
	return id, false, nil
}

// adopt makes j a child of its parent, if it has one. Returns the errors that the service may
// return; j and the parent are then unchanged.
func (m *model) adopt(j *modelJob, now time.Time) (errs []error) {
	if j.Parent == 0 {
		return nil
	}
	p := m.jobs[j.Parent]
	if p == nil {
		return []error{jobs.ErrParentNotFound}
	}
	if !p.State.Runs() && p.State != jobs.Paused {
		errs = append(errs, jobs.ErrParentState)
	}
	if p.Parent != 0 {
		errs = append(errs, jobs.ErrGrandchild)
	}
	if p.Mock != j.Mock {
		errs = append(errs, jobs.ErrMockDiffers)
	}
	if len(errs) > 0 {
		return errs
	}
	if p.State.Runs() {
		j.State = jobs.Paused
	}
	if !p.HasChildren {
		p.HasChildren, p.Changed = true, now
	}
	return nil
}

// updateExisting applies a unique spec to the existing job. Returns the errors that the service may
// return; the job is then unchanged.
func (m *model) updateExisting(old *modelJob, spec *modelSpec, repeat string, now time.Time) (errs []error) {
	if old.Parent != spec.Parent {
		errs = append(errs, jobs.ErrOtherParent)
	}
	if spec.SequenceKey != "" && spec.SequenceKey != old.SequenceKey || old.SequenceKey != "" && repeat != "" {
		errs = append(errs, jobs.ErrBadJob)
	}
	before, given := old.data, spec.data
	if len(errs) > 0 || spec.Keep || maps.Equal(before, given) {
		return errs
	}
	for k, v := range given {
		if old.data[k] = v; v == "null" {
			delete(old.data, k)
		}
	}
	old.Repeat, old.Priority, old.Changed = repeat, spec.Priority.Or(old.Priority), now
	return nil
}

// find returns the jobs that a claim with the selector s at now must find: at most most, in order.
// It changes nothing.
func (m *model) find(s jobs.Selector, now time.Time, most int) []*modelJob {
	pattern := glob.Compile(s.Pattern)
	found := m.all(func(j *modelJob) bool {
		named := s.Pattern != "" && pattern.Match(j.Name) || s.Pattern == "" && slices.Contains(s.Names, j.Name)
		return named && j.Queue == "" && !j.due().IsZero() && !j.due().After(now) && j.Priority == s.Priority.Or(j.Priority) && (s.Mock || !j.Mock)
	})
	slices.SortStableFunc(found, func(a, b *modelJob) int { return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.due().Compare(b.due())) })
	return found[:min(most, len(found))]
}

// handout is a claim that the model expects: the job, its token and its data. was is the job before
// the claim.
type handout struct {
	id      jobs.ID
	token   int64
	data    fields
	givenUp bool
	was     modelJob
}

// get claims at most most due jobs that s selects, and returns the claims in order. times contains
// the time of the claim for each job; a missing one means now. Jobs that RetryAfter has claimed ten
// times become FAILED.
func (m *model) get(s jobs.Selector, lease time.Duration, most int, now time.Time, times map[jobs.ID]time.Time) []handout {
	at := func(id jobs.ID) time.Time { return cmp.Or(times[id], now) }
	var out []handout
	for _, j := range m.find(s, now, most) {
		h := handout{id: j.ID, data: maps.Clone(j.data), was: *j}
		h.givenUp = m.handOut(j, lease, at(j.ID))
		h.token = j.Token
		out = append(out, h)
	}
	for _, h := range out {
		if h.givenUp {
			m.settle(at(h.id), m.jobs[h.id])
		}
	}
	return out
}

// handOut claims j at now, with a lease; 0: no limit. A job that RetryAfter has claimed ten times
// in its run becomes FAILED instead; givenUp is then true.
func (m *model) handOut(j *modelJob, lease time.Duration, now time.Time) (givenUp bool) {
	j.Changed = now
	if j.State.Runs() && j.got || j.Phase == jobs.Awaiting { // it has an answer or a timeout to handle
		if j.LastRun = now; j.underWay() {
			j.Phase, j.Deadline = jobs.Answered, time.Time{}
		}
		j.State, j.lease = jobs.Running, time.Time{}
		if lease > 0 {
			j.lease = now.Add(lease)
		}
		j.Token++
		return false
	}
	k := int32(1)
	if j.State == jobs.RunQueued {
		k = j.Handouts + 1
	}
	if j.RetryAfter != "" && k > 10 {
		m.over(j, jobs.Failed, now)
		j.Reason = anyReason
		return true
	}
	if j.State == jobs.Queued {
		j.Run++
		j.Scheduled = j.NextRun
	}
	if j.State != jobs.Running { // its lease has not ended
		j.Attempt++
	}
	j.Token++
	j.LastRun = now
	if j.RetryAfter == "" {
		j.State, j.lease = jobs.Running, time.Time{}
		if lease > 0 {
			j.lease = now.Add(lease)
		}
		return false
	}
	j.State = jobs.RunQueued
	j.NextRun = now.Add(modelRetries[j.RetryAfter])
	if j.Repeat != "" {
		// An overdue run does not count; otherwise the job would run twice at a time.
		if at, ok := next(j.Repeat, j.Scheduled, now, now); ok && at.After(now) && at.Before(j.NextRun) {
			j.NextRun = at
		}
	}
	if !strings.HasPrefix(j.Name, "manual") {
		j.Handouts = k
	}
	return false
}
