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
	// errNoJobs refuses conditions that nobody could keep.
	errNoJobs = fmt.Errorf("%w: a sequence key, unique key, weight, windows or throttle need a store of jobs: configure Config.Jobs", broker.ErrUnsupported)
	// errStepConditions refuses conditions in workflows: what follows a step travels in its
	// message, past every producer.
	errStepConditions = fmt.Errorf("%w: a step of a workflow has no conditions: have its handler submit the task that has them", broker.ErrUnsupported)
	// errMostOnce and the next two refuse tasks whose end nobody could learn, or that could not be
	// sent a second time.
	errMostOnce   = fmt.Errorf("%w: a task with conditions is sent again when an answer is lost, so that it cannot be one that runs at most once", broker.ErrUnsupported)
	errNoEnd      = fmt.Errorf("%w: a task with conditions cannot ignore its result: its turn, its weight and its unique key are its own until its end is recorded", task.ErrBadMetadata)
	errOtherStore = fmt.Errorf("%w: a task with conditions cannot name a result store: whoever sends it looks for its end in the default one", broker.ErrUnsupported)
)

// keptAtLeast is how long the result of a task with conditions is kept at least: a runner that was
// away must still find how it ended, else it would send it again. Runners look after jobs for a day
// (runner.DefaultTimeout).
const keptAtLeast = 24*time.Hour + task.DefaultResultTTL

// maxKept is how many bytes a task's message takes at most where it is kept.
const maxKept = 1 << 20

// draft begins what is kept of a task that has conditions, and says in its envelope that it has
// them.
func (s *staged) draft() error {
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
	headers := maps.Clone(e.Headers) // they may be a middleware's
	if headers == nil {
		headers = make(map[string]string, 1)
	}
	headers[task.HeaderConditions] = string(e.ID)
	e.Headers = headers
	if ttl := m.ResultTTL.Or(task.DefaultResultTTL); ttl < keptAtLeast {
		e.Meta.ResultTTL = task.Set(keptAtLeast)
		s.take(e)
	}
	s.kept = &task.Conditioned{ID: e.ID, Name: e.Name, Conditions: *c, Chosen: s.chosen}
	return nil
}

// endsRecorded returns an error where nobody could look up how a task has ended.
func (c *Config) endsRecorded() error {
	if c.Jobs == nil || c.Results == nil || !resultstore.RepliesOnly(c.Results) {
		return nil
	}
	return fmt.Errorf("config: Jobs: %w: this result store hands results only to the process that submitted a task; tasks with conditions need one that "+
		"can be asked for their ends, such as SQL, where the jobs are, or Redis or NATS", broker.ErrUnsupported)
}

// fill makes the draft ready, when the message is.
func (s *staged) fill() error {
	data, err := wire.Prepare(s.out.Queue, s.out.Message)
	if err != nil {
		return err
	}
	if len(data) > maxKept {
		return fmt.Errorf("it takes %d bytes to be kept, %d are possible: %w", len(data), maxKept, broker.ErrTooLarge)
	}
	s.kept.Message, s.kept.NotBefore, s.kept.Priority = data, s.out.At, s.out.Message.Priority
	return nil
}
