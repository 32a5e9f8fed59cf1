package browsertest

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/task"
)

// examples are records on the pages.
type examples struct {
	dead, running, done task.ID
	workflow            task.ID
	entry               string
	job                 jobs.ID
}

// prepare fills a system with an example of each kind of record.
func (w *world) prepare() (e examples) {
	w.Helper()
	w.charging.Store(false)
	w.mailing.Store(false)
	w.fetching.Store(true)
	e.dead = dead(w, chargeTask, order{big, "c-7"}, order{1001, "c-8"}, order{1002, "c-9"})[0]
	dead(w, welcomeTask, letter{"ada@example.org"}, letter{"bob@example.org"})
	dead(w, invoiceTask, letter{"bob@example.org"})
	e.running = submit(w, reportTask, report{"October", 500})
	e.done = submit(w, addTask, 41)
	for i := range 10 {
		submit(w, addTask, i)
	}
	submit(w, addTask, 1, task.WithDelay(2*time.Hour))
	for i := range 3 {
		submit(w, spareTask, i)
	}
	run, err := task.Chain(fetchTask, buildTask).Submit(w.ctx(), w.producer, "example.org")
	w.no(err)
	e.workflow = run.ID()
	for name, phrase := range map[string]string{"nightly report": "every day at 2am", "hourly totals": "every hour"} {
		added, err := w.schedule.Add(w.ctx(), schedule.ByPhrase(phrase), addTask.Call(1), schedule.WithName(name))
		w.no(err)
		w.Cleanup(func() { _, _ = w.schedule.Remove(w.ctx(), added.ID) })
		if e.entry = added.ID; name == "hourly totals" {
			w.no(w.schedule.Pause(w.ctx(), e.entry))
		}
	}
	for i := range 3 {
		j, err := w.jobs.Create(w.ctx(), jobs.Spec{Name: "image.resize", Data: fmt.Appendf(nil, `{"file": "photo-%d.jpg", "width": %d}`, i, big), FirstRun: time.Now().Add(time.Hour)})
		w.no(err)
		e.job = j.ID
	}
	for _, change := range []func() (inspect.Change, error){
		func() (inspect.Change, error) {
			return w.api.PauseTasks(w.ctx(), inspect.TaskPause{Name: "mail.newsletter", Reason: "wrong text"})
		},
		func() (inspect.Change, error) {
			return w.api.SetLimit(w.ctx(), inspect.Limit{Name: "mail.invoice", Rate: "100/s"})
		},
		func() (inspect.Change, error) {
			return w.api.PauseQueue(w.ctx(), inspect.Pause{Queue: spareQueue, Reason: "the disk is full"})
		},
	} {
		_, err := change()
		w.no(err)
	}
	w.untilState(inspect.State(task.StateSucceeded), e.done)
	w.until("the report runs", func() bool {
		d, err := w.api.GetTask(w.ctx(), inspect.TaskKey{ID: e.running})
		return err == nil && d.Progress != nil
	})
	w.until("the second step of the workflow runs", func() bool {
		f, err := w.api.GetWorkflow(w.ctx(), e.workflow)
		return err == nil && len(f.Steps) == 2 && f.Steps[1].State == task.StateStarted
	})
	return e
}

// pictures are the addresses of all pages by the names of their pictures.
func (e examples) pictures() map[string]string {
	id := func(page string, id task.ID) string { return page + "?id=" + url.QueryEscape(string(id)) }
	return map[string]string{
		"overview": "", "queues": "queues", "queue": "queue?name=" + spareQueue, "tasks": "tasks", "task": id("task", e.dead), "dead": "dead",
		"letters": "dead?queue=" + mailQueue, "letter": "letter?queue=" + ordersQueue + "&id=" + url.QueryEscape(string(e.dead)), "workflows": "workflows", "workflow": id("workflow", e.workflow),
		"schedules": "schedules", "schedule": "schedule?id=" + url.QueryEscape(e.entry), "jobs": "jobs", "job": fmt.Sprint("job?id=", e.job),
		"workers": "workers", "worker": "worker?node=" + node, "events": "events", "settings": "settings", "audit": "audit",
	}
}

// pages are the addresses of all pages, some with tasks of several states.
func (e examples) pages() []string {
	all := slices.Sorted(maps.Values(e.pictures()))
	for _, id := range []task.ID{e.running, e.done} {
		all = append(all, "task?id="+url.QueryEscape(string(id)))
	}
	return append(all, "tasks?query=state%3Afailed", "queue?name="+ordersQueue, "queue?name="+ordersQueue+"&place=dead")
}
