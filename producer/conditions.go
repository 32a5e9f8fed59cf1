package producer

import (
	"fmt"
	"maps"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

var (
	// errNoJobs refuses conditions without a store of jobs.
	errNoJobs = fmt.Errorf("%w: a sequence key, unique key, weight, windows or throttle need a store of jobs: set Config.Jobs", broker.ErrUnsupported)
	// errStepConditions refuses conditions in workflows, whose later steps travel in messages and are
	// not submitted by a producer.
	errStepConditions = fmt.Errorf("%w: a step of a workflow cannot have conditions: submit the task with conditions in the handler of the step", broker.ErrUnsupported)
	// errMostOnce and the next two refuse tasks whose end could not be found, or that could not be
	// sent again.
	errMostOnce   = fmt.Errorf("%w: a task with conditions may be sent again after a lost answer, so it cannot run at most once", broker.ErrUnsupported)
	errNoEnd      = fmt.Errorf("%w: a task with conditions cannot ignore its result: its sequence, weight and unique key are held until its end is recorded", task.ErrBadMetadata)
	errOtherStore = fmt.Errorf("%w: a task with conditions cannot name a result store: the runner reads its end from the default one", broker.ErrUnsupported)
)

// minConditionedTTL is the minimal retention of the result of a task with conditions. A runner that
// was stopped must find the end of the task, or it sends the task again. Runners read the ends of
// jobs for a day (runner.DefaultTimeout).
const minConditionedTTL = 24*time.Hour + task.DefaultResultTTL

// maxConditioned is the largest stored message of a task with conditions, in bytes.
const maxConditioned = 1 << 20

// beginConditioned prepares the task of s for Config.Jobs. It marks the envelope by a header and
// sets s.conditioned, still without the message; finishConditioned adds that. It extends the
// retention of the result to minConditionedTTL. An empty throttle becomes [task.DefaultThrottle].
//
// Returns an error that wraps [broker.ErrUnsupported] or [task.ErrBadMetadata] if the task cannot
// have conditions: without Config.Jobs, for an at-most-once task, an ignored result, or a named
// result store.
func (s *staged) beginConditioned() error {
	c, e, m := s.conditions, s.envelope, s.effective
	switch {
	case s.producer.cfg.Jobs == nil:
		return errNoJobs
	case !m.Idempotent.Or(true):
		return errMostOnce
	case m.IgnoreResult.Or(false):
		return errNoEnd
	case m.ResultStore.Or("") != "":
		return errOtherStore
	}
	if c.Throttle == "" {
		own := *c
		own.Throttle = task.DefaultThrottle
		c = &own
	}
	headers := maps.Clone(e.Headers) // the map may belong to a middleware
	if headers == nil {
		headers = make(map[string]string, 1)
	}
	headers[task.HeaderConditions] = string(e.ID)
	e.Headers = headers
	if ttl := m.ResultTTL.Or(task.DefaultResultTTL); ttl < minConditionedTTL {
		e.Meta.ResultTTL = task.Set(minConditionedTTL)
		s.setEnvelope(e)
	}
	s.conditioned = &task.Conditioned{ID: e.ID, Name: e.Name, Conditions: *c, Chosen: s.chosen}
	return nil
}

// checkResults returns an error if Jobs is set but Results only sends results to the submitter, so
// that the ends of tasks cannot be read. Without Jobs or Results it returns nil.
func (c *Config) checkResults() error {
	if c.Jobs == nil || c.Results == nil || !resultstore.RepliesOnly(c.Results) {
		return nil
	}
	return fmt.Errorf("config: Jobs: %w: this result store sends results only to the submitter; tasks with conditions need one that "+
		"can be asked for their ends, such as SQL, where the jobs are, or Redis or NATS", broker.ErrUnsupported)
}

// finishConditioned stores the encoded message of s.out, its earliest start and its priority in
// s.conditioned. Returns [broker.ErrTooLarge] if the message is larger than maxConditioned, and
// errors of the encoding.
func (s *staged) finishConditioned() error {
	data, err := wire.Prepare(s.out.Queue, s.out.Message)
	if err != nil {
		return err
	}
	if len(data) > maxConditioned {
		return fmt.Errorf("the stored message has %d bytes, limit %d: %w", len(data), maxConditioned, broker.ErrTooLarge)
	}
	s.conditioned.Message, s.conditioned.NotBefore, s.conditioned.Priority = data, s.out.At, s.out.Message.Priority
	return nil
}
