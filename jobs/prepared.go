package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// PreparedSubmitter publishes tasks with conditions (task.Conditions) for which a producer has
// created jobs. A producer implements it. Such a job has a Queue and stores the task's message
// ([Service.Messages]). Its Key identifies the task ([TaskOf]).
type PreparedSubmitter interface {
	// SubmitPrepared publishes the task of a message and returns its handle. A nil error means that
	// the broker has confirmed it. A repeated call is safe. Returns an error that wraps
	// task.ErrBadArgs if the message is not such a task.
	SubmitPrepared(ctx context.Context, message []byte) (task.Pending, error)
	// RevokePrepared records that the task of a message is revoked, because its job was withdrawn. A
	// recorded end of the task stays. A repeated call is safe.
	RevokePrepared(ctx context.Context, message []byte) error
}

// keyOfTask is the prefix of the Key of the job of a task with conditions.
const keyOfTask = "swarmiji.task/"

// KeyOfTask returns the Key of the job of a task with conditions: "swarmiji.task/" and the id. Such
// a task waits as a job until its conditions, such as a queue's limit, let it start
// ([task.Conditions]).
func KeyOfTask(id task.ID) string { return keyOfTask + string(id) }

// TaskOf returns the id of the task with conditions that j was created for, which its Key
// contains. The second result is false for any other job: it has another Key or no Queue. Ignore
// the id then. A job of a task has one run, since it has one task.
func TaskOf(j *Job) (task.ID, bool) {
	id, ok := strings.CutPrefix(j.Key, keyOfTask)
	return task.ID(id), ok && j.Queue != ""
}

// TaskEnded ends the running job of a task with conditions ([task.Conditions]) after the end of the
// task was recorded. The job becomes FINISHED, or FAILED with the text of failure if failure is not
// nil. A job that does not run, has ended meanwhile or does not exist is not an error. Returns
// errors of the store. It calls Fail or Finish, which count in [Stats].
//
// A consumer with Config.Jobs calls it. The next task of a sequence or of a full queue then starts
// without waiting for the runner's next check of the records.
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
	// The job has ended or was claimed again. In the second case its worker checks the record first.
	if jobstore.RunOver(err) {
		return nil
	}
	return err
}

// JobOfTask returns the running job of the task with conditions that has this name and id. A job
// that awaits an answer also runs. Returns [ErrStale], and counts it, if the job does not run or
// does not exist. Returns errors of the store.
func (s *Service) JobOfTask(ctx context.Context, name string, id task.ID) (Row, error) {
	j, err := s.jobOfTask(ctx, name, id)
	return j, s.countStale(err)
}

// jobOfTask returns the running job of a task with conditions. Returns ErrStale, without counting
// it, if the job does not run or does not exist. Returns errors of the store.
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
