package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// PreparedSubmitter publishes tasks with conditions (task.Conditions), of which a producer has made
// jobs. A producer is one. Such a job has a Queue and the task's message ([Service.Messages]), and
// its Key names the task ([TaskOf]).
type PreparedSubmitter interface {
	// SubmitPrepared publishes the task of a message and returns its handle. A nil error means that
	// the broker has confirmed it. A repeated call is safe. Returns an error that wraps
	// task.ErrBadArgs if the message is no such task.
	SubmitPrepared(ctx context.Context, message []byte) (task.Pending, error)
	// RevokePrepared records that the task of a message was revoked, since its job was withdrawn. A
	// recorded end stays. A repeated call is safe.
	RevokePrepared(ctx context.Context, message []byte) error
}

// keyOfTask is the prefix of the Key of such a job.
const keyOfTask = "swarmiji.task/"

// KeyOfTask returns the Key of the job of a task with conditions.
func KeyOfTask(id task.ID) string { return keyOfTask + string(id) }

// TaskOf returns the task with conditions that j was made of, and whether j is such a job. It has
// one run, and so one task.
func TaskOf(j *Job) (task.ID, bool) {
	id, ok := strings.CutPrefix(j.Key, keyOfTask)
	return task.ID(id), ok && j.Queue != ""
}

// TaskEnded ends the job of a task with conditions whose end is recorded. The job is FINISHED, or
// FAILED if failure gives a reason. A job that does not run or exist is no error.
//
// A consumer with Config.Jobs calls it. So the next task of a sequence or a full queue need not
// wait until the runner checks the record.
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
	// it ended, or was claimed again: then its record is checked first
	if jobstore.RunOver(err) {
		return nil
	}
	return err
}

// JobOfTask returns the running job of a task with conditions. Returns [ErrStale] if the job does
// not run.
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
