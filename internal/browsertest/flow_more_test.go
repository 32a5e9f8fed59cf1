package browsertest

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"

	"github.com/swarmiji/swarmiji/dashboard"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/task"
)

func purge(w *world, b *tab) {
	for i := range 3 {
		submit(w, spareTask, i)
	}
	b.open("queue?name=" + spareQueue)
	b.click(".actions", "Purge…")
	b.titled("Purge the queue")
	b.sees("This cannot be undone.")
	b.fill("#typed", "spar")
	b.click("main", "Purge the queue")
	b.sees("This is not the same text.")
	if q, err := w.api.GetQueue(w.ctx(), spareQueue); err != nil || q.Ready == 0 {
		b.Errorf("the queue was purged after a wrong text: %+v, %v", q, err)
	}
	b.fill("#typed", spareQueue)
	b.click("main", "Purge the queue")
	b.sees("Done.")
	w.until("the queue is empty", func() bool {
		q, err := w.api.GetQueue(w.ctx(), spareQueue)
		return err == nil && q.Ready == 0
	})
}

func dropFilter(w *world, b *tab) {
	w.mailing.Store(false)
	// other flows have left letters
	_, err := w.api.DropDead(w.ctx(), inspect.DeadChange{DeadFilter: inspect.DeadFilter{Queue: mailQueue}, Confirm: mailQueue})
	w.no(err)
	dead(w, welcomeTask, letter{"x@example.org"}, letter{"y@example.org"})
	b.open("dead?queue=" + mailQueue + "&name=mail.welcome")
	b.sees("2 letters")
	b.click("#sum", "Drop all of these…")
	b.titled("Drop dead letters")
	b.sees("2 messages match")
	b.click("main", "No, go back")
	b.titled("Dead letters of mail")
	b.click("#sum", "Drop all of these…")
	b.titled("Drop dead letters")
	b.fill("#typed", "mail.welcome")
	b.click("main", "Drop dead letters")
	b.sees("This is not the same text.")
	b.fill("#typed", mailQueue)
	b.click("main", "Drop dead letters")
	b.sees("Done.")
	b.click("main", "Back")
	b.sees("0 letters")
	dead(w, welcomeTask, letter{"z@example.org"})
	b.open("dead?queue=" + mailQueue)
	b.click("#sum", "Drop all of these…")
	b.titled("Drop dead letters")
	b.fill("#typed", mailQueue)
	b.click("main", "Drop dead letters")
	b.sees("Done.")
	b.open("dead?queue=" + mailQueue)
	b.sees("0 letters")
}

func retryWorkflow(w *world, b *tab) {
	w.fetching.Store(false)
	run, err := task.Chain(fetchTask, buildTask).Submit(w.ctx(), w.producer, "example.org")
	w.no(err)
	root := run.ID()
	w.until("the workflow has failed", func() bool {
		f, err := w.api.GetWorkflow(w.ctx(), root)
		return err == nil && f.Failed != nil
	})
	b.open("workflow?id=" + string(root))
	b.sees("It was ended by")
	b.sees("example.org: no such host")
	w.fetching.Store(true)
	b.click(".actions", "Retry the failed steps")
	b.sees("Done.")
	w.until("the second step runs", func() bool {
		running, err := w.api.ListRunning(w.ctx(), inspect.RunningQuery{Queues: []string{reportsQueue}})
		return err == nil && slices.ContainsFunc(running.Tasks, func(t inspect.RunningTask) bool { return t.ID == root })
	})
	b.click("main", "Back")
	b.until("the first step has succeeded", `document.querySelector('#graph tbody tr .state')?.innerText.includes('succeeded')`)
}

func cancelRunning(w *world, b *tab) {
	id := submit(w, reportTask, report{"May", 100})
	b.open("task?id=" + string(id))
	b.titled("Task " + string(id))
	b.sees("40 of 100 (40 %) · reading the orders of May")
	b.click(".actions", "Cancel and stop its run…")
	b.titled("Cancel the task")
	b.click("main", "Cancel the task")
	b.sees("Done.")
	w.untilState(inspect.State(task.StateRevoked), id)
	b.click("main", "Back")
	b.until("the task is revoked", `document.querySelector('#state .state')?.innerText.includes('revoked')`)
	b.until("it cannot be cancelled again", `![...document.querySelectorAll('.actions button')].some((b) => b.innerText.startsWith('Cancel'))`)
}

func quietWorker(w *world, b *tab) {
	b.open("workers")
	b.click("#list", node)
	b.titled("Worker " + node)
	b.click(".actions", "Quiet: take no new task")
	b.sees("Done.")
	id := submit(w, addTask, 1)
	b.click("main", "Back")
	b.until("the worker is paused", `document.querySelector('#facts .state')?.innerText.includes('paused')`)
	b.click(".actions", "Take tasks again")
	b.sees("Done.")
	w.untilState(inspect.State(task.StateSucceeded), id)
}

func jobsFlow(w *world, b *tab) {
	j, err := w.jobs.Create(w.ctx(), jobs.Spec{Name: "invoice.print", Data: fmt.Appendf(nil, `{"n": %d}`, big)})
	w.no(err)
	b.open("jobs")
	b.fill("#name", "invoice.*")
	b.click(".query", "Filter")
	b.until("one job is found", `document.querySelectorAll('#list tbody tr').length === 1`)
	b.click("#list", fmt.Sprint(j.ID))
	b.titled(fmt.Sprint("Job ", j.ID))
	b.sees(fmt.Sprint(big))
	b.click(".actions", "Cancel…")
	b.titled("Cancel the job")
	b.click("main", "Cancel the job")
	b.sees("Done.")
	b.click("main", "Back")
	b.sees("CANCELLED")
	b.click(".actions", "Run again")
	b.sees("Done.")
	b.click("main", "Back")
	b.sees("QUEUED")
	b.click(".actions", "Remove…")
	b.titled("Remove the job")
	b.fill("#typed", fmt.Sprint(j.ID))
	b.click("main", "Remove the job")
	b.sees("Done.")
	b.open(fmt.Sprint("job?id=", j.ID))
	b.until("the job is gone", `document.querySelector('.note.bad')`)
}

func pauseName(w *world, b *tab) {
	b.open("settings")
	pause := `form.do:has([value="pause-tasks"])`
	b.fill(pause+` [name="name"]`, addTask.Name())
	b.fill(pause+` [name="reason"]`, "wrong result")
	b.click(pause, "Pause")
	b.sees("Done.")
	b.click("main", "Back")
	b.sees("wrong result")
	b.click(`#list tr:has([value="stats.add"])`, "Resume")
	b.sees("Done.")
	b.click("main", "Back")
	b.until("the pause is gone", `document.querySelector('#list') && !document.querySelector('#list').innerText.includes('stats.add')`)
	w.untilState(inspect.State(task.StateSucceeded), submit(w, addTask, 1))
}

func limitQueue(w *world, b *tab) {
	b.open("queue?name=" + statsQueue)
	limit := `form.do:has([value="set-limit"])`
	b.fill(limit+` [name="rate"]`, "fast")
	b.click(limit, "Set the limit")
	b.until("the rate is refused", `document.querySelector('.note.bad')`)
	b.click("main", "Back")
	b.fill(limit+` [name="rate"]`, "100/s")
	b.fill(limit+` [name="concurrency"]`, "3")
	b.click(limit, "Set the limit")
	b.sees("Done.")
	b.click("main", "Back")
	b.until("the limit is in the form", `document.querySelector(`+quote(limit+` [name="rate"]`)+`)?.value === '100/s'`)
	b.open("settings")
	b.sees("3 at the same time")
	b.click(`#list tr:has(a[href="queue?name=stats"])`, "Remove the limit")
	b.sees("Done.")
	b.click("main", "Back")
	b.until("the limit is gone", `document.querySelector('#list') && !document.querySelector('#list').innerText.includes('3 at the same time')`)
}

func readOnly(w *world, b *tab) {
	b.base = w.serve(dashboard.Config{ReadOnly: true}, "/", nil)
	for _, page := range []string{"", "queues", "queue?name=" + ordersQueue, "schedules", "settings", "worker?node=" + node} {
		b.open(page)
		if all := eval[[]string](b, offered); slices.ContainsFunc(all, func(s string) bool { return s[0] != '-' || s[1] == '?' }) {
			b.Errorf("%s offers %v", page, all)
		}
	}
	b.sees("this dashboard is read-only")
}

func hideArguments(w *world, b *tab) {
	w.charging.Store(false)
	ids := dead(w, chargeTask, order{77, "customer-secret"})
	pages := []string{"task?id=" + string(ids[0]), "letter?queue=" + ordersQueue + "&id=" + string(ids[0])}
	b.open(pages[1])
	b.sees("customer-secret")
	b.base = w.serve(dashboard.Config{HideArguments: true}, "/", nil)
	for _, page := range pages {
		b.open(page)
		b.sees("the card was declined")
		b.lacks("customer-secret")
		b.until("the footer says it", `document.querySelector('footer').innerText.includes('are hidden here')`)
	}
}

func noScript(w *world, b *tab) {
	b.base = w.around(dashboard.Config{}, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/static/app.js" {
				rw.Header().Set("Content-Type", "text/javascript") // another type would be an error of its own
				rw.WriteHeader(http.StatusNotFound)
				return
			}
			h.ServeHTTP(rw, r)
		})
	}) + "/"
	b.open("queues")
	b.until("nothing pretends to be live", `!document.querySelector('#live').checkVisibility() && !document.querySelector('#pause').checkVisibility()`)
	b.click("#list", mailQueue)
	b.titled("Queue mail")
	b.click(".actions", "Pause")
	b.sees("Done.")
	b.click("main", "Back")
	b.click(".actions", "Resume")
	b.sees("Done.")
	b.fill("#search", "name:past.kind1")
	b.press("Enter")
	b.titled("Tasks")
}

func removeEntry(w *world, b *tab) {
	added, err := w.schedule.Add(w.ctx(), schedule.ByPhrase("every hour"), addTask.Call(1), schedule.WithName("old entry"))
	w.no(err)
	b.open("schedule?id=" + added.ID)
	b.click(".actions", "Pause")
	b.sees("Done.")
	b.click("main", "Back")
	b.sees("It is paused and does not run.")
	b.click(".actions", "Resume")
	b.sees("Done.")
	b.click("main", "Back")
	b.click(".actions", "Remove…")
	b.titled("Remove the entry")
	b.fill("#typed", added.ID)
	b.click("main", "Remove the entry")
	b.sees("Done.")
	if _, err := w.schedule.Get(w.ctx(), added.ID); err == nil {
		b.Error("the entry is still there")
	}
}

func audit(w *world, b *tab) {
	b.base = w.serve(dashboard.Config{Users: []dashboard.User{{Name: "grace", Password: "pass-of-grace", Role: dashboard.Admin}}}, "/", nil)
	b.header("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("grace:pass-of-grace")))
	b.open("queue?name=" + mailQueue)
	b.click(".actions", "Pause")
	b.sees("Done.")
	b.click("main", "Back")
	b.click(".actions", "Resume")
	b.sees("Done.")
	b.until("both changes are in the log", `fetch('audit').then((a) => a.text()).then((t) => {
  const rows = [...new DOMParser().parseFromString(t, 'text/html').querySelectorAll('#list tbody tr')].map((r) => r.innerText).filter((t) => t.includes('grace'));
  return ['pause-queue', 'resume-queue'].every((what) => rows.some((r) => r.includes(what) && r.includes('mail')));
})`)
	b.open("audit")
	b.until("the user is shown", `document.querySelector('.user').innerText === 'grace'`)
}

func eventFilter(w *world, b *tab) {
	b.open("events")
	b.live()
	eval[bool](b, `(document.querySelector('#type').value = 'task-succeeded', true)`)
	b.fill("#queue", statsQueue)
	b.click(".query", "Filter")
	b.until("the filter is in the address", `location.search.includes('type=task-succeeded') && location.search.includes('queue=stats')`)
	b.live()
	id := submit(w, addTask, 1)
	submit(w, spareTask, 1)
	b.until("the event is shown", shownTasks+`.includes(`+quote(string(id))+`)`)
	if n := eval[int](b, `document.querySelectorAll('#tail tbody tr').length`); n != 1 {
		b.Errorf("%d events pass the filter", n)
	}
}
