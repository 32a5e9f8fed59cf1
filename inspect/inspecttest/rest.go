package inspecttest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/task"
)

func testSchedules(w *world) {
	api := w.api(0)
	ids := make([]string, 3)
	for i := range ids {
		added, err := w.schedule.Add(w.ctx(), schedule.Every("day at 9am"), okTask.Call(fmt.Sprint(i)))
		w.no(err)
		ids[i] = added.ID
	}
	slices.Sort(ids)
	var got []string
	for q := (inspect.ScheduleQuery{Limit: 2}); ; {
		page, err := api.ListSchedules(w.ctx(), q)
		w.no(err)
		for _, s := range page.Schedules {
			if s.Task != okTask.Name() || s.Means == "" || s.Next.IsZero() || s.Args != nil || s.Paused {
				w.Errorf("an entry in a list: %+v", s)
			}
			got = append(got, s.ID)
		}
		if q.Cursor = page.Next; page.Next == "" {
			break
		}
	}
	if diff := cmp.Diff(ids, got); diff != "" { // all are due at the same time
		w.Errorf("pages of entries: (-want +got)\n%s", diff)
	}
	s, err := api.GetSchedule(w.ctx(), inspect.ScheduleKey{ID: ids[1][:12], Runs: 5, Args: true})
	w.no(err)
	if s.ID != ids[1] || len(s.Runs) != 5 || !s.Runs[0].Equal(s.Next) || len(s.Args) == 0 {
		w.Errorf("an entry with its runs: %+v", s)
	}
	_, err = api.GetSchedule(w.ctx(), inspect.ScheduleKey{ID: "none"})
	w.is(err, inspect.ErrNotFound)

	c, err := api.PauseSchedule(w.ctx(), ids[0])
	w.no(err)
	if c.Done != 1 || c.Target != ids[0] {
		w.Errorf("an entry is paused: %+v", c)
	}
	s, err = api.GetSchedule(w.ctx(), inspect.ScheduleKey{ID: ids[0]})
	w.no(err)
	if !s.Paused || !s.Next.IsZero() {
		w.Errorf("a paused entry: %+v", s)
	}
	c, err = api.RunSchedule(w.ctx(), inspect.EntryRun{ID: ids[0]})
	w.no(err)
	if c.Copy == "" || c.Copy == ids[0] || c.At.IsZero() {
		w.Errorf("an entry is run now: %+v", c)
	}
	w.oneCopy(len(ids)+1, func() int {
		page, err := api.ListSchedules(w.ctx(), inspect.ScheduleQuery{})
		w.no(err)
		return len(page.Schedules)
	}, func(api inspect.API, key string) (inspect.Change, error) {
		return api.RunSchedule(w.ctx(), inspect.EntryRun{ID: ids[0], Key: key})
	})
	c, err = api.ResumeSchedule(w.ctx(), ids[0])
	w.no(err)
	if c.At.IsZero() {
		w.Errorf("an entry is resumed: %+v", c)
	}
	_, err = api.RemoveSchedule(w.ctx(), ids[0])
	w.no(err)
	_, err = api.RemoveSchedule(w.ctx(), ids[0])
	w.is(err, inspect.ErrNotFound)
}

func testJobs(w *world) {
	api := w.api(0)
	var ids []int64
	for i := range 5 {
		j, err := w.jobs.Create(w.ctx(), jobs.Spec{Name: fmt.Sprintf("kind.%d", i%2), Data: fmt.Appendf(nil, `{"n":%d}`, i), Key: fmt.Sprint(i)})
		w.no(err)
		ids = append(ids, int64(j.ID))
	}
	list := func(q inspect.JobQuery) (got []int64) {
		w.Helper()
		for q.Limit = 2; ; {
			page, err := api.ListJobs(w.ctx(), q)
			w.no(err)
			for _, j := range page.Jobs {
				got = append(got, j.ID)
			}
			if q.Cursor = page.Next; page.Next == "" {
				return got
			}
		}
	}
	for _, c := range []struct {
		q    inspect.JobQuery
		want []int64
	}{
		{inspect.JobQuery{}, ids},
		{inspect.JobQuery{Name: "kind.1"}, []int64{ids[1], ids[3]}},
		{inspect.JobQuery{Name: "kind.*", States: []string{"queued"}}, ids},
		{inspect.JobQuery{States: []string{"FAILED"}}, nil},
	} {
		if diff := cmp.Diff(c.want, list(c.q)); diff != "" {
			w.Errorf("jobs of %+v: (-want +got)\n%s", c.q, diff)
		}
	}
	j, err := api.GetJob(w.ctx(), ids[2])
	w.no(err)
	if j.Name != "kind.0" || string(j.Data) != `{"n":2}` || j.State != "QUEUED" || j.Key != "2" {
		w.Errorf("a job: %+v", j)
	}
	_, err = api.GetJob(w.ctx(), 99)
	w.is(err, inspect.ErrNotFound)
	e, err := api.WhyJob(w.ctx(), ids[2])
	w.no(err)
	if e.ID != fmt.Sprint(ids[2]) || e.Name != "kind.0" || len(e.Reasons) == 0 || e.Reasons[0].Kind != "due" {
		w.Errorf("why a job waits: %+v", e)
	}
	c, err := api.CancelJobs(w.ctx(), inspect.JobChange{IDs: ids[:2]})
	w.no(err)
	if c.Done != 2 {
		w.Errorf("two jobs are cancelled: %+v", c)
	}
	if diff := cmp.Diff(ids[:2], list(inspect.JobQuery{States: []string{"CANCELLED"}})); diff != "" {
		w.Errorf("cancelled: (-want +got)\n%s", diff)
	}
	e, err = api.WhyJob(w.ctx(), ids[0])
	w.no(err)
	w.helps(e.Reasons[0], inspect.DoRetryJobs, fmt.Sprintf("swarmiji job retry %d", ids[0]))
	_, err = api.RetryJobs(w.ctx(), inspect.JobChange{IDs: []int64{ids[0], 99}})
	w.is(err, inspect.ErrNotFound)
	c, err = api.RetryJobs(w.ctx(), inspect.JobChange{IDs: ids[:1]})
	w.no(err)
	if c.Done != 1 {
		w.Errorf("a job is retried: %+v", c)
	}
	if diff := cmp.Diff(ids[1:2], list(inspect.JobQuery{States: []string{"CANCELLED"}})); diff != "" {
		w.Errorf("cancelled after a retry: (-want +got)\n%s", diff)
	}
	got, err := w.jobs.Get(w.ctx(), jobs.Request{Selector: jobs.Selector{Names: []string{"kind.0"}}, Lease: time.Hour})
	w.no(err)
	_, err = api.RetryJobs(w.ctx(), inspect.JobChange{IDs: []int64{int64(got[0].ID)}})
	w.is(err, inspect.ErrConflict)
	_, err = api.RetryJobs(w.ctx(), inspect.JobChange{IDs: []int64{int64(got[0].ID)}, Force: true})
	w.no(err)
	c, err = api.RemoveJobs(w.ctx(), inspect.JobChange{IDs: ids[3:]})
	w.no(err)
	if c.Done != 2 {
		w.Errorf("two jobs are removed: %+v", c)
	}
	if diff := cmp.Diff(ids[:3], list(inspect.JobQuery{})); diff != "" {
		w.Errorf("jobs after a removal: (-want +got)\n%s", diff)
	}
}

func testWorkers(w *world) {
	_, err := w.api(0).GetWorker(w.ctx(), node)
	w.is(err, inspect.ErrNotFound)
	_, err = w.api(0).StopWorkers(w.ctx(), inspect.Stop{All: true})
	w.is(err, inspect.ErrNoConsumer)
	w.consume()
	api := w.api(1)
	page, err := api.ListWorkers(w.ctx(), inspect.WorkerQuery{})
	w.no(err)
	i := slices.IndexFunc(page.Workers, func(one inspect.Worker) bool { return one.Node == node })
	if i < 0 {
		w.Fatalf("the workers are %+v", page.Workers)
	}
	one := page.Workers[i]
	if !one.Answers || one.Offline || one.Role != events.RoleConsumer || !slices.Contains(one.Queues, queue) || len(one.Serves) != 1 || one.Serves[0].Workers != 1 {
		w.Errorf("the consumer: %+v", one)
	}
	w.submit(slowTask, "r-1")
	w.until("the task runs", func() bool {
		page, err := api.ListRunning(w.ctx(), inspect.RunningQuery{Nodes: []string{node}, Queues: []string{queue}})
		w.no(err)
		return len(page.Tasks) == 1 && page.Tasks[0].ID == "r-1" && page.Tasks[0].Name == slowTask.Name() && page.Tasks[0].Node == node && !page.Tasks[0].Since.IsZero()
	})
	held, err := api.ListRunning(w.ctx(), inspect.RunningQuery{Held: true})
	w.no(err)
	if len(held.Tasks) != 0 || !slices.Contains(held.Nodes, node) {
		w.Errorf("held tasks: %+v", held)
	}
	w.release <- struct{}{}

	w.changedNode(api.ScaleWorkers(w.ctx(), inspect.Scale{Queue: queue, Workers: 3}))
	serves := func() inspect.ServedQueue {
		w.Helper()
		one, err := api.GetWorker(w.ctx(), node)
		w.no(err)
		return one.Serves[0]
	}
	if s := serves(); s.Workers != 3 {
		w.Errorf("after a scale: %+v", s)
	}
	w.changedNode(api.PauseWorkers(w.ctx(), inspect.Target{Nodes: []string{node}}))
	if s := serves(); !s.Paused {
		w.Errorf("a quiet consumer: %+v", s)
	}
	w.changedNode(api.ResumeWorkers(w.ctx(), inspect.Target{Queues: []string{queue}}))
	if s := serves(); s.Paused {
		w.Errorf("a resumed consumer: %+v", s)
	}
	w.changedNode(api.LimitWorkers(w.ctx(), inspect.RateLimit{Name: okTask.Name(), Rate: "10/s"}))
	w.changedNode(api.StopWorkers(w.ctx(), inspect.Stop{Target: inspect.Target{Nodes: []string{node}}}))
	w.until("the consumer is gone", func() bool {
		_, err := w.api(0).GetWorker(w.ctx(), node)
		return err != nil
	})
}

func testEvents(w *world) {
	api := w.h.API(w.T, w.config(0), true)
	page := inspect.EventPage{}
	w.until("events are read", func() bool {
		var err error
		page, err = api.ListEvents(w.ctx(), inspect.EventQuery{})
		return err == nil
	})
	if len(page.Events) != 0 || page.Next == "" || page.Lost {
		w.Errorf("the present: %+v", page)
	}
	start := page.Next
	// the subscription may begin after the first answer
	w.until("an event comes", func() bool {
		w.no(w.swarm.Events.Publish(w.ctx(), events.Event{Type: "suite", NodeID: "n", Time: time.Now()}))
		got, err := api.ListEvents(w.ctx(), inspect.EventQuery{Cursor: start, Types: []string{"suite"}})
		w.no(err)
		return len(got.Events) > 0
	})
	for i := range 5 {
		w.no(w.swarm.Events.Publish(w.ctx(), events.Event{Type: events.TaskSent, TaskID: task.ID(fmt.Sprint("e-", i)), NodeID: "n", Name: "x", Queue: queue, Time: time.Now()}))
	}
	var got []string
	for q := (inspect.EventQuery{Cursor: start, Limit: 2, Wait: inspect.Duration(10 * time.Second), Queue: queue, Node: "n", Name: "x"}); len(got) < 5; {
		page, err := api.ListEvents(w.ctx(), q)
		w.no(err)
		if page.Lost || len(page.Events) > 2 {
			w.Fatalf("a page: %+v", page)
		}
		for _, e := range page.Events {
			if e.Type != events.TaskSent || e.Name != "x" || e.At.IsZero() {
				w.Errorf("an event: %+v", e)
			}
			got = append(got, string(e.Task))
		}
		q.Cursor = page.Next
	}
	if diff := cmp.Diff([]string{"e-0", "e-1", "e-2", "e-3", "e-4"}, got); diff != "" {
		w.Errorf("events: (-want +got)\n%s", diff)
	}
	one, err := api.ListEvents(w.ctx(), inspect.EventQuery{Cursor: start, Task: "e-3"})
	w.no(err)
	if len(one.Events) != 1 || one.Events[0].Task != "e-3" {
		w.Errorf("events of one task: %+v", one)
	}
	// S30: later events of a task repeat neither its name nor its queue
	for _, id := range []task.ID{"of-no-known-task", "e-3"} {
		w.no(w.swarm.Events.Publish(w.ctx(), events.Event{Type: events.TaskStarted, TaskID: id, NodeID: "n", Time: time.Now()}))
	}
	started := inspect.EventQuery{Cursor: start, Wait: inspect.Duration(10 * time.Second), Types: []string{events.TaskStarted}, Queue: queue, Name: "x"}
	page, err = api.ListEvents(w.ctx(), started)
	w.no(err)
	if len(page.Events) != 1 || page.Events[0].Task != "e-3" || page.Events[0].Queue != queue {
		w.Errorf("starts of tasks of the queue: %+v", page.Events)
	}
	lost, err := api.ListEvents(w.ctx(), inspect.EventQuery{Cursor: "of-another-process"})
	w.no(err)
	if !lost.Lost || lost.Next == "" {
		w.Errorf("a lost cursor: %+v", lost)
	}
	_, err = w.api(0).ListEvents(w.ctx(), inspect.EventQuery{})
	w.is(err, inspect.ErrUnsupported)
}

func testAudit(w *world) {
	c := w.config(0)
	c.Audit = w.swarm.Audit
	api := w.h.API(w.T, c, false)
	w.submit(okTask, "alive")
	_, err := api.PurgeQueue(w.ctx(), inspect.Purge{Queue: queue, DryRun: true})
	w.no(err)
	_, err = api.PurgeQueue(w.ctx(), inspect.Purge{})
	w.is(err, inspect.ErrInvalid)
	w.until("the message can be purged", func() bool {
		n, err := api.PurgeQueue(w.ctx(), inspect.Purge{Queue: queue, DryRun: true})
		w.no(err)
		return n.Done != 0
	})
	_, err = api.PurgeQueue(w.ctx(), inspect.Purge{Queue: queue})
	w.no(err)
	_, err = api.StopWorkers(inspect.WithActor(w.ctx(), "eve"), inspect.Stop{All: true, Kill: true})
	w.is(err, inspect.ErrNoConsumer)
	var page inspect.AuditPage
	w.until("both changes are in the log", func() bool {
		page, err = api.ListAudit(w.ctx(), inspect.AuditQuery{})
		w.no(err)
		return len(page.Entries) >= 2
	})
	if len(page.Entries) != 2 {
		w.Fatalf("two changes were tried, and the log has %+v", page.Entries)
	}
	stop, purge := page.Entries[0], page.Entries[1] // the newest first
	if purge.Who != actor || purge.Do != inspect.DoPurgeQueue || purge.Target != queue || purge.Done != 1 || purge.Error != "" || purge.Node == "" || time.Since(purge.At) > time.Hour {
		w.Errorf("a purge in the log: %+v", purge)
	}
	if stop.Who != "eve" || stop.Do != inspect.DoStopWorkers || stop.Done != 0 || !strings.Contains(stop.Error, "no consumer") || !strings.Contains(stop.Detail, "kill") {
		w.Errorf("a failed stop in the log: %+v", stop)
	}
	page, err = api.ListAudit(w.ctx(), inspect.AuditQuery{Limit: 1})
	w.no(err)
	if len(page.Entries) != 1 || page.Entries[0].Do != inspect.DoStopWorkers {
		w.Errorf("the newest change: %+v", page.Entries)
	}
}

func testCheck(w *world) {
	w.submit(okTask, "alive")
	w.letters("a", 1)
	find := func(api inspect.API, check string, queues ...string) []inspect.Finding {
		w.Helper()
		r, err := api.Check(w.ctx(), inspect.CheckQuery{Queues: queues})
		w.no(err)
		return slices.DeleteFunc(r.Findings, func(f inspect.Finding) bool { return f.Check != check })
	}
	has := func(fs []inspect.Finding, outcome inspect.Outcome, text string) {
		w.Helper()
		if !slices.ContainsFunc(fs, func(f inspect.Finding) bool { return f.Outcome == outcome && strings.Contains(f.Detail, text) }) {
			w.Errorf("no %s says %q in %+v", outcome, text, fs)
		}
	}
	fs := find(w.api(0), "queue "+queue)
	has(fs, inspect.Warn, "no consumer takes them")
	has(fs, inspect.Warn, "has 1 dead letters")
	has(find(w.api(0), "consumers"), inspect.Warn, "no consumer answered")
	missing := find(w.api(0), "queue suite-none", "suite-none")
	has(missing, inspect.Failed, "does not exist")
	if missing[0].Code != inspect.CodeNotFound {
		w.Errorf("a missing queue: %+v", missing)
	}
	w.consume()
	api := w.api(1)
	has(find(api, "consumers"), inspect.Fine, "1 answer")
	has(find(api, "clock"), inspect.Fine, "off by more than")
	has(find(api, "events"), inspect.Fine, "came back")
	_, err := api.PauseQueue(w.ctx(), inspect.Pause{Queue: queue})
	w.no(err)
	has(find(api, "queue "+queue), inspect.Warn, "is paused on 1 of 1 consumers")
}

func testInvalid(w *world) {
	api := w.api(0)
	bad := "a b"
	for name, err := range map[string]error{
		"queue":            second(api.GetQueue(w.ctx(), bad)),
		"names of queues":  second(api.ListQueues(w.ctx(), inspect.QueueQuery{Names: []string{bad}})),
		"limit":            second(api.ListQueues(w.ctx(), inspect.QueueQuery{Limit: inspect.MaxLimit + 1})),
		"negative limit":   second(api.ListDead(w.ctx(), inspect.DeadQuery{DeadFilter: inspect.DeadFilter{Queue: queue}, Limit: -1})),
		"purge":            second(api.PurgeQueue(w.ctx(), inspect.Purge{Queue: bad})),
		"pause":            second(api.PauseQueue(w.ctx(), inspect.Pause{})),
		"task":             second(api.GetTask(w.ctx(), inspect.TaskKey{ID: task.ID(bad)})),
		"why":              second(api.Why(w.ctx(), inspect.TaskKey{})),
		"queues of a task": second(api.Why(w.ctx(), inspect.TaskKey{ID: "x", Queues: []string{bad}})),
		"cancel":           second(api.CancelTask(w.ctx(), inspect.Cancel{})),
		"workflow":         second(api.CancelWorkflow(w.ctx(), inspect.WorkflowCancel{})),
		"dead queue":       second(api.SummarizeDead(w.ctx(), inspect.DeadCount{DeadFilter: inspect.DeadFilter{Queue: bad}})),
		"dead age":         second(api.SummarizeDead(w.ctx(), inspect.DeadCount{DeadFilter: inspect.DeadFilter{Queue: queue, OlderThan: -1}})),
		"dead count":       second(api.SummarizeDead(w.ctx(), inspect.DeadCount{DeadFilter: inspect.DeadFilter{Queue: queue}, Limit: inspect.MaxCount + 1})),
		"dead limit":       second(api.DropDead(w.ctx(), inspect.DeadChange{DeadFilter: inspect.DeadFilter{Queue: queue}, Limit: inspect.MaxBulk + 1})),
		"dead cursor":      second(api.ListDead(w.ctx(), inspect.DeadQuery{DeadFilter: inspect.DeadFilter{Queue: queue}, Cursor: "x"})),
		"runs":             second(api.GetSchedule(w.ctx(), inspect.ScheduleKey{ID: "x", Runs: -1})),
		"job state":        second(api.ListJobs(w.ctx(), inspect.JobQuery{States: []string{"LOST"}})),
		"job cursor":       second(api.ListJobs(w.ctx(), inspect.JobQuery{Cursor: "1x"})),
		"no jobs":          second(api.CancelJobs(w.ctx(), inspect.JobChange{})),
		"scale":            second(api.ScaleWorkers(w.ctx(), inspect.Scale{Queue: queue})),
		"rate":             second(api.LimitWorkers(w.ctx(), inspect.RateLimit{Name: "x", Rate: "fast"})),
		"stop":             second(api.StopWorkers(w.ctx(), inspect.Stop{})),
		"check":            second(api.Check(w.ctx(), inspect.CheckQuery{Queues: []string{bad}})),
		"audit":            second(api.ListAudit(w.ctx(), inspect.AuditQuery{Limit: -1})),
	} {
		w.Run(name, func(t *testing.T) { (&world{T: t}).is(err, inspect.ErrInvalid) })
	}
}

// second returns the error of a call.
func second[T any](_ T, err error) error { return err }
