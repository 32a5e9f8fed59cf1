package jobstest

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
)

// stale reports whether a command with this token must return ErrStale: token is not 0, and is not
// the token of j or j does not run.
func (j *modelJob) stale(token int64) bool {
	return token != 0 && (token != j.Token || !j.State.Runs())
}

// setData replaces the data of j at the end of a run, unless data is nil. It sets the count of
// claims by RetryAfter to 0.
func (j *modelJob) setData(data fields) {
	if data != nil {
		j.data = maps.Clone(data)
	}
	j.Handouts = 0
}

// endable returns the error for which the run of j cannot be finished or retried with this token:
// ErrStale, ErrNotRunning or ErrParentNotPaused. Returns nil if it can. It changes nothing.
func (m *model) endable(j *modelJob, token int64) (errs []error) {
	if j.stale(token) {
		return []error{jobs.ErrStale}
	}
	if !j.State.Runs() {
		return []error{jobs.ErrNotRunning}
	}
	if p := m.jobs[j.Parent]; j.Parent != 0 && (p == nil || p.State != jobs.Paused) {
		return []error{jobs.ErrParentNotPaused}
	}
	return nil
}

// repeatRun makes j, which repeats, QUEUED for its next run. It makes j FAILED instead if the next
// run is out of range.
func (m *model) repeatRun(j *modelJob, now time.Time) {
	at, ok := next(j.Repeat, j.Scheduled, j.LastRun, now)
	if !ok {
		m.over(j, jobs.Failed, now)
		j.Reason = anyReason
		return
	}
	j.startOver()
	j.State, j.NextRun = jobs.Queued, j.placed(at, now)
}

// anyReason matches a text that the rules do not prescribe.
const anyReason = "(any)"

// finish applies Service.Finish to the model. Returns the errors that the service may return; nil:
// it must succeed.
func (m *model) finish(id jobs.ID, token int64, data fields, now time.Time) []error {
	j := m.jobs[id]
	if j == nil {
		return []error{jobs.ErrNotFound}
	}
	if errs := m.endable(j, token); errs != nil {
		return errs
	}
	j.setData(data)
	return m.ended(j, data["delete"] == `"true"` || data["delete"] == "true", now)
}

// retry applies Service.Retry to the model. Returns the errors that the service may return; nil: it
// must succeed.
func (m *model) retry(r *modelRetry, now time.Time) []error {
	j := m.jobs[r.ID]
	if j == nil {
		return []error{jobs.ErrNotFound}
	}
	if errs := m.endable(j, r.Token); errs != nil {
		return errs
	}
	j.setData(r.data)
	j.Changed = now
	if r.Token != 0 && j.underWay() { // the answer came first
		j.deliver(now)
		return nil
	}
	if r.Name != "" {
		j.Name = r.Name
	}
	if m.taken(j) {
		return []error{jobs.ErrKeyTaken}
	}
	j.Priority = r.Priority.Or(j.Priority)
	j.leaveAttempt()
	switch {
	case j.Repeat != "" && !r.IgnoreRepeat:
		m.repeatRun(j, now)
	case !r.NextRun.IsZero():
		j.State, j.NextRun = jobs.Queued, j.placed(r.NextRun, now)
	default:
		j.State, j.NextRun = jobs.Queued, j.placed(now.Add(r.Delay), now)
	}
	m.settle(now, j)
	return nil
}

// fail applies Service.Fail to the model. Returns the errors that the service may return; nil: it
// must succeed.
func (m *model) fail(id jobs.ID, token int64, data fields, reason string, now time.Time) []error {
	j := m.jobs[id]
	switch {
	case j == nil:
		return []error{jobs.ErrNotFound}
	case j.stale(token):
		return []error{jobs.ErrStale}
	case !j.State.Runs():
		return []error{jobs.ErrNotRunning}
	}
	j.setData(data)
	j.Changed = now
	if token != 0 && j.underWay() { // the answer came first
		j.deliver(now)
		return nil
	}
	m.over(j, jobs.Failed, now)
	j.Reason = reason
	m.settle(now, j)
	return nil
}

// remove applies Service.Delete to the model. Returns the errors that the service may return; nil:
// it must succeed.
func (m *model) remove(id jobs.ID, now time.Time) []error {
	j := m.jobs[id]
	switch {
	case j == nil:
		return []error{jobs.ErrNotFound}
	case j.State.Runs():
		return []error{jobs.ErrIsRunning}
	case j.State == jobs.Paused:
		return []error{jobs.ErrChildrenRunning}
	case len(m.children(id)) > 0:
		return []error{jobs.ErrOutstanding}
	}
	delete(m.jobs, id)
	m.settle(now, j)
	return nil
}

// cancel applies Service.Cancel to the model. Returns the errors that the service may return; nil:
// it must succeed.
func (m *model) cancel(id jobs.ID, now time.Time) []error {
	j := m.jobs[id]
	switch {
	case j == nil:
		return []error{jobs.ErrNotFound}
	case len(m.children(id)) > 0:
		return []error{jobs.ErrHasChildren}
	case j.Parent == 0:
		return []error{jobs.ErrNoParent}
	case j.State == jobs.Running || j.State == jobs.Finished || j.State == jobs.Paused || j.State == jobs.Cancelled:
		return nil
	}
	j.Changed = now
	m.over(j, jobs.Cancelled, now)
	m.settle(now, j)
	return nil
}

// requeue applies Service.Requeue to the model. Returns the errors that the service may return;
// nil: it must succeed.
func (m *model) requeue(list []jobs.ID, name string, now time.Time) []error {
	found := m.all(func(j *modelJob) bool { return slices.Contains(list, j.ID) })
	if len(found) == 0 {
		return []error{jobs.ErrNotFound}
	}
	for _, j := range found {
		// The current job of a sequence stays so; another job becomes it if no job is.
		turn := j.SequenceKey == "" || j.holds() || !m.held(j.SequenceKey)
		if j.State = jobs.Waiting; turn {
			j.State = jobs.Queued
		}
		j.startOver()
		due := j.Created
		if j.Repeat != "" && j.Scheduled.After(due) {
			due = j.Scheduled
		}
		j.NextRun, j.Reason, j.Changed = j.placed(due, now), "", now
		if name != "" {
			j.Name = name
		}
		if m.taken(j) {
			return []error{jobs.ErrKeyTaken}
		}
		j.setData(nil)
	}
	return nil
}

// update applies Service.Update to the model. Returns the errors that the service may return; nil:
// it must succeed.
func (m *model) update(u *modelUpdate, now time.Time) []error {
	j := m.jobs[u.ID]
	switch {
	case j == nil:
		return []error{jobs.ErrNotFound}
	case j.stale(u.Token):
		return []error{jobs.ErrStale}
	}
	j.data = maps.Clone(u.data)
	j.Changed = now
	j.Priority = u.Priority.Or(j.Priority)
	repeat, set := u.Repeat.Get()
	if set = set && !j.Mock; set {
		if repeat != "" && j.SequenceKey != "" {
			return []error{jobs.ErrBadJob}
		}
		j.Repeat = repeat
	}
	switch {
	case !u.NextRun.IsZero():
		j.NextRun = u.NextRun
	case set && repeat != "":
		scheduled := j.NextRun
		if j.State.Runs() {
			scheduled = j.Scheduled
		}
		at, ok := next(repeat, scheduled, j.LastRun, now)
		if !ok {
			return []error{jobs.ErrBadJob}
		}
		j.NextRun = at
	}
	if !j.State.Runs() {
		j.NextRun = j.placed(j.NextRun, now)
	}
	return nil
}

// renew applies Service.Renew to the model. Returns the errors that the service may return; nil: it
// must succeed.
func (m *model) renew(id jobs.ID, token int64, lease time.Duration, now time.Time) []error {
	j := m.jobs[id]
	switch {
	case j == nil:
		return []error{jobs.ErrNotFound}
	case j.stale(token):
		return []error{jobs.ErrStale}
	case !j.State.Runs():
		return []error{jobs.ErrNotRunning}
	// no worker has it
	case j.Phase == jobs.Awaiting && (j.Deadline.IsZero() || j.Deadline.After(now)):
	case j.State == jobs.Running:
		j.lease, j.Changed = now.Add(lease), now
		// its attempt times out then
		if j.Phase == "" && !j.Deadline.IsZero() && j.Deadline.Before(j.lease) {
			j.lease = j.Deadline
		}
	}
	return nil
}

// giveBack applies Service.GiveBack of the claim h to the model: it undoes the claim, except for
// its token and its time. Returns the errors that the service may return; nil: it must succeed.
func (m *model) giveBack(h handout, now time.Time) []error {
	j := m.jobs[h.id]
	switch {
	case h.givenUp:
		return nil
	case j == nil:
		return []error{jobs.ErrNotFound}
	case j.stale(h.token), j.Phase == jobs.Awaiting && (j.Deadline.IsZero() || j.Deadline.After(now)):
		return []error{jobs.ErrStale}
	}
	j.Changed = now
	if j.got {
		if j.Phase == jobs.Answered {
			j.lease = now
		} else {
			j.deliver(now)
		}
		return nil
	}
	if h.was.State != jobs.Running {
		if j.Handouts = h.was.Handouts; h.was.State == jobs.Queued {
			j.Handouts = 0
		}
		if j.Key == "" { // otherwise the answer to a request may come
			j.Attempt = max(0, j.Attempt-1)
		}
	}
	switch h.was.State {
	case jobs.Running:
		j.lease = now
	case jobs.RunQueued:
		j.State, j.NextRun = jobs.RunQueued, h.was.NextRun
	default:
		j.endAttempt()
		j.State = jobs.Queued
		j.Run--
		if j.RetryAfter != "" {
			j.NextRun = h.was.NextRun
		}
	}
	m.settle(now, j)
	return nil
}

// expected reports whether err is one of the errors in may (errors.Is). If may is empty, it reports
// whether err is nil.
func expected(err error, may []error) bool {
	if len(may) == 0 || err == nil {
		return len(may) == 0 && err == nil
	}
	return slices.ContainsFunc(may, func(e error) bool { return errors.Is(err, e) })
}
