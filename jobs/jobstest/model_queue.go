package jobstest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// The rules of queues and of answers, over the same map.

const (
	modelKeep  = 24 * time.Hour
	modelEarly = time.Minute
)

// modelWindow is the drawn window. The numbers below are its hours.
const (
	modelWindow = "06:00-18:00"
	windowOpens = 6
	windowEnds  = 18
)

// earlyAnswer is an answer that no job has claimed yet.
type earlyAnswer struct {
	result, refusal string
	until           time.Time
}

// keyName returns the key of a map of answers, made from the name and the key of an answer.
func keyName(name, key string) string { return name + "\x00" + key }

// opening returns the first time at or after t at which the model's window is open.
func opening(t time.Time) time.Time {
	day := t.Truncate(24 * time.Hour)
	switch h := t.Sub(day); {
	case h < windowOpens*time.Hour:
		return day.Add(windowOpens * time.Hour)
	case h >= windowEnds*time.Hour:
		return day.Add((24 + windowOpens) * time.Hour)
	}
	return t
}

// placed returns the time at which j can run that should run at the time at. It is at itself if j
// has no window or the window is open then, else the next opening. A past time counts as now for
// this.
func (j *modelJob) placed(at, now time.Time) time.Time {
	if j.Window == "" {
		return at
	}
	from := at
	if now.After(at) {
		from = now
	}
	if open := opening(from); !open.Equal(from) {
		return open
	}
	return at
}

// kept reports whether the record of the job stays for a time after its end: it has a queue or a
// key.
func (j *modelJob) kept() bool { return j.Queue != "" || j.Key != "" }

// begun reports whether the request of the job may have been sent.
func (j *modelJob) begun() bool { return j.State.Runs() || j.Attempt > 0 }

// over makes j over in the state s. Phase records whether its answer has come. It sets Expires for
// a kept job without a parent and children, and does not change other jobs.
func (m *model) over(j *modelJob, s jobs.State, now time.Time) {
	j.State, j.Phase, j.Deadline, j.lease = s, "", time.Time{}, time.Time{}
	if j.got {
		j.Phase = jobs.Answered
	}
	if j.kept() && j.Parent == 0 && len(m.children(j.ID)) == 0 {
		j.Expires = now.Add(modelKeep)
	}
}

// leaveAttempt ends the attempt of j, which another attempt or run follows. A kept job loses its
// answer and reason.
func (j *modelJob) leaveAttempt() {
	j.endAttempt()
	if j.kept() {
		j.Attempt = max(1, j.Attempt)
		j.Answer, j.Reason = nil, ""
	}
}

// endAttempt clears the fields of j that belong to one attempt. It does not change State.
func (j *modelJob) endAttempt() {
	j.Phase, j.Deadline, j.Expires, j.lease, j.got = "", time.Time{}, time.Time{}, time.Time{}, false
}

// startOver ends the attempt of j and makes the next attempt the first one. A job with a key loses
// its reason, and without a queue its answer.
func (j *modelJob) startOver() {
	j.endAttempt()
	j.Attempt = 0
	if j.Key != "" {
		j.Reason = ""
		if j.Queue == "" {
			j.Answer = nil
		}
	}
}

// underWay reports whether j runs and its answer has come while a worker still sends the request.
func (j *modelJob) underWay() bool { return j.got && j.State == jobs.Running && j.Phase == "" }

// deliver makes j RUNNING and due now, with Phase Answered, so that a worker claims it with its
// answer. The token rises unless a worker still sends the request.
func (j *modelJob) deliver(now time.Time) {
	if j.State != jobs.Running || j.Phase != "" {
		j.Token++
	}
	j.State, j.Phase, j.Deadline, j.lease, j.got = jobs.Running, jobs.Answered, time.Time{}, now, true
}

// holder returns the oldest open job for which has is true, or nil.
func (m *model) holder(has func(j *modelJob) bool) *modelJob {
	all := m.all(func(j *modelJob) bool { return !j.State.Over() && has(j) })
	if len(all) == 0 {
		return nil
	}
	return all[0]
}

// taken reports whether another open job has a key of j.
func (m *model) taken(j *modelJob) bool {
	return m.holder(func(o *modelJob) bool {
		return o.ID != j.ID && o.Name == j.Name && (j.Key != "" && o.Key == j.Key || j.UniqueKey != "" && o.UniqueKey == j.UniqueKey)
	}) != nil
}

// badQueue reports whether a spec combines fields of queues and keys that exclude each other, so
// that the service must refuse it.
func badQueue(s *modelSpec) bool {
	if s.Unique && (s.Queue != "" || s.Key != "" || s.UniqueKey != "") {
		return true
	}
	if s.Queue == "" {
		return s.Weight.IsSet() || s.Windows != nil || s.Timeout.IsSet()
	}
	return s.RetryAfter != "" || s.Parent != 0 || s.Mock
}

// admit starts the job id, which is QUEUED, or claims it if it runs, as the leader of its queue
// does. Its lease ends after lease.
func (m *model) admit(id jobs.ID, lease time.Duration, now time.Time) {
	j := m.jobs[id]
	j.Changed, j.LastRun = now, now
	j.Token++
	if j.State == jobs.Queued {
		if j.Attempt == 0 || j.Scheduled.IsZero() {
			j.Scheduled = j.NextRun
		}
		j.State, j.Answer, j.Reason, j.got = jobs.Running, nil, "", false
		j.Run, j.Attempt = j.Run+1, j.Attempt+1
		if j.Timeout > 0 {
			j.Deadline = now.Add(j.Timeout)
		}
	} else if j.underWay() {
		j.Phase, j.Deadline = jobs.Answered, time.Time{}
	}
	j.lease = now.Add(lease)
}

// expect applies Service.Expect to the model. Returns the errors that the service may return; nil:
// it must succeed.
func (m *model) expect(id jobs.ID, token int64, key string, now time.Time) []error {
	j := m.jobs[id]
	switch {
	case j == nil:
		return []error{jobs.ErrNotFound}
	case j.stale(token):
		return []error{jobs.ErrStale}
	case !j.State.Runs():
		return []error{jobs.ErrNotRunning}
	case j.Key == key:
		return nil
	case j.got:
		return []error{jobs.ErrAnswerThere}
	}
	k := *j
	if k.Key, k.UniqueKey = key, ""; m.taken(&k) {
		return []error{jobs.ErrKeyTaken}
	}
	j.Key, j.Answer, j.Reason, j.Attempt, j.Changed = key, nil, "", max(1, j.Attempt), now
	return nil
}

// await applies Service.Await to the model. It reports whether the answer has come, and returns the
// errors that the service may return; nil: it must succeed.
func (m *model) await(a *jobs.Await, now time.Time) (bool, []error) {
	j := m.jobs[a.ID]
	switch {
	case j == nil:
		return false, []error{jobs.ErrNotFound}
	case a.Token != 0 && a.Token == j.Token && j.State == jobs.Finished && j.Phase == jobs.Answered:
		return true, nil
	case a.Token != 0 && a.Token == j.Token && !j.State.Runs() && !j.State.Over() && j.Attempt == 0:
		return true, nil
	case j.stale(a.Token):
		return false, []error{jobs.ErrStale}
	case !j.State.Runs():
		return false, []error{jobs.ErrNotRunning}
	}
	key := a.Key
	if key == "" {
		key = j.Key
	}
	switch {
	case key == "":
		return false, []error{jobs.ErrBadJob}
	case j.got:
		j.Changed = now
		if j.Phase == jobs.Answered {
			j.lease = now
		} else {
			j.deliver(now)
		}
		return true, nil
	case j.Phase == jobs.Awaiting && key == j.Key:
		return false, nil
	}
	if errs := m.expect(a.ID, a.Token, key, now); errs != nil {
		return false, errs
	}
	j.State, j.Phase, j.Attempt, j.Changed, j.lease = jobs.Running, jobs.Awaiting, max(1, j.Attempt), now, time.Time{}
	if e, ok := m.early[keyName(j.Name, key)]; ok && e.until.After(now) {
		delete(m.early, keyName(j.Name, key))
		m.accept(j, e.result, e.refusal, now)
		return true, nil
	}
	if d, set := a.Timeout.Get(); set {
		if j.Deadline = now.Add(d); d == 0 {
			j.Deadline = time.Time{}
		}
	} else if j.Deadline.IsZero() {
		if d = 24 * time.Hour; j.Queue != "" {
			d = j.Timeout
		}
		if d > 0 {
			j.Deadline = now.Add(d)
		}
	}
	j.lease = j.Deadline
	return false, nil
}

// answer applies an answer to the model, or a refusal if refusal is not "". It returns the kind of
// the receipt.
func (m *model) answer(name, key, result, refusal string, now time.Time) jobs.ReceiptKind {
	j := m.holder(func(j *modelJob) bool { return j.Name == name && j.Key == key })
	switch {
	case j == nil:
		ended := m.all(func(j *modelJob) bool { return j.Name == name && j.Key == key && j.State.Over() })
		if n := len(ended); n > 0 {
			if ended[n-1].got {
				return jobs.Duplicate
			}
			return jobs.Late
		}
	case j.begun() && j.got:
		return jobs.Duplicate
	case j.begun():
		m.accept(j, result, refusal, now)
		return jobs.Accepted
	case j.Run > 0 && (j.Repeat != "" || j.HasChildren): // its last run has succeeded
		return jobs.Duplicate
	}
	if e, ok := m.early[keyName(name, key)]; ok && e.until.After(now) {
		return jobs.Duplicate
	}
	m.early[keyName(name, key)] = earlyAnswer{result, refusal, now.Add(modelEarly)}
	return jobs.Early
}

// accept gives j, whose attempt has begun, its answer or refusal. The answer ends the run, or j
// becomes due for a worker. If a worker still sends the request, j only stores the answer.
func (m *model) accept(j *modelJob, result, refusal string, now time.Time) {
	j.Changed = now
	if j.Respond || refusal != "" {
		if j.Answer, j.Reason = []byte(result), refusal; refusal != "" {
			j.Answer = nil
		}
		if j.State == jobs.Running && j.Phase == "" {
			j.got = true
			return
		}
		j.deliver(now)
		return
	}
	j.Answer, j.got = []byte(result), true
	j.setData(nil)
	m.ended(j, false, now)
}

// ended ends the run of j as a success. With stop, a job that repeats ends. Returns ErrOutstanding
// if the job would be deleted and has children; nil: it succeeded.
func (m *model) ended(j *modelJob, stop bool, now time.Time) []error {
	j.Changed = now
	for _, c := range m.children(j.ID) { // it has seen the children that are over
		if c.State == jobs.Finished || c.State == jobs.Cancelled {
			delete(m.jobs, c.ID)
		}
	}
	switch {
	case m.pending(j.ID):
		j.startOver()
		j.State, j.NextRun = jobs.Paused, j.LastRun
		for _, c := range m.children(j.ID) {
			if c.State == jobs.Paused {
				c.State, c.Changed = jobs.Queued, now
			}
		}
	case j.Repeat != "" && !stop:
		m.repeatRun(j, now)
	case j.Parent != 0 || j.kept():
		m.over(j, jobs.Finished, now)
		if j.kept() {
			j.Reason = ""
		}
	case len(m.children(j.ID)) > 0:
		return []error{jobs.ErrOutstanding}
	default:
		delete(m.jobs, j.ID)
	}
	m.settle(now, j)
	return nil
}

// withdraw applies Service.Withdraw to the model. Returns the errors that the service may return;
// nil: it must succeed.
func (m *model) withdraw(id jobs.ID, now time.Time) []error {
	j := m.jobs[id]
	switch {
	case j == nil:
		return []error{jobs.ErrNotFound}
	case j.State == jobs.Cancelled:
		return nil
	case j.State.Over():
		return []error{jobs.ErrOver}
	case len(m.children(id)) > 0:
		return []error{jobs.ErrHasChildren}
	}
	if j.State.Runs() {
		j.Token++
	}
	j.setData(nil)
	j.Changed = now
	m.over(j, jobs.Cancelled, now)
	m.settle(now, j)
	return nil
}

// purge deletes expired jobs and early answers. It returns the number of deleted jobs.
func (m *model) purge(now time.Time) (n int) {
	for _, j := range m.all(func(j *modelJob) bool { return !j.Expires.IsZero() && !j.Expires.After(now) }) {
		delete(m.jobs, j.ID)
		n++
	}
	maps.DeleteFunc(m.early, func(_ string, e earlyAnswer) bool { return !e.until.After(now) })
	return n
}

// compareEarly compares the stored early answers with the model and returns the difference, or nil.
// At now expired answers may exist or not.
func (m *model) compareEarly(got []jobstore.EarlyAnswer, now time.Time) error {
	seen := map[string]earlyAnswer{}
	for i := range got {
		if e := &got[i]; e.Expires.After(now) {
			seen[keyName(e.Name, e.Key)] = earlyAnswer{string(e.Result), e.Refusal, e.Expires}
		}
	}
	want := maps.Clone(m.early)
	for k, e := range want {
		if !e.until.After(now) {
			delete(want, k)
			continue
		}
		if e.refusal != "" {
			e.result = ""
			want[k] = e
		}
	}
	if diff := gocmp.Diff(want, seen, gocmp.AllowUnexported(earlyAnswer{}), gocmp.Comparer(time.Time.Equal)); diff != "" {
		return fmt.Errorf("other early answers are there (-want +got):\n%s", diff)
	}
	return nil
}

// lawfulKeys checks the rules of keys, queues and answers that hold for all stored jobs at any
// time. Returns an error for each job that breaks one, joined, or nil.
func lawfulKeys(list []jobs.Row) error {
	var errs []error
	owners := map[string]jobs.ID{}
	for i := range list {
		j := &list[i]
		for _, k := range []string{"key " + keyName(j.Name, j.Key), "unique " + keyName(j.Name, j.UniqueKey)} {
			if j.State.Over() || k[len(k)-1] == 0 {
				continue
			}
			if other, ok := owners[k]; ok {
				errs = append(errs, fmt.Errorf("jobs %d and %d have the %q", other, j.ID, k))
			}
			owners[k] = j.ID
		}
		switch {
		case j.State.Over() && (!j.Due.IsZero() || !j.Deadline.IsZero()):
			errs = append(errs, fmt.Errorf("job %d is over, and is due or has a deadline", j.ID))
		case !j.State.Over() && !j.Expires.IsZero():
			errs = append(errs, fmt.Errorf("job %d is %s and expires", j.ID, j.State))
		case j.Phase != "" && !j.State.Over() && j.State != jobs.Running:
			errs = append(errs, fmt.Errorf("job %d is %s and %s", j.ID, j.State, j.Phase))
		case j.Phase != "" && j.Key == "":
			errs = append(errs, fmt.Errorf("job %d is %s without a key", j.ID, j.Phase))
		case j.State.Over() && j.Phase == jobs.Awaiting:
			errs = append(errs, fmt.Errorf("job %d is over and awaits an answer", j.ID))
		}
	}
	return errors.Join(errs...)
}

// modelKeys returns the drawn keys.
func modelKeys() []string { return slices.Clone([]string{"x", "x", "y"}) }

// modelAnswers returns the names and keys of the drawn answers.
func modelAnswers() (all []jobs.Answer) {
	for _, name := range modelNames() {
		for _, key := range []string{"x", "y"} {
			all = append(all, jobs.Answer{Name: name, Key: key})
		}
	}
	return all
}
