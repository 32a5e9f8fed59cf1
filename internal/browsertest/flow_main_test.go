package browsertest

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/dashboard"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/task"
)

// big is a number that a script would round.
const big = 9007199254740993

func requeueGroup(w *world, b *tab) {
	var orders []order
	for i := range 12 {
		orders = append(orders, order{big + int64(i), "c-7"})
	}
	ids := dead(w, chargeTask, orders...)
	b.open("")
	card := `.card.fail:has(a[href*="shop.charge"])`
	b.until("the group has 12 tasks", `document.querySelector('`+card+`')?.innerText.includes('12×')`)
	if text := eval[string](b, `document.querySelector('`+card+` .message').innerText`); text != "order …: the card was declined" {
		b.Errorf("the message of the group is %q", text)
	}
	b.click(card, "Tasks")
	b.titled("Tasks")
	if n := eval[int](b, `document.querySelectorAll('#list tbody tr').length`); n != 12 {
		b.Errorf("the group has %d rows", n)
	}
	b.fill("#query", fmt.Sprintf(`state:failed error~"order %d:"`, orders[1].Order))
	b.click(".query", "Find")
	b.until("one task is found", `document.querySelectorAll('#list tbody tr').length === 1 && document.querySelector('#list tbody .id').title === `+quote(string(ids[1])))
	b.find("#list tbody a.id", "")
	eval[bool](b, `document.querySelector('#list tbody a.id').click() ?? true`)
	b.titled("Task " + string(ids[1]))
	b.sees(fmt.Sprintf("order %d: the card was declined", orders[1].Order))
	b.until("the arguments are shown, with the exact number", `document.querySelector('#values')?.innerText.includes(`+quote(fmt.Sprint(orders[1].Order))+`)`)

	w.charging.Store(true)
	b.open("")
	b.click(card, "Requeue…")
	b.titled("Requeue dead letters")
	b.sees("12 messages match")
	b.click("main", "Requeue dead letters")
	b.sees("Done.")
	w.untilState(inspect.State(task.StateSucceeded), ids...)
	b.open("")
	b.until("the group is gone", `document.querySelector('#fails') && !document.querySelector('`+card+`')`)
}

func retryFilter(w *world, b *tab) {
	welcome := dead(w, welcomeTask, letter{"a@example.org"}, letter{"b@example.org"}, letter{"c@example.org"})
	invoice := dead(w, invoiceTask, letter{"a@example.org"}, letter{"d@example.org"})
	b.open("dead")
	b.click("#list", mailQueue)
	b.titled("Dead letters of mail")
	b.sees("5 letters")
	b.fill("#name", "mail.w*")
	b.fill("#error", "is locked")
	b.click(".query", "Filter")
	b.sees("3 letters")
	w.mailing.Store(true)
	b.click("#sum", "Requeue all of these…")
	b.titled("Requeue dead letters")
	b.sees("3 messages match")
	b.click("main", "Requeue dead letters")
	b.sees("Done.")
	w.untilState(inspect.State(task.StateSucceeded), welcome...)
	b.click("main", "Back")
	b.titled("Dead letters of mail")
	b.sees("No dead letter matches.")
	b.click(".query", "All")
	b.sees("2 letters")
	w.untilState(inspect.StateDead, invoice...)
	w.mailing.Store(false)
}

func pauseOnPhone(w *world, b *tab) {
	b.window(360, 740, 2, "dark")
	b.open("queues")
	b.fits()
	b.click("#list", statsQueue)
	b.titled("Queue stats")
	b.fits()
	b.fill(`.actions input[name="for"]`, "30m")
	b.fill(`.actions input[name="reason"]`, "deploy")
	b.click(".actions", "Pause")
	b.sees("Done.")
	q, err := w.api.GetQueue(w.ctx(), statsQueue)
	w.no(err)
	if p := q.Pause; p == nil || p.By != "ada" || p.Reason != "deploy" || time.Until(p.Until) < 20*time.Minute || time.Until(p.Until) > 30*time.Minute {
		b.Errorf("the queue has the pause %+v", q.Pause)
	}
	id := submit(w, addTask, 1)
	b.click("main", "Back")
	b.titled("Queue stats")
	b.sees("Paused since")
	b.sees("by ada: deploy")
	b.fits()
	if d, err := w.api.GetTask(w.ctx(), inspect.TaskKey{ID: id}); err == nil && d.State == inspect.State(task.StateSucceeded) {
		b.Error("a task of a paused queue ran")
	}
	b.click(".actions", "Resume")
	b.sees("Done.")
	w.untilState(inspect.State(task.StateSucceeded), id)
}

func runSchedule(w *world, b *tab) {
	added, err := w.schedule.Add(w.ctx(), schedule.ByPhrase("every day at 9am"), addTask.Call(41), schedule.WithName("nightly totals"))
	w.no(err)
	w.Cleanup(func() { _, _ = w.schedule.Remove(w.ctx(), added.ID) })
	b.open("schedules")
	b.click("#list", "nightly totals")
	b.titled("Schedule nightly totals")
	b.until("the next ten runs are shown", `document.querySelectorAll('#runs li').length === 10`)
	before := w.count("name:stats.add state:succeeded")
	b.click(".actions", "Run now")
	b.sees("Done.")
	w.until("the task of the entry has run", func() bool { return w.count("name:stats.add state:succeeded") == before+1 })
	b.click("main", "Back")
	b.titled("Schedule nightly totals")
}

// count returns the number of tasks of the history that match a query, up to a page.
func (w *world) count(query string) int {
	w.Helper()
	p, err := w.api.ListTasks(w.ctx(), inspect.TaskQuery{Query: query, Limit: inspect.MaxLimit})
	w.no(err)
	return len(p.Tasks)
}

func runEdited(w *world, b *tab) {
	w.charging.Store(false)
	id := dead(w, chargeTask, order{big, "c-7"})[0]
	b.open("letter?queue=" + ordersQueue + "&id=" + string(id))
	b.click(".actions", "Run again…")
	b.titled("Run the task again")
	if got, want := eval[string](b, `document.querySelector('#args').value.replace(/\s/g, '')`), fmt.Sprintf(`{"Customer":"c-7","Order":%d}`, big); got != want {
		b.Errorf("the form has the arguments %s, want %s", got, want)
	}
	b.fill("#args", fmt.Sprintf(`{"Customer":"c-8","Order":%d`, big+2))
	b.click("main", "Run the task again")
	b.sees("the arguments are no JSON")
	w.charging.Store(true)
	b.fill("#args", fmt.Sprintf(`{"Customer":"c-8","Order":%d}`, big+2))
	b.click("main", "Run the task again")
	b.sees("Done.")
	again := eval[string](b, `document.querySelector('.facts a.id').title`)
	w.untilState(inspect.State(task.StateSucceeded), task.ID(again))
	w.untilRecorded(task.ID(again))
	d, err := w.api.GetTask(w.ctx(), inspect.TaskKey{ID: task.ID(again)})
	w.no(err)
	if !strings.Contains(d.Args, fmt.Sprint(big+2)) {
		b.Errorf("the copy has the arguments %s, want those of order %d", d.Args, big+2)
	}
	w.untilState(inspect.StateDead, id) // the dead letter stays
	w.charging.Store(false)
}

func cancelWorkflow(w *world, b *tab) {
	run, err := task.Chain(buildTask, fetchTask).Submit(w.ctx(), w.producer, "example.org")
	w.no(err)
	root, first := run.ID(), run.Steps()[0].ID()
	w.until("the first step runs", func() bool {
		page, err := w.api.ListRunning(w.ctx(), inspect.RunningQuery{Queues: []string{reportsQueue}})
		return err == nil && slices.ContainsFunc(page.Tasks, func(t inspect.RunningTask) bool { return t.ID == first })
	})
	w.until("the workflow has a record", func() bool {
		f, err := w.api.GetWorkflow(w.ctx(), root)
		return err == nil && len(f.Steps) > 0
	})
	b.open("workflow?id=" + string(root))
	b.sees("site.build")
	b.until("the graph has the step that runs", `document.querySelector('.graph .box')?.textContent.includes('site.build')`)
	b.click(".actions", "Cancel…")
	b.titled("Cancel the workflow")
	b.click("main", "Cancel the workflow")
	b.sees("Done.")
	w.untilState(inspect.State(task.StateRevoked), root)
	b.click("main", "Back")
	b.until("the workflow is revoked", `document.querySelector('#state .state')?.innerText.includes('revoked')`)
}

func scale(w *world, b *tab) {
	b.open("worker?node=" + node)
	row := `#serves tr:has(a[href="queue?name=stats"])`
	b.fill(row+` input[name="workers"]`, "5")
	b.click(row, "Scale")
	b.sees("Done.")
	b.sees("Answers of consumers")
	b.click("main", "Back")
	b.until("five workers are shown", `document.querySelector('`+row+`')?.innerText.includes('of 5')`)
	one, err := w.api.GetWorker(w.ctx(), node)
	w.no(err)
	for _, s := range one.Serves {
		if want := map[string]int{statsQueue: 5}[s.Name]; want != 0 && s.Workers != want {
			b.Errorf("queue %s has %d workers", s.Name, s.Workers)
		}
	}
}

func interrupted(w *world, b *tab) {
	g := new(gate)
	b.base = w.serve(dashboard.Config{}, "/", g)
	b.open("events?queue=stats&type=task-sent")
	b.live()
	var want []string
	send := func() {
		for range 20 {
			want = append(want, string(submit(w, addTask, 1)))
		}
	}
	const shown = `[...document.querySelectorAll('#tail tbody a.id')].map((a) => a.textContent).filter((t) => t !== 'shop-1')`
	send()
	b.until("20 events are shown", shown+".length === 20")
	again := g.cut()
	b.until("the banner is shown", `document.querySelector('#away').checkVisibility()`)
	send()
	for _, id := range want {
		w.untilState(inspect.State(task.StateSucceeded), task.ID(id))
	}
	if n := eval[int](b, shown+".length"); n != 20 {
		b.Errorf("%d events are shown without a stream", n)
	}
	again()
	b.live()
	b.until("40 events are shown", shown+".length === 40")
	got := eval[[]string](b, shown)
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		b.Errorf("the events are %v, want each of %v once", got, want)
	}
	b.lacks("Events before this line are missing.")
	b.until("the banner is gone", `!document.querySelector('#away').checkVisibility()`)
	if last := g.last(); !strings.Contains(last, "after=") && strings.HasSuffix(last, " ") {
		b.Errorf("the stream was resumed by %q, without an id", last)
	}
}

// operators are the changes of operators; all other ones are for admins.
func operators() []string {
	return []string{
		"pause-queue", "resume-queue", "pause-tasks", "resume-tasks", "set-limit", "cancel-task", "cancel-workflow", "retry-workflow", "requeue-dead", "run-task",
		"run-schedule", "pause-schedule", "resume-schedule", "retry-jobs", "cancel-jobs", "pause-workers", "resume-workers", "scale-workers", "limit-workers",
	}
}

// offered returns the changes that a page offers and whether they are disabled. A field of a
// disabled change must be disabled too, and its reason be said on the page.
const offered = `[...document.querySelectorAll('form.do')].map((f) => {
  const b = f.querySelector('button[type=submit]');
  const told = !b.disabled || document.getElementById(b.getAttribute('aria-describedby'))?.innerText.includes(b.title);
  const same = [...f.querySelectorAll('input:not([type=hidden])')].every((i) => i.disabled === b.disabled);
  return (b.disabled ? '-' : '+') + (told && same ? '' : '?') + f.querySelector('[name=do]').value;
})`

func roles(w *world, b *tab) {
	users := []dashboard.User{
		{Name: "vera", Password: "pass-of-vera", Role: dashboard.Viewer},
		{Name: "otto", Password: "pass-of-otto", Role: dashboard.Operator},
		{Name: "anna", Password: "pass-of-anna", Role: dashboard.Admin},
	}
	b.base = w.serve(dashboard.Config{Users: users}, "/", nil)
	pages := slices.DeleteFunc(w.prepare().pages(), func(page string) bool {
		// these offer no change
		return slices.Contains([]string{"events", "audit", "tasks", "jobs", "dead"}, page)
	})
	for _, u := range users {
		b.header("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(u.Name+":"+u.Password)))
		seen := make(map[string]bool)
		for _, page := range pages {
			b.open(page)
			for _, one := range eval[[]string](b, offered) {
				what := one[1:]
				if seen[what] = true; what == "run-task" && strings.HasPrefix(page, "task?") {
					continue // a finished task has no message any more
				}
				may := u.Role == dashboard.Admin || u.Role == dashboard.Operator && slices.Contains(operators(), what)
				if (one[0] == '+') != may {
					b.Errorf("%s, %v: %s on %s", u.Name, u.Role, one, page)
				}
			}
		}
		for _, what := range operators() {
			if !seen[what] && what != "resume-workers" { // the consumer is not quiet
				b.Errorf("%s sees no %s on any page", u.Name, what)
			}
		}
	}
	// a disabled button is not the protection: the server refuses too
	for i, c := range []struct{ page, button string }{{"queue?name=orders", "Pause"}, {"queue?name=orders", "Purge…"}} {
		u := users[i]
		b.header("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(u.Name+":"+u.Password)))
		b.open(c.page)
		b.until("the button is forced", `(() => {
  const b = [...document.querySelectorAll('.actions button')].find((b) => b.innerText === `+quote(c.button)+`);
  return b && b.disabled && ((b.disabled = false), true);
})()`)
		b.click(".actions", c.button)
		b.sees("You may not do this")
		b.sees("you have " + u.Role.String())
	}
	if q, err := w.api.GetQueue(w.ctx(), ordersQueue); err != nil || q.Pause != nil {
		b.Errorf("the viewer has paused the queue: %+v, %v", q.Pause, err)
	}
}

func deepLinks(w *world, b *tab) {
	id := submit(w, addTask, 1)
	w.untilRecorded(id)
	b.open("tasks?query=name%3Astats.add+since%3A1h")
	b.titled("Tasks")
	if got := eval[string](b, `document.querySelector('#query').value`); got != "name:stats.add since:1h" {
		b.Errorf("the query box has %q", got)
	}
	list := b.at()
	b.find("#list tbody a.id", "")
	eval[bool](b, `document.querySelector('#list tbody a.id[title=`+quote(string(id))+`]').click() ?? true`)
	b.titled("Task " + string(id))
	detail := b.at()
	b.click("#timeline", node)
	b.titled("Worker " + node)
	eval[bool](b, `history.back() ?? true`)
	b.titled("Task " + string(id))
	eval[bool](b, `history.back() ?? true`)
	b.titled("Tasks")
	if b.at() != list {
		b.Errorf("back leads to %s, want %s", b.at(), list)
	}
	eval[bool](b, `history.forward() ?? true`)
	b.titled("Task " + string(id))
	if b.at() != detail {
		b.Errorf("forward leads to %s, want %s", b.at(), detail)
	}
	// the next part of a list has an address too
	b.open("tasks?query=name%3Apast.*")
	b.click(".pager", "Next part")
	b.until("the address has a cursor", `new URL(location).searchParams.get('cursor')`)
	b.find("#list tbody a.id", "") // the address changes first
	second := eval[string](b, `document.querySelector('#list tbody a.id').title`)
	b.open(b.at())
	if got := eval[string](b, `document.querySelector('#list tbody a.id').title`); got != second {
		b.Errorf("the part begins with %s at first, and then with %s", second, got)
	}
	b.click(".pager", "First part")
	b.until("the address has no cursor", `document.readyState === 'complete' && !new URL(location).searchParams.get('cursor')`)
	b.open("no-such-page")
	b.titled("Not found")
}

func prefix(w *world, b *tab) {
	b.base = w.serve(dashboard.Config{}, "/ops/swarm/", nil)
	b.open("")
	b.live()
	if got := eval[string](b, `getComputedStyle(document.body).display`); got != "grid" {
		b.Errorf("the body is displayed as %s: no style sheet", got)
	}
	for _, title := range []string{"Queues", "Tasks", "Dead letters", "Schedules", "Jobs", "Workers", "Events", "Limits and pauses", "Audit log", "Overview"} {
		b.click(".menu", title)
		b.titled(title)
		if out := eval[[]string](b, `[...document.querySelectorAll('a[href], form')].map((e) => e.href || e.action).filter((u) => !u.startsWith(`+quote(b.base)+`))`); len(out) > 0 {
			b.Errorf("%s has addresses outside of the prefix: %v", title, out)
		}
	}
	b.open("queue?name=" + mailQueue)
	b.click(".actions", "Pause")
	b.sees("Done.")
	b.click("main", "Back")
	b.sees("Paused since")
	b.click(".actions", "Resume")
	b.sees("Done.")
	b.fill("#search", "name:past.kind7")
	b.press("Enter")
	b.titled("Tasks")
	b.until("the tasks of the query are shown", `document.querySelectorAll('#list tbody tr').length === 50`)
}

func keyboard(w *world, b *tab) {
	b.open("queues")
	b.press("/")
	b.until("the search has the focus", `document.activeElement.id === 'search'`)
	b.types("name:past.kind3 ?")
	b.press("/") // in a field it is a character
	b.press("Enter")
	b.titled("Tasks")
	if got := eval[string](b, `document.querySelector('#search').value`); got != "name:past.kind3 ?/" {
		b.Errorf("the search box has %q", got)
	}
	b.open("queues")
	b.press("?")
	b.until("the help is open", `document.querySelector('#help').open && document.querySelector('#help').contains(document.activeElement)`)
	b.press("Escape")
	b.until("the help is closed", `!document.querySelector('#help').open`)
	b.press("Tab")
	b.until("the first stop is the link to the content", `document.activeElement.className === 'skip'`)
	b.press("Enter")
	b.until("the content has the focus", `document.activeElement.id === 'main'`)
	// every control that the tab key reaches shows that it has the focus
	for range 30 {
		b.press("Tab")
		if got := eval[string](b, `(() => { const e = document.activeElement; return e === document.body || getComputedStyle(e).outlineStyle === 'solid' ? '' : e.outerHTML; })()`); got != "" {
			b.Errorf("no focus is visible on %s", got)
		}
	}
}
