package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// PreparedSubmitter sends the tasks that a producer has made jobs of, because they have conditions (task.Conditions). A producer is one. Such a job has a
// Queue and the task's message ([Service.Messages]), and its Key names the task ([TaskOf]).
type PreparedSubmitter interface {
	// SubmitPrepared publishes the task of a message and returns its handle. Nil error means that
	// the broker has confirmed it; to do it again is safe. An error that wraps task.ErrBadArgs says
	// that this message is no such task.
	SubmitPrepared(ctx context.Context, message []byte) (task.Pending, error)
	// RevokePrepared records that the task of a message was revoked, unless its end is recorded
	// already: the job was withdrawn. To do it again is safe.
	RevokePrepared(ctx context.Context, message []byte) error
}

// keyOfTask begins the Key of such a job.
const keyOfTask = "swarmiji.task/"

// KeyOfTask returns the Key that the job of a task with conditions has.
func KeyOfTask(id task.ID) string { return keyOfTask + string(id) }

// TaskOf returns the task that j was made of because it has conditions, and whether j is such a job. It has one run, and so one task.
func TaskOf(j *Job) (task.ID, bool) {
	id, ok := strings.CutPrefix(j.Key, keyOfTask)
	return task.ID(id), ok && j.Queue != ""
}

// TaskEnded ends the job of a task with conditions whose end is recorded: it is FINISHED, or FAILED where failure says why. A consumer with Config.Jobs calls it, so
// that the next task of a sequence, or one that waits for room, need not wait until the runner that has sent this one looks at the record. A job that does not run, or is not
// there, is nobody's error.
func (s *Service) TaskEnded(ctx context.Context, name string, id task.ID, failure error) error {
	j, err := s.jobOfTask(ctx, name, id)
	switch {
	case errors.Is(err, ErrStale):
		return nil
	case err != nil:
		return err
	case failure != nil:
		err = s.Fail(ctx, Fail{ID: j.ID, Token: j.Token, Reason: task.Remote(failure).Error()})
	default:
		err = s.Finish(ctx, Finish{ID: j.ID, Token: j.Token})
	}
	if jobstore.RunOver(err) { // it was ended meanwhile; or handed out again, and then a look at the record comes before all else
		return nil
	}
	return err
}

// JobOfTask returns the job of a task with conditions if it runs, else [ErrStale].
func (s *Service) JobOfTask(ctx context.Context, name string, id task.ID) (Row, error) {
	j, err := s.jobOfTask(ctx, name, id)
	return j, s.countStale(err)
}

func (s *Service) jobOfTask(ctx context.Context, name string, id task.ID) (Row, error) {
	found, err := s.Rows(ctx, Filter{Name: name, Key: KeyOfTask(id), States: []State{Running, RunQueued}, Limit: 1})
	switch {
	case err != nil:
		return Row{}, err
	case len(found) == 0:
		return Row{}, fmt.Errorf("%w: no job of task %s runs", ErrStale, id)
	}
	return found[0], nil
}
