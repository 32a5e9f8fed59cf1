package jobstest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// model contains the expected jobs in plain maps. Its rules are in model_rules.go.
type model struct {
	jobs  map[jobs.ID]*modelJob
	last  jobs.ID                // the highest id so far
	early map[string]earlyAnswer // by keyName
}

// modelJob is a job in the model. Its Data are separate, and Due is computed.
type modelJob struct {
	jobs.Row
	data  fields
	lease time.Time // end of the lease of a RUNNING job; zero: no end
	got   bool      // its attempt has its answer; the last attempt if the job is over
}

// fields contains the members of an object, each value as JSON.
type fields map[string]string

// text returns the fields as JSON, in the order of their names.
func (f fields) text() []byte {
	if f == nil {
		return nil
	}
	var b strings.Builder
	for i, k := range slices.Sorted(maps.Keys(f)) {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:%s", k, f[k])
	}
	return []byte("{" + b.String() + "}")
}

// readFields decodes a JSON object; the values keep their text. Returns an error for any other
// text.
func readFields(data []byte) (fields, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, fmt.Errorf("the data %q: %w", data, err)
	}
	f := fields{}
	for k, v := range raw {
		f[k] = string(v)
	}
	return f, nil
}

// newModel returns a model without jobs and early answers.
func newModel() *model { return &model{jobs: map[jobs.ID]*modelJob{}, early: map[string]earlyAnswer{}} }

// clone returns a copy that shares no job, data or early answer with m.
func (m *model) clone() *model {
	c := &model{jobs: map[jobs.ID]*modelJob{}, last: m.last, early: maps.Clone(m.early)}
	for id, j := range m.jobs {
		k := *j
		k.data = maps.Clone(j.data)
		c.jobs[id] = &k
	}
	return c
}

// all returns the jobs for which pass is true, in the order of ids.
func (m *model) all(pass func(*modelJob) bool) []*modelJob {
	var out []*modelJob
	for _, j := range m.jobs {
		if pass == nil || pass(j) {
			out = append(out, j)
		}
	}
	slices.SortFunc(out, func(a, b *modelJob) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// due returns the time at which a job may be claimed. Zero: it may not.
func (j *modelJob) due() time.Time {
	switch j.State {
	case jobs.Queued, jobs.RunQueued:
		return j.NextRun
	case jobs.Running:
		return j.lease
	}
	return time.Time{}
}

// compare compares a stored job with the model's job and returns the difference, or nil. A Reason
// of anyReason matches any text but "".
func (j *modelJob) compare(got *jobs.Row) error {
	want := j.Row
	want.Due = j.due()
	f, err := readFields(got.Data)
	if err != nil {
		return err
	}
	seen := *got
	want.Data, seen.Data = nil, nil
	if want.Reason == anyReason && seen.Reason != "" {
		seen.Reason = anyReason
	}
	if reflect.DeepEqual(want, seen) && maps.Equal(j.data, f) {
		return nil // the usual case, without a slow comparison
	}
	if diff := gocmp.Diff(want, seen) + gocmp.Diff(j.data, f); diff != "" {
		return fmt.Errorf("job %d (-want +got):\n%s", j.ID, diff)
	}
	return nil
}

// compare compares all stored jobs and early answers with the model, and checks the rules that hold
// at any time (lawful, lawfulKeys). Returns all differences, joined, or nil. It raises m.last to
// the highest stored id.
func (m *model) compare(got []jobs.Row, early []jobstore.EarlyAnswer, now time.Time) error {
	errs := []error{m.compareEarly(early, now)}
	want := m.all(nil)
	wantIDs := make([]jobs.ID, len(want))
	for i, j := range want {
		wantIDs[i] = j.ID
	}
	if diff := gocmp.Diff(wantIDs, ids(got)); diff != "" {
		errs = append(errs, fmt.Errorf("other jobs are there (-want +got):\n%s", diff))
	}
	for i := range got {
		if j := m.jobs[got[i].ID]; j != nil {
			errs = append(errs, j.compare(&got[i]))
		}
	}
	for i := range got {
		m.last = max(m.last, got[i].ID)
	}
	return errors.Join(append(errs, lawful(got), lawfulKeys(got))...)
}

// lawful checks the rules of sequences, parents and mock jobs that hold for all stored jobs at any
// time. Returns an error for each job that breaks one, joined, or nil.
func lawful(list []jobs.Row) error {
	var errs []error
	byID := map[jobs.ID]*jobs.Row{}
	holders, waiting := map[string]int{}, map[string]bool{}
	for i := range list {
		j := &list[i]
		byID[j.ID] = j
		if k := j.SequenceKey; k != "" {
			if j.State.Active() || j.State == jobs.Paused {
				holders[k]++
			}
			waiting[k] = waiting[k] || j.State == jobs.Waiting
		} else if j.State == jobs.Waiting {
			errs = append(errs, fmt.Errorf("job %d waits for no key", j.ID))
		}
	}
	for k, n := range holders {
		if n > 1 {
			errs = append(errs, fmt.Errorf("%d jobs have the turn of key %s", n, k))
		}
	}
	for k, w := range waiting {
		if w && holders[k] == 0 {
			errs = append(errs, fmt.Errorf("jobs wait for key %s, and nobody has its turn", k))
		}
	}
	pending := map[jobs.ID]bool{}
	for _, j := range list {
		p := byID[j.Parent]
		switch {
		case j.Parent == 0:
		case p == nil:
			errs = append(errs, fmt.Errorf("the parent of job %d is gone", j.ID))
		case p.Parent != 0:
			errs = append(errs, fmt.Errorf("job %d is a grandchild", j.ID))
		default:
			pending[p.ID] = pending[p.ID] || j.State.Active() || j.State == jobs.Paused
		}
	}
	for _, j := range list {
		if j.State == jobs.Paused && j.Parent == 0 && !pending[j.ID] {
			errs = append(errs, fmt.Errorf("job %d is paused, and has nobody to wait for", j.ID))
		}
		if j.Mock && j.Repeat != "" {
			errs = append(errs, fmt.Errorf("job %d is a mock and repeats", j.ID))
		}
	}
	return errors.Join(errs...)
}
