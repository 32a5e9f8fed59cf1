package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/swarmiji/swarmiji/internal/glob"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

const (
	// jobPage is the number of jobs that one read returns, because each may have a megabyte of data.
	jobPage = 100
	// jobReads limits the reads of one call.
	jobReads = 100
)

// theJobs returns the jobs.
func (l *Local) theJobs() (*jobs.Service, error) {
	if l.cfg.Jobs == nil {
		return nil, missing("jobs", needJobs)
	}
	return l.cfg.Jobs, nil
}

// about adds the job's id to an error, and to ErrNotFound why a job may be gone.
func about(id jobs.ID, err error) error {
	if errors.Is(err, jobs.ErrNotFound) {
		err = fmt.Errorf("%w; a job without queue or key is deleted when it finishes", err)
	}
	return wrapped(fmt.Errorf("job %d: %w", id, err))
}

// jobOf describes a job without fields that may be large or secret.
func jobOf(j *jobs.Row) Job {
	return Job{
		ID: int64(j.ID), Name: j.Name, State: string(j.State), Phase: string(j.Phase), Queue: j.Queue, Priority: j.Priority,
		Due: utc(j.Due), Changed: utc(j.Changed), Reason: j.Reason,
	}
}

// jobQuery is a JobQuery that was checked.
type jobQuery struct {
	store jobs.Filter
	name  *glob.Pattern // nil: the store selects the name
	phase jobs.Phase
	key   string // "": any key
}

// parse checks q.
func (q *JobQuery) parse() (jobQuery, error) {
	p := jobQuery{store: jobs.Filter{Limit: jobPage, Queue: q.Queue}, phase: jobs.Phase(strings.ToUpper(q.Phase))}
	if p.phase != "" && p.phase != jobs.Awaiting && p.phase != jobs.Answered {
		return p, errorf(CodeInvalid, "the phase is %q, want AWAITING or ANSWERED", q.Phase)
	}
	for _, text := range q.States {
		state := jobs.State(strings.ToUpper(text))
		if !slices.Contains(jobstore.States(), state) {
			return p, errorf(CodeInvalid, "the state is %q, want some of %v", text, jobstore.States())
		}
		p.store.States = append(p.store.States, state)
	}
	if q.Name != "" {
		pattern := glob.Compile(q.Name)
		exact, isExact := pattern.Exact()
		switch {
		case pattern.Never():
			return p, errorf(CodeInvalid, "the name: a [ is not closed in %q", q.Name)
		case isExact && q.Queue == "":
			p.store.Name = exact
		default:
			p.name = &pattern
		}
	}
	if q.Task != "" {
		if err := q.Task.Check(); err != nil {
			return p, wrapped(err)
		}
		if p.key = jobs.KeyOfTask(q.Task); p.store.Name != "" {
			p.store.Key = p.key
		}
	}
	after, err := position(q.Cursor)
	p.store.After = jobs.ID(after)
	return p, err
}

// wants reports whether a job that the store has selected matches the other fields.
func (p *jobQuery) wants(j *jobs.Row) bool {
	return (p.name == nil || p.name.Match(j.Name)) && (p.phase == "" || p.phase == j.Phase) && (p.key == "" || p.key == j.Key)
}

// ListJobs implements [Jobs].
func (l *Local) ListJobs(ctx context.Context, q JobQuery) (JobPage, error) {
	page := JobPage{Jobs: []Job{}}
	n, err := pageLimit(q.Limit)
	if err != nil {
		return page, err
	}
	p, err := q.parse()
	if err != nil {
		return page, err
	}
	s, err := l.theJobs()
	if err != nil {
		return page, err
	}
	for range jobReads {
		rows, err := s.Rows(ctx, p.store)
		if err != nil {
			return page, wrapped(err)
		}
		for i := range rows {
			if !p.wants(&rows[i]) {
				continue
			}
			if len(page.Jobs) == n {
				page.Next = strconv.FormatInt(page.Jobs[n-1].ID, 10)
				return page, nil
			}
			page.Jobs = append(page.Jobs, jobOf(&rows[i]))
		}
		if len(rows) < jobPage {
			return page, nil
		}
		p.store.After = rows[len(rows)-1].ID
	}
	page.Next = strconv.FormatInt(int64(p.store.After), 10)
	return page, nil
}

// GetJob implements [Jobs].
func (l *Local) GetJob(ctx context.Context, id int64) (JobDetail, error) {
	s, err := l.theJobs()
	if err != nil {
		return JobDetail{}, err
	}
	j, err := s.Row(ctx, jobs.ID(id))
	if err != nil {
		return JobDetail{}, about(jobs.ID(id), err)
	}
	d := JobDetail{
		Job: jobOf(&j), Created: utc(j.Created), NextRun: utc(j.NextRun), Scheduled: utc(j.Scheduled), LastRun: utc(j.LastRun), Runs: j.Run, Token: j.Token,
		Attempt: j.Attempt, Repeat: j.Repeat, RetryAfter: j.RetryAfter, Parent: int64(j.Parent), SequenceKey: j.SequenceKey, UniqueKey: j.UniqueKey,
		Key: j.Key, Mock: j.Mock, Windows: strings.TrimPrefix(j.Window, "WINDOWS "), Timeout: Duration(j.Timeout), Deadline: utc(j.Deadline),
		Expires: utc(j.Expires), Data: j.Data, Answer: j.Answer,
	}
	if j.Queue != "" {
		weight := float64(j.Weight) / 1000
		d.Weight = &weight
	}
	if !j.HasChildren {
		return d, nil
	}
	children, err := s.Rows(ctx, jobs.Filter{Parent: j.ID, Limit: DefaultLimit})
	for i := range children {
		d.Children = append(d.Children, jobOf(&children[i]))
	}
	return d, wrapped(err)
}

// WhyJob implements [Jobs].
func (l *Local) WhyJob(ctx context.Context, id int64) (Explanation, error) {
	s, err := l.theJobs()
	if err != nil {
		return Explanation{}, err
	}
	e, err := s.Explain(ctx, jobs.ID(id))
	if err != nil {
		return Explanation{}, about(jobs.ID(id), err)
	}
	x := Explanation{ID: strconv.FormatInt(id, 10), Name: e.Job.Name, Queue: e.Job.Queue, State: string(e.Job.State), At: utc(e.At), Reasons: []Reason{}}
	for _, w := range e.Reasons {
		r := Reason{Kind: Kind(w.Kind), Text: w.Text, At: utc(w.At), Job: int64(w.Job), Key: w.Key, Queue: e.Job.Queue}
		switch w.Kind {
		case jobs.WhyAnswer:
			r.Help = answerTask(e.Job.Name, w.Key)
		case jobs.WhyNoRunner:
			r.Help = &Action{Do: DoStartConsumer, Text: "start a runner of queue " + e.Job.Queue, Queue: e.Job.Queue}
		case jobs.WhyOver:
			if e.Job.State == jobs.Failed || e.Job.State == jobs.Cancelled {
				r.Help = retryJob(id)
			}
		}
		x.Reasons = append(x.Reasons, r)
	}
	return x, nil
}

// changeJobs reads all jobs of a change, so that none is changed if one does not exist, and calls
// do.
func (l *Local) changeJobs(ctx context.Context, what Do, j JobChange, do func(c *Change, s *jobs.Service, all []jobs.Row) error) (Change, error) {
	texts := make([]string, len(j.IDs))
	for i, id := range j.IDs {
		texts[i] = strconv.FormatInt(id, 10)
	}
	c := Change{Do: what, Target: strings.Join(texts, ",")}
	s, err := l.theJobs()
	if err != nil {
		return c, err
	}
	if len(j.IDs) == 0 || len(j.IDs) > MaxBulk {
		return c, errorf(CodeInvalid, "%d jobs, want 1 to %d", len(j.IDs), MaxBulk)
	}
	all := make([]jobs.Row, len(j.IDs))
	for i, id := range j.IDs {
		if all[i], err = s.Row(ctx, jobs.ID(id)); err != nil {
			return c, about(jobs.ID(id), err)
		}
	}
	return l.change(ctx, c, j, func(c *Change) error { return do(c, s, all) })
}

// RetryJobs implements [Jobs].
func (l *Local) RetryJobs(ctx context.Context, j JobChange) (Change, error) {
	return l.changeJobs(ctx, DoRetryJobs, j, func(c *Change, s *jobs.Service, all []jobs.Row) error {
		ids := make([]jobs.ID, len(all))
		for i := range all {
			switch ids[i] = all[i].ID; {
			case j.Force:
			case all[i].State.Runs():
				return fmt.Errorf("job %d: %w; --force lets it run again", all[i].ID, jobs.ErrIsRunning)
			case all[i].State == jobs.Finished:
				return fmt.Errorf("job %d: %w: it is FINISHED; --force lets it run again", all[i].ID, jobs.ErrState)
			}
		}
		err := s.Requeue(ctx, ids, "")
		if err == nil {
			c.Done = len(ids)
		}
		return err
	})
}

// CancelJobs implements [Jobs].
func (l *Local) CancelJobs(ctx context.Context, j JobChange) (Change, error) {
	return l.changeJobs(ctx, DoCancelJobs, j, func(c *Change, s *jobs.Service, all []jobs.Row) error {
		for i := range all {
			if err := s.Withdraw(ctx, all[i].ID); err != nil {
				return fmt.Errorf("%d of %d are done; job %d: %w", i, len(all), all[i].ID, err)
			}
			c.Done++
		}
		return nil
	})
}

// RemoveJobs implements [Jobs].
func (l *Local) RemoveJobs(ctx context.Context, j JobChange) (Change, error) {
	return l.changeJobs(ctx, DoRemoveJobs, j, func(c *Change, s *jobs.Service, all []jobs.Row) error {
		for i := range all {
			var err error
			if j.Force {
				err = removeAll(ctx, s, &all[i])
			} else {
				err = s.Delete(ctx, all[i].ID)
			}
			if err != nil {
				return fmt.Errorf("%d of %d are done; job %d: %w", i, len(all), all[i].ID, err)
			}
			c.Done++
		}
		return nil
	})
}

// removeAll deletes a job, which may be running, and its children first.
func removeAll(ctx context.Context, s *jobs.Service, j *jobs.Row) error {
	for j.HasChildren {
		children, err := s.Rows(ctx, jobs.Filter{Parent: j.ID, Limit: jobPage})
		if err != nil {
			return err
		}
		for i := range children {
			if err := removeOne(ctx, s, children[i].ID); err != nil {
				return err
			}
		}
		if len(children) < jobPage {
			break
		}
	}
	return removeOne(ctx, s, j.ID)
}

// removeOne withdraws a job that has not ended, and deletes it.
func removeOne(ctx context.Context, s *jobs.Service, id jobs.ID) error {
	err := s.Withdraw(ctx, id)
	if err == nil || errors.Is(err, jobs.ErrOver) {
		err = s.Delete(ctx, id)
	}
	if errors.Is(err, jobs.ErrNotFound) { // the job has ended in between
		return nil
	}
	return err
}
