package jobs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/swarmiji/swarmiji/task"
)

// TaskID returns the id of the task that the present run of j is, or its last one. It depends on which job it is, by ID and Created, and on its Run
// alone, so that every process, before and after a crash, gives one run one id; jobs of two databases have different ones. That of a job which was made of a task is
// the task's own ([TaskOf]).
func TaskID(j Row) task.ID {
	if id, ok := TaskOf(&j.Job); ok {
		return id
	}
	return RunOf(&j).TaskID()
}

// Run tells one run of a job from every other.
type Run struct {
	ID ID
	// Number is the job's [Job.Run].
	Number int64
	// Created is the job's, in microseconds: ids begin anew with a new database.
	Created int64
}

// RunOf returns the present run of j, or its last one.
func RunOf(j *Row) Run { return Run{j.ID, j.Run, j.Created.UnixMicro()} }

// TaskID returns the id of the task that the run is.
func (r Run) TaskID() task.ID { return task.Derive("job", r.String()) }

// HeaderRun is the header in which the task of a dispatched job tells which run of which job it is.
const HeaderRun = "swarmiji-job-run"

// String is how a run travels.
func (r Run) String() string {
	b := strconv.AppendInt(nil, int64(r.ID), 10)
	b = strconv.AppendInt(append(b, ' '), r.Number, 10)
	return string(strconv.AppendInt(append(b, ' '), r.Created, 10))
}

// ParseRun reads what String wrote.
func ParseRun(s string) (Run, bool) {
	var n [3]int64
	parts := strings.Split(s, " ")
	if len(parts) != len(n) {
		return Run{}, false
	}
	for i, p := range parts {
		var err error
		if n[i], err = strconv.ParseInt(p, 10, 64); err != nil {
			return Run{}, false
		}
	}
	r := Run{ID(n[0]), n[1], n[2]}
	return r, r.String() == s
}

// CurrentRun returns the job if this run of it goes on, else [ErrStale].
func (s *Service) CurrentRun(ctx context.Context, r Run) (Row, error) {
	j, err := s.currentRun(ctx, r)
	return j, s.countStale(err)
}

func (s *Service) currentRun(ctx context.Context, r Run) (Row, error) {
	j, err := s.Row(ctx, r.ID)
	switch {
	case errors.Is(err, ErrNotFound):
		return j, fmt.Errorf("%w: %w", ErrStale, err)
	case err == nil && (RunOf(&j) != r || !j.State.Runs()):
		return j, fmt.Errorf("%w: job %d is %s in run %d", ErrStale, j.ID, j.State, j.Run)
	}
	return j, err
}
