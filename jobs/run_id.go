package jobs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/swarmiji/swarmiji/task"
)

// TaskID returns the id of the task of the current or last run of j. The id depends only on the ID,
// Created and Run of j. So every process computes the same id for a run, also after a crash, and
// two databases never share an id. For a job of a task with conditions it is the id of that task
// ([TaskOf]).
func TaskID(j Row) task.ID {
	if id, ok := TaskOf(&j.Job); ok {
		return id
	}
	return RunOf(&j).TaskID()
}

// Run identifies one run of a job.
type Run struct {
	ID ID
	// Number is [Row].Run of the job.
	Number int64
	// Created is the job's time of creation, in microseconds since 1970. It distinguishes databases,
	// since ids begin with 1 in each.
	Created int64
}

// RunOf returns the current run of j, or its last one.
func RunOf(j *Row) Run { return Run{j.ID, j.Run, j.Created.UnixMicro()} }

// TaskID returns the id of the task that is dispatched for the run.
func (r Run) TaskID() task.ID { return task.Derive("job", r.String()) }

// HeaderRun is the header of a dispatched task that contains the run of its job ([Run.String]).
const HeaderRun = "swarmiji-job-run"

// String returns the run as text for HeaderRun: ID, Number and Created as decimal numbers,
// separated by spaces.
func (r Run) String() string {
	b := strconv.AppendInt(nil, int64(r.ID), 10)
	b = strconv.AppendInt(append(b, ' '), r.Number, 10)
	return string(strconv.AppendInt(append(b, ' '), r.Created, 10))
}

// ParseRun parses the text of a run, as [Run.String] has written it. For any other text it returns
// false; ignore the Run then. It does not check that the job exists.
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

// CurrentRun returns the job of the run r if this run has not ended. Returns [ErrStale], and counts
// it, if the run is over, the job has begun another run, or the job does not exist. An existing job
// is returned also with ErrStale. Returns other errors of the store, with an empty Row.
func (s *Service) CurrentRun(ctx context.Context, r Run) (Row, error) {
	j, err := s.currentRun(ctx, r)
	return j, s.countStale(err)
}

// currentRun returns the job of the run r, as CurrentRun does, without counting ErrStale. Returns
// other errors of the store unchanged.
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
