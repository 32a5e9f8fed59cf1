package inspecttest

import (
	"slices"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/settings/memsettings"
	"github.com/swarmiji/swarmiji/task"
)

func testWhy(w *world) {
	if !w.finds() || !w.keeps() {
		w.testWhyLittle()
		return
	}
	idle := w.api(0)
	if r := w.why(idle, "never").Reasons[0]; r.Kind != inspect.KindUnknown || r.Help != nil {
		w.Errorf("a task that nobody submitted: %+v", r)
	}
	_, err := idle.GetTask(w.ctx(), inspect.TaskKey{ID: "never"})
	w.is(err, inspect.ErrNotFound)

	w.submit(okTask, "t-ok")
	r := w.untilWhy(idle, "t-ok", inspect.KindNoConsumer)
	w.helps(r, inspect.DoStartConsumer, "")
	w.consume()
	api := w.api(1)
	w.untilState(api, "t-ok", inspect.State(task.StateSucceeded))
	if r := w.why(api, "t-ok").Reasons[0]; r.Kind != inspect.KindOver || r.Node != node || r.At.IsZero() {
		w.Errorf("a task that has succeeded: %+v", r)
	}
	d, err := api.GetTask(w.ctx(), inspect.TaskKey{ID: "t-ok"})
	w.no(err)
	if d.Name != okTask.Name() || d.Attempt != 1 || d.Node != node || d.Started.IsZero() || d.Ended.IsZero() || !slices.Contains(d.Found, "record") {
		w.Errorf("a task that has succeeded: %+v", d)
	}

	// running, and behind a running one
	w.submit(slowTask, "t-slow")
	if r := w.untilWhy(api, "t-slow", inspect.KindRuns); r.Node != node || r.Queue != queue || r.At.IsZero() {
		w.Errorf("a running task: %+v", r)
	}
	w.untilState(api, "t-slow", inspect.StateRunning)
	w.submit(okTask, "t-behind")
	w.helps(w.untilWhy(api, "t-behind", inspect.KindBusy), inspect.DoScaleWorkers, "swarmiji scale work 2")

	// a paused queue
	_, err = api.PauseQueue(w.ctx(), inspect.Pause{Queue: queue})
	w.no(err)
	w.release <- struct{}{}
	w.submit(okTask, "t-paused")
	w.helps(w.untilWhy(api, "t-paused", inspect.KindPaused), inspect.DoResumeQueue, "swarmiji queue resume work")
	_, err = api.ResumeQueue(w.ctx(), queue)
	w.no(err)
	w.untilState(api, "t-paused", inspect.State(task.StateSucceeded))

	// later, again, without a handler
	w.submit(okTask, "t-later", task.WithDelay(waiting))
	r = w.untilWhy(api, "t-later", inspect.KindDelayed)
	if left := time.Until(r.At); left < waiting/2 || left > waiting {
		w.Errorf("a task that is due in an hour: %+v", r)
	}
	w.helps(r, inspect.DoCancelTask, "swarmiji task cancel t-later --queue work")
	w.untilState(api, "t-later", inspect.StateDelayed)
	w.submit(againTask, "t-again")
	w.untilState(api, "t-again", inspect.State(task.StateRetrying)) // its record comes last
	r = w.untilWhy(api, "t-again", inspect.KindRetry)
	if left := time.Until(r.At); left < waiting/2 || !strings.Contains(r.Text, "Attempt 1 has failed") || !strings.Contains(r.Text, "not yet") {
		w.Errorf("a task that is retried: %+v", r)
	}
	w.submit(task.New[string, string]("suite.unknown"), "t-unknown")
	w.helps(w.untilWhy(api, "t-unknown", inspect.KindNoHandler), inspect.DoRegisterHandler, "")

	// dead, and revoked
	w.submit(failTask, "t-fail")
	r = w.untilWhy(api, "t-fail", inspect.KindDead)
	w.helps(r, inspect.DoRequeueDead, "swarmiji dead requeue work --id t-fail")
	if !strings.Contains(r.Text, "it is broken") || r.Queue != queue {
		w.Errorf("a dead letter: %+v", r)
	}
	d, err = api.GetTask(w.ctx(), inspect.TaskKey{ID: "t-fail", Queues: []string{queue}})
	w.no(err)
	if d.State != inspect.StateDead || d.Dead == nil || d.Error == "" {
		w.Errorf("a dead letter: %+v", d)
	}
	_, err = api.CancelTask(w.ctx(), inspect.Cancel{ID: "t-later"})
	w.no(err)
	w.untilState(api, "t-later", inspect.State(task.StateRevoked))
	if r := w.why(api, "t-later").Reasons[0]; r.Kind != inspect.KindOver || !strings.Contains(r.Text, "revoked") {
		w.Errorf("a revoked task: %+v", r)
	}
}

// testWhyLittle is testWhy on a broker that finds no message by its id, or without records: running
// tasks and dead letters are known nevertheless, and a note names the parts that could not
// be asked.
func (w *world) testWhyLittle() {
	w.consume()
	api := w.api(1)
	w.submit(slowTask, "t-slow")
	if r := w.untilWhy(api, "t-slow", inspect.KindRuns); r.Node != node {
		w.Errorf("a running task: %+v", r)
	}
	w.release <- struct{}{}
	w.submit(failTask, "t-fail")
	w.helps(w.untilWhy(api, "t-fail", inspect.KindDead), inspect.DoRequeueDead, "swarmiji dead requeue work --id t-fail")
	if e := w.why(api, "never"); e.Reasons[0].Kind != inspect.KindUnknown || len(e.Notes) == 0 {
		w.Errorf("an unknown task: %+v", e)
	}
}

func testWhyLimit(w *world) {
	if !w.finds() {
		return
	}
	w.consume(func(c *consumer.Config) { c.Queues[queue] = consumer.QueueConfig{Workers: 2} })
	api := w.api(1)
	w.submit(heldTask, "l-1")
	w.untilState(api, "l-1", inspect.StateRunning)
	w.submit(heldTask, "l-2")
	r := w.untilWhy(api, "l-2", inspect.KindLimit)
	w.helps(r, inspect.DoFindTask, "swarmiji task show l-1")
	if r.Key != "tenant" || r.Task != "l-1" || !strings.HasPrefix(r.Holder, "l-1/") {
		w.Errorf("a task that waits for a limit: %+v", r)
	}
}

// testWhyStored shows the reasons by a stored limit of a name, with a limiter that all consumers
// share, and without one.
func testWhyStored(w *world) {
	if !w.finds() {
		return
	}
	store := memsettings.New()
	w.Cleanup(func() { w.closed(store) })
	w.no(settings.LimitTask(w.ctx(), store, slowTask.Name(), settings.Limit{Rate: "1/h"}))
	w.consume(func(c *consumer.Config) {
		c.Settings, c.Limiter = store, w.limiter
		c.Queues[queue] = consumer.QueueConfig{Workers: 2}
	})
	c := w.config(1)
	c.Settings = store
	api := w.h.API(w.T, c, false)
	c.Limiter = nil
	alone := w.h.API(w.T, c, false)
	w.submit(slowTask, "l-1")
	w.untilState(api, "l-1", inspect.StateRunning)
	w.submit(slowTask, "l-2")
	for api, text := range map[inspect.API]string{
		api:   "It waits for the limit of the tasks suite.slow, 1/h, which is used until ",
		alone: "The limit of the tasks suite.slow is 1/h in each consumer: ",
	} {
		r := w.untilWhy(api, "l-2", inspect.KindLimit)
		w.helps(r, inspect.DoSetLimit, "swarmiji rate-limit suite.slow")
		if !strings.HasPrefix(r.Text, text) || r.Key != "task/suite.slow/limit" {
			w.Errorf("a task over a stored limit: %+v, want %q", r, text)
		}
	}
	w.no(settings.LimitTask(w.ctx(), store, slowTask.Name(), settings.Limit{}))
	w.no(settings.LimitQueue(w.ctx(), store, queue, settings.Limit{Rate: "5/s", Concurrency: 1}))
	_, err := w.limiter.Acquire(w.ctx(), "l-9/0.1", waiting, limit.Permit{Key: settings.QueueLimit(queue).String(), Max: 1})
	w.no(err)
	r := w.untilWhy(api, "l-2", inspect.KindLimit)
	w.helps(r, inspect.DoSetLimit, "swarmiji queue limit work")
	if r.Text != "It waits for the limit of queue work, 1 at once: 1 are held, for example by l-9/0.1." || r.Task != "l-9" {
		w.Errorf("a task over the limit of a queue: %+v", r)
	}
}

func testWhyAnswer(w *world) {
	w.consume()
	api := w.api(1)
	w.submit(askTask, "a-1")
	r := w.untilWhy(api, "a-1", inspect.KindAnswer)
	w.helps(r, inspect.DoAnswerTask, "swarmiji job complete suite.ask key-1")
	if r.Key != "key-1" || r.At.IsZero() {
		w.Errorf("a task that waits for an answer: %+v", r)
	}
	w.untilState(api, "a-1", inspect.State(task.StateAwaiting))
}

func testWhyConditions(w *world) {
	if w.conditions() == nil {
		return
	}
	closed := "Mon 00:00-00:01"
	if time.Now().UTC().Weekday() == time.Monday {
		closed = "Wed 00:00-00:01"
	}
	w.submit(okTask, "c-1", task.WithWindows(closed))
	api := w.api(0)
	e, err := api.Why(w.ctx(), inspect.TaskKey{ID: "c-1", Name: okTask.Name()})
	w.no(err)
	if e.Reasons[0].Kind != "window" || e.Reasons[0].At.IsZero() || e.State != string(inspect.StateWaiting) {
		w.Errorf("a task with a closed window: %+v", e)
	}
}

func testCancel(w *world) {
	api := w.api(0)
	w.submit(okTask, "x-1", task.WithDelay(waiting))
	c, err := api.CancelTask(w.ctx(), inspect.Cancel{ID: "x-1", Queues: []string{queue}})
	switch {
	case w.finds() && w.keeps():
		w.no(err)
		if c.Outcome != "removed" || c.Done != 1 {
			w.Errorf("a waiting task is cancelled: %+v", c)
		}
		w.untilState(api, "x-1", inspect.State(task.StateRevoked))
	default:
		w.is(err, inspect.ErrNoConsumer)
		if c.Outcome != "noted" || c.Done != 1 {
			w.Errorf("a waiting task is cancelled: %+v", c)
		}
	}
	w.consume()
	busy := w.api(1)
	c, err = busy.CancelTask(w.ctx(), inspect.Cancel{ID: "x-never"})
	w.no(err)
	want := inspect.OutcomeUnknown
	if !w.finds() {
		want = "noted"
	}
	if c.Outcome != want || c.Done != 1 {
		w.Errorf("a task that was never submitted is cancelled: %+v, want the outcome %s", c, want)
	}
	w.submit(slowTask, "x-2")
	w.untilState(busy, "x-2", inspect.StateRunning)
	c, err = busy.CancelTask(w.ctx(), inspect.Cancel{ID: "x-2", Terminate: true})
	w.no(err)
	if c.Outcome != "noted" || c.Done != 1 || c.Target != "x-2" {
		w.Errorf("a running task is cancelled: %+v", c)
	}
	w.until("the running task has ended", func() bool {
		page, err := busy.ListRunning(w.ctx(), inspect.RunningQuery{})
		w.no(err)
		return len(page.Tasks) == 0
	})
}

func testWorkflows(w *world) {
	if !w.keeps() {
		return
	}
	w.consume()
	api := w.api(1)
	submit := func(first task.Task[string, string]) task.ID {
		w.Helper()
		run, err := task.Chain(first, okTask).Submit(w.ctx(), w.producer, "step")
		w.no(err)
		return run.ID()
	}
	broken := submit(flakyTask)
	w.until("the workflow has failed", func() bool {
		page, err := api.ListDead(w.ctx(), inspect.DeadQuery{DeadFilter: inspect.DeadFilter{Queue: queue}})
		w.no(err)
		return len(page.Letters) == 1
	})
	_, err := api.GetWorkflow(w.ctx(), "none")
	w.is(err, inspect.ErrNotFound)
	flow, err := api.GetWorkflow(w.ctx(), broken)
	w.no(err)
	if flow.Root != broken || flow.State != task.StateFailed || flow.Failed == nil || flow.Failed.Name != flakyTask.Name() || len(flow.Steps) != 2 {
		w.Errorf("a failed workflow: %+v", flow)
	}
	w.repaired.Store(true)
	c, err := api.RetryWorkflow(w.ctx(), inspect.WorkflowRetry{Root: broken, Queues: []string{queue}})
	w.no(err)
	if c.Done != 1 || c.Target != string(broken) {
		w.Errorf("a workflow with one failed step is retried: %+v", c)
	}
	w.untilState(api, broken, inspect.State(task.StateSucceeded))
	_, err = api.RetryWorkflow(w.ctx(), inspect.WorkflowRetry{Root: broken})
	w.is(err, inspect.ErrConflict)

	w.repaired.Store(false)
	gone := submit(flakyTask)
	letters := func() (n int) {
		page, err := api.ListDead(w.ctx(), inspect.DeadQuery{DeadFilter: inspect.DeadFilter{Queue: queue, Root: gone}})
		w.no(err)
		return len(page.Letters)
	}
	w.until("the second workflow has failed", func() bool { return letters() == 1 })
	_, err = api.CancelWorkflow(w.ctx(), inspect.WorkflowCancel{Root: gone})
	w.no(err)
	for range 2 {
		c, err = api.RetryWorkflow(w.ctx(), inspect.WorkflowRetry{Root: gone, Queues: []string{queue}})
		w.no(err)
		if c.Done != 0 || c.Refused != 1 || len(c.Problems) != 1 || !strings.Contains(c.Problems[0].Reason, "canceled") {
			w.Errorf("a canceled workflow is retried: %+v", c)
		}
		c, err = api.RequeueDead(w.ctx(), inspect.DeadChange{DeadFilter: inspect.DeadFilter{Queue: queue, Root: gone}})
		w.no(err)
		if c.Done != 0 || c.Refused != 1 || letters() != 1 {
			w.Errorf("a letter of a canceled workflow is requeued: %+v, %d letters are left", c, letters())
		}
	}

	long := submit(slowTask)
	w.until("the first step runs", func() bool {
		page, err := api.ListRunning(w.ctx(), inspect.RunningQuery{})
		w.no(err)
		return len(page.Tasks) == 1
	})
	c, err = api.CancelWorkflow(w.ctx(), inspect.WorkflowCancel{Root: long})
	w.no(err)
	if c.Done != 1 || len(c.Nodes) == 0 {
		w.Errorf("a running workflow is cancelled: %+v", c)
	}
	w.untilState(api, long, inspect.State(task.StateRevoked))
}
