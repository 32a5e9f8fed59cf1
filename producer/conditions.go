package producer

import (
	"fmt"
	"maps"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/when"
)

var (
	// errNoJobs refuses conditions that nobody could keep.
	errNoJobs = fmt.Errorf("%w: a sequence key, unique key, weight, windows or throttle need a store of jobs: configure Config.Jobs", broker.ErrUnsupported)
	// errStepConditions refuses conditions in workflows: what follows a step travels in its message, past every producer.
	errStepConditions = fmt.Errorf("%w: a step of a workflow has no conditions: have its handler submit the task that has them", broker.ErrUnsupported)
	// errMostOnce and the next two refuse tasks whose end nobody could learn, or that could not be sent a second time.
	errMostOnce   = fmt.Errorf("%w: a task with conditions is sent again when an answer is lost, so that it cannot be one that runs at most once", broker.ErrUnsupported)
	errNoEnd      = fmt.Errorf("%w: a task with conditions cannot ignore its result: its turn, its weight and its unique key are its own until its end is recorded", task.ErrBadMetadata)
	errOtherStore = fmt.Errorf("%w: a task with conditions cannot name a result store: whoever sends it looks for its end in the default one", broker.ErrUnsupported)
)

// keptAtLeast is how long the result of a task with conditions is kept at least: a runner that was away must still find how it ended, else it would send it
// again. Runners look after jobs for jobs.DefaultTimeout.
const keptAtLeast = jobs.DefaultTimeout + task.DefaultResultTTL

// draft begins the job of a task that has conditions, and says in its envelope that it has them.
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
	spec := &jobs.Spec{
		Name: e.Name, Queue: c.Throttle, Key: jobs.KeyOfTask(e.ID), SequenceKey: c.SequenceKey, UniqueKey: c.UniqueKey, Weight: c.Weight,
		Timeout: task.Set(time.Duration(0)), // its end is its task's, however long that takes
	}
	if c.Throttle == "" {
		spec.Queue = task.DefaultThrottle
	}
	if c.Windows != "" {
		w, err := readWindows(c.Windows)
		if err != nil {
			return fmt.Errorf("%w: windows: %w", task.ErrBadMetadata, err)
		}
		spec.Windows = w
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
	s.job = spec
	return nil
}

// readWindows reads windows in UTC, or those that name their zone behind the word WINDOWS.
func readWindows(text string) (*when.Windows, error) {
	if spec, err := when.Parse(text); err == nil {
		if w, ok := spec.(*when.Windows); ok {
			return w, nil
		}
	}
	return when.ParseWindows(text, nil)
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
	if len(data) > jobs.MaxData {
		return fmt.Errorf("it takes %d bytes as a job, %d are possible: %w", len(data), jobs.MaxData, broker.ErrTooLarge)
	}
	s.job.Data, s.job.FirstRun = data, s.out.At
	s.job.Priority = task.Set(min(s.out.Message.Priority, jobs.MaxPriority))
	return nil
}
