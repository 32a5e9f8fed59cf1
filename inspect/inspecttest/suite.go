// Package inspecttest is the suite of package inspect. It runs a system over a Swarm: producers, a
// consumer, jobs and a schedule. It asks an inspect.API about them, and has a case for each
// promise of the interface.
package inspecttest

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/deferrals"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/schedule/memschedule"
	"github.com/swarmiji/swarmiji/task"
)

// Harness connects the suite with an implementation and a server.
type Harness struct {
	// Swarm opens a Swarm with a namespace of its own, with Options.Control. The suite closes it.
	Swarm func(t *testing.T) *open.Swarm
	// API returns the implementation over the parts of c. Default: inspect.New. If run is true, its
	// inspect.Local must Run until the test ends.
	API func(t *testing.T, c inspect.Config, run bool) inspect.API
}

// Run runs all cases of the suite.
func Run(t *testing.T, h Harness) {
	if h.API == nil {
		h.API = Local
	}
	for _, c := range []struct {
		name, explain string
		run           func(w *world)
	}{
		{"Queues", "Queues are listed in pages with their counts and consumers; pause, resume and purge change them.", testQueues},
		{"Settings", "Stored pauses and limits are listed, explained and removed.", testSettings},
		{"Resume", "ResumeQueue ends stored pauses and those of consumers.", testResume},
		{"History", "Tasks of a history are found by query and shown with their timeline.", testHistory},
		{"Messages", "Messages of each place are listed in pages, if the broker can.", testMessages},
		{"Keys", "The fairness keys of a fair queue are listed in pages, if the broker can.", testKeys},
		{"Why", "Why names where a task is, what it waits for, and the action that helps.", testWhy},
		{"WhyLimit", "A task that waits for a limit is told from one that is due later, with the holder.", testWhyLimit},
		{"WhyStoredLimit", "A stored limit of a name or a queue is told with its figures.", testWhyStored},
		{"WhyAnswer", "A task that waits for an answer is explained by its key.", testWhyAnswer},
		{"WhyConditions", "A task with conditions is explained by its job.", testWhyConditions},
		{"Cancel", "A cancelled task does not start.", testCancel},
		{"RunTask", "A dead or waiting task runs again as a copy, with its arguments or edited ones.", testRunTask},
		{"RunKept", "A task whose message is gone runs again if the history has kept it.", testRunKept},
		{"Workflows", "A cancelled workflow ends, and a failed one is retried.", testWorkflows},
		{"WorkflowList", "Workflows are listed in pages with the numbers of their tasks, each once.", testWorkflowList},
		{"Dead", "Dead letters are found, counted, shown, exported, requeued and dropped by filter.", testDead},
		{"DeadBound", "One call changes a bounded number of dead letters and says that there are more.", testDeadBound},
		{"Schedules", "Entries are listed, shown, run, paused, resumed and removed.", testSchedules},
		{"Jobs", "Jobs are listed in pages, shown, explained, retried and cancelled.", testJobs},
		{"Workers", "Workers are listed with what they run, and obey commands.", testWorkers},
		{"Events", "Events are read from a cursor on, and a lost cursor is told.", testEvents},
		{"Audit", "Each change that was tried is in the audit log, with who made it.", testAudit},
		{"Check", "A check finds tasks without a consumer, pauses and dead letters.", testCheck},
		{"Invalid", "Invalid arguments are ErrInvalid and change nothing.", testInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Cleanup(func() {
				if t.Failed() {
					t.Log("why: " + c.explain)
				}
			})
			c.run(newWorld(t, h))
		})
	}
}

// Local returns the local implementation. It is the default of Harness.API.
func Local(t *testing.T, c inspect.Config, run bool) inspect.API {
	t.Helper()
	l, err := inspect.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if run {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error("Run:", err)
			}
		})
	}
	return l
}

const (
	node    = "node-1" // the consumer
	queue   = "work"
	actor   = "ada" // the author of changes
	waiting = time.Hour
)

// The tasks of the consumer.
var (
	okTask    = task.New[string, string]("suite.ok")
	failTask  = task.New[string, string]("suite.fail", task.WithMaxRetries(0))
	againTask = task.New[string, string]("suite.again")
	slowTask  = task.New[string, string]("suite.slow")
	heldTask  = task.New[string, string]("suite.limited")
	askTask   = task.New[string, string]("suite.ask")
	// fails until world.repaired is set
	flakyTask = task.New[string, string]("suite.flaky", task.WithMaxRetries(0))
)

// world is a system under inspection.
type world struct {
	*testing.T
	h     Harness
	swarm *open.Swarm

	jobs     *jobs.Service
	schedule *schedule.Schedule
	producer *producer.Producer
	limiter  *limit.Memory
	release  chan struct{} // each value ends one slow task
	repaired atomic.Bool
}

func newWorld(t *testing.T, h Harness) *world {
	t.Helper()
	w := &world{T: t, h: h, swarm: h.Swarm(t), limiter: limit.NewMemory(), release: make(chan struct{})}
	t.Cleanup(func() { w.closed(w.swarm) })
	store, err := memjobs.New(memjobs.Config{})
	w.no(err)
	w.jobs, err = jobs.New(jobs.Config{Store: store, Logger: slog.New(slog.DiscardHandler)})
	w.no(err)
	t.Cleanup(func() { w.closed(w.jobs); w.closed(store) })
	entries, err := memschedule.New(memschedule.Config{Name: "suite"})
	w.no(err)
	w.schedule, err = schedule.New(schedule.Config{Store: entries})
	w.no(err)
	w.producer, err = w.swarm.Producer(producer.Config{Router: router.Static(queue), Jobs: w.conditions(), Logger: slog.New(slog.DiscardHandler)})
	w.no(err)
	t.Cleanup(func() { w.closed(w.producer) })
	return w
}

// conditions returns the jobs for tasks with conditions, which need a store that keeps records.
func (w *world) conditions() producer.JobCreator {
	if resultstore.RepliesOnly(w.swarm.Results) {
		return nil
	}
	return w.jobs
}

// no fails the case if err is not nil.
func (w *world) no(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// is fails the case if err is not of the class, which must be found and said.
func (w *world) is(err, class error) {
	w.Helper()
	e, ok := errors.AsType[*inspect.Error](err)
	if !ok || !errors.Is(err, class) || e.Text == "" {
		w.Errorf("the error is %v, want an *inspect.Error that is %v", err, class)
	}
}

func (w *world) closed(c interface {
	Close(ctx context.Context) error
},
) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		w.Log("Close:", err)
	}
}

// ctx returns a context with the actor of the case.
func (w *world) ctx() context.Context { return inspect.WithActor(testwait.Long(w.T), actor) }

// finds reports whether the broker finds waiting messages by id, and keeps whether there are
// records of tasks.
func (w *world) finds() bool {
	_, ok := capability.As[broker.Finder](w.swarm.Broker)
	return ok
}

func (w *world) keeps() bool { return !resultstore.RepliesOnly(w.swarm.Results) }

// config returns the configuration of an API that waits for this many answers of consumers. With 0
// it waits briefly and expects none.
func (w *world) config(consumers int) inspect.Config {
	w.Helper()
	client, err := control.NewClient(control.ClientConfig{Bus: w.swarm.Control, Replies: w.swarm.Replies})
	w.no(err)
	c := inspect.Config{
		Broker: w.swarm.Broker, Results: w.swarm.Results, Events: w.swarm.Events, Control: client, Revocations: w.swarm.Revocations, Schedule: w.schedule,
		Jobs: w.jobs, Limiter: w.limiter, Limits: limits(), Queues: []string{queue}, NodeID: "inspector", Listen: 30 * time.Second, Replies: consumers,
		Logger: slog.New(slog.DiscardHandler),
	}
	if consumers == 0 {
		c.Listen = 150 * time.Millisecond
	}
	return c
}

// api returns the API under test, see config.
func (w *world) api(consumers int) inspect.API {
	w.Helper()
	return w.h.API(w.T, w.config(consumers), false)
}

func limits() map[string][]limit.Permit {
	return map[string][]limit.Permit{"suite.limited": {{Key: "tenant", Max: 1}}}
}

// consume runs a consumer with one worker until the case ends.
func (w *world) consume(change ...func(c *consumer.Config)) {
	w.Helper()
	admit, err := limit.Admit(limit.Config{Limiter: w.limiter, Tasks: limits(), Delay: 20 * time.Second})
	w.no(err)
	answers, err := deferrals.New(deferrals.Config{Jobs: w.jobs, Logger: slog.New(slog.DiscardHandler)})
	w.no(err)
	cfg := consumer.Config{
		Report: events.Report{NodeID: node}, Control: &control.Config{Logger: slog.New(slog.DiscardHandler)}, Queues: map[string]consumer.QueueConfig{queue: {Workers: 1, PrefetchMultiplier: 1}},
		Admit: []middleware.Admit{admit}, Deferrals: answers, Logger: slog.New(slog.DiscardHandler), ShutdownTimeout: -1,
		Tuning: consumer.Tuning{UnknownDelay: waiting},
	}
	for _, f := range change {
		f(&cfg)
	}
	c, err := w.swarm.Consumer(cfg)
	w.no(err)
	w.no(errors.Join(
		okTask.Handle(c, func(_ context.Context, s string) (string, error) { return s, nil }),
		failTask.Handle(c, func(_ context.Context, s string) (string, error) { return "", errors.New("it is broken: " + s) }),
		againTask.Handle(c, func(context.Context, string) (string, error) {
			return "", task.Retry(errors.New("not yet"), task.After(waiting))
		}),
		slowTask.Handle(c, w.block),
		heldTask.Handle(c, w.block),
		flakyTask.Handle(c, func(_ context.Context, s string) (string, error) {
			if !w.repaired.Load() {
				return "", errors.New("not repaired")
			}
			return s, nil
		}),
		askTask.Handle(c, func(context.Context, string) (string, error) { return "", task.Defer("key-1") }),
	))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	w.Cleanup(func() { cancel(); <-ended }) // with ShutdownTimeout -1 slow tasks make it an error
	asking := w.config(1)
	asking.Listen = poll // a question from before its subscription has no answer
	api := w.h.API(w.T, asking, false)
	w.until("the consumer answers", func() bool {
		one, err := api.GetWorker(w.ctx(), cfg.Report.NodeID)
		return err == nil && one.Answers
	})
}

// block is the handler of slow tasks.
func (w *world) block(ctx context.Context, s string) (string, error) {
	select {
	case <-w.release:
		return s, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// submit submits a task with this id.
func (w *world) submit(t task.Task[string, string], id task.ID, opts ...task.Option) {
	w.Helper()
	_, err := t.Submit(w.ctx(), w.producer, string(id), append([]task.Option{task.WithID(id)}, opts...)...)
	w.no(err)
}

// poll is the time between two questions. A consumer executes at most 20 commands per second.
const poll = 200 * time.Millisecond

// until waits for a condition.
func (w *world) until(what string, ok func() bool) {
	w.Helper()
	var last time.Time
	testwait.Until(w.T, what, func() bool {
		if time.Since(last) < poll {
			return false
		}
		last = time.Now()
		return ok()
	})
}

// untilState waits until the API shows a task in one of the states.
func (w *world) untilState(api inspect.API, id task.ID, states ...inspect.State) {
	w.Helper()
	var last inspect.State
	defer func() {
		if w.Failed() {
			w.Logf("the last state of %s was %q", id, last)
		}
	}()
	w.until("task "+string(id)+" is "+string(states[0]), func() bool {
		d, err := api.GetTask(w.ctx(), inspect.TaskKey{ID: id})
		if err != nil && !errors.Is(err, inspect.ErrNotFound) {
			w.Fatal(err)
		}
		last = d.State
		return slices.Contains(states, d.State)
	})
}

// why returns the explanation of a task, which must hold a sentence for each reason.
func (w *world) why(api inspect.API, id task.ID) inspect.Explanation {
	w.Helper()
	e, err := api.Why(w.ctx(), inspect.TaskKey{ID: id})
	w.no(err)
	if len(e.Reasons) == 0 || e.ID != string(id) || e.At.IsZero() {
		w.Fatalf("the explanation of %s is %+v", id, e)
	}
	for _, r := range e.Reasons {
		if !strings.HasSuffix(r.Text, ".") || r.Kind == "" {
			w.Errorf("a reason of %s is no sentence: %+v", id, r)
		}
		if r.Help != nil && (r.Help.Do == "" || r.Help.Text == "") {
			w.Errorf("an action of %s says nothing: %+v", id, r.Help)
		}
	}
	return e
}

// untilWhy waits until the explanation of a task has a reason of a kind, and returns it.
func (w *world) untilWhy(api inspect.API, id task.ID, kind inspect.Kind) (found inspect.Reason) {
	w.Helper()
	var last inspect.Explanation
	defer func() {
		if w.Failed() {
			w.Logf("the last explanation of %s was %+v", id, last)
		}
	}()
	w.until("the reason of "+string(id)+" is "+string(kind), func() bool {
		last = w.why(api, id)
		i := slices.IndexFunc(last.Reasons, func(r inspect.Reason) bool { return r.Kind == kind })
		if i >= 0 {
			found = last.Reasons[i]
		}
		return i >= 0
	})
	return found
}

// helps fails the case unless a reason suggests this action with this command.
func (w *world) helps(r inspect.Reason, do inspect.Do, command string) {
	w.Helper()
	if r.Help == nil || r.Help.Do != do || r.Help.Command != command {
		w.Errorf("the help of %q is %+v, want %s by %q", r.Text, r.Help, do, command)
	}
}
