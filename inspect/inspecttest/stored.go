package inspecttest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/history/memhistory"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/settings/memsettings"
	"github.com/swarmiji/swarmiji/task"
)

func testSettings(w *world) {
	c := w.config(0)
	c.Settings = memsettings.New()
	w.Cleanup(func() { w.closed(c.Settings) })
	api := w.h.API(w.T, c, false)
	w.submit(okTask, "s-1")
	until := time.Now().Add(waiting).UTC().Truncate(time.Millisecond)
	done, err := api.PauseQueue(w.ctx(), inspect.Pause{Queue: queue, Until: until, Reason: "deploy"})
	w.no(err)
	if done.Done != 1 || !done.Stored || len(done.Nodes) != 0 || len(done.Notes) != 0 {
		w.Errorf("a stored pause: %+v", done)
	}
	for _, set := range []func() (inspect.Change, error){
		func() (inspect.Change, error) { return api.PauseQueue(w.ctx(), inspect.Pause{Queue: "wrok"}) },
		func() (inspect.Change, error) {
			return api.SetLimit(w.ctx(), inspect.Limit{Queue: "wrok", Rate: "1/s"})
		},
	} {
		done, err := set()
		w.no(err)
		if done.Done != 1 || !done.Stored || len(done.Notes) != 1 || !strings.Contains(done.Notes[0], "no queue wrok") {
			w.Errorf("a setting of a queue that nothing knows: %+v", done)
		}
	}
	_, err = api.ResumeQueue(w.ctx(), "wrok")
	w.no(err)
	unlimited, err := api.SetLimit(w.ctx(), inspect.Limit{Queue: "wrok"})
	w.no(err)
	if len(unlimited.Notes) != 0 {
		w.Errorf("the end of a limit: %+v", unlimited)
	}
	q, err := api.GetQueue(w.ctx(), queue)
	w.no(err)
	if q.Pause == nil || q.Pause.By != actor || q.Pause.Reason != "deploy" || !q.Pause.Until.Equal(until) {
		w.Errorf("a paused queue: %+v", q.Pause)
	}
	if w.finds() {
		r := w.untilWhy(api, "s-1", inspect.KindPaused)
		w.helps(r, inspect.DoResumeQueue, "swarmiji queue resume work")
		if !r.At.Equal(until) {
			w.Errorf("the pause ends at %v, want %v", r.At, until)
		}
	}
	_, err = api.PauseTasks(w.ctx(), inspect.TaskPause{Name: okTask.Name(), Reason: "wrong text"})
	w.no(err)
	done, err = api.SetLimit(w.ctx(), inspect.Limit{Queue: queue, Rate: "10/s", Concurrency: 3})
	w.no(err)
	if len(done.Notes) != 0 {
		w.Errorf("a limit of a queue: %+v", done)
	}
	_, err = api.SetLimit(w.ctx(), inspect.Limit{Queue: queue, Name: "x"})
	w.is(err, inspect.ErrInvalid)
	_, err = api.SetLimit(w.ctx(), inspect.Limit{Queue: queue, Rate: "fast"})
	w.is(err, inspect.ErrInvalid)

	_, err = api.SetLimit(w.ctx(), inspect.Limit{Name: "x", Bounds: &settings.Bounds{}})
	w.is(err, inspect.ErrInvalid)
	_, err = api.SetLimit(w.ctx(), inspect.Limit{Queue: queue, Bounds: &settings.Bounds{Key: &settings.Bound{Max: -1}}})
	w.is(err, inspect.ErrInvalid)
	for _, change := range []settings.Bounds{{Key: &settings.Bound{Max: 3}}, {Keys: map[string]settings.Bound{"big": {Rate: "9/s"}}}} {
		_, err = api.SetLimit(w.ctx(), inspect.Limit{Queue: queue, Bounds: &change})
		w.no(err)
	}

	list := func() (got []string) {
		w.Helper()
		for q := (inspect.SettingsQuery{Limit: 1}); ; {
			page, err := api.ListSettings(w.ctx(), q)
			w.no(err)
			for _, s := range page.Settings {
				text := s.Queue + s.Name
				if s.Pause != nil {
					text += " paused by " + s.Pause.By
				}
				if s.Limit != nil {
					text += fmt.Sprintf(" limit %s %d", s.Limit.Rate, s.Limit.Concurrency)
				}
				if b := s.Bounds; b != nil {
					text += fmt.Sprintf(" bounds %d %v by %s", b.Key.Max, b.Keys, b.By)
				}
				got = append(got, text)
			}
			if q.Cursor = page.Next; page.Next == "" {
				return got
			}
		}
	}
	if diff := cmp.Diff([]string{"work paused by ada limit 10/s 3 bounds 3 map[big:{9/s 0}] by ada", "suite.ok paused by ada"}, list()); diff != "" {
		w.Errorf("settings: (-want +got)\n%s", diff)
	}
	_, err = api.SetLimit(w.ctx(), inspect.Limit{Queue: queue, Bounds: &settings.Bounds{}})
	w.no(err)
	done, err = api.ResumeQueue(w.ctx(), queue)
	w.no(err)
	if done.Done != 1 || !done.Stored {
		w.Errorf("a stored pause is ended: %+v", done)
	}
	_, err = api.ServeQueue(w.ctx(), inspect.Serve{Group: "batch", Queue: "other", Workers: 2})
	w.no(err)
	group, _, err := settings.GroupQueues("batch").Get(w.ctx(), c.Settings)
	w.no(err)
	if got := group.Queues["other"]; got.Workers != 2 || got.Removed || got.By != actor {
		w.Errorf("a queue of a group: %+v", got)
	}
	_, err = api.ServeQueue(w.ctx(), inspect.Serve{Queue: "other"})
	w.is(err, inspect.ErrInvalid)
	for want := 1; want >= 0; want-- {
		done, err = api.ResumeTasks(w.ctx(), okTask.Name())
		w.no(err)
		if done.Done != want {
			w.Errorf("the pause of a name is ended: %+v, want %d", done, want)
		}
	}
	if diff := cmp.Diff([]string{"work limit 10/s 3"}, list()); diff != "" {
		w.Errorf("settings after the pauses: (-want +got)\n%s", diff)
	}
}

// testResume shows that one call ends a stored pause and the pause of a consumer by a command.
func testResume(w *world) {
	w.consume()
	c := w.config(1)
	c.Settings = memsettings.New()
	w.Cleanup(func() { w.closed(c.Settings) })
	api := w.h.API(w.T, c, false)
	w.changedNode(api.PauseWorkers(w.ctx(), inspect.Target{Queues: []string{queue}}))
	_, err := api.PauseQueue(w.ctx(), inspect.Pause{Queue: queue})
	w.no(err)
	done, err := api.ResumeQueue(w.ctx(), queue)
	w.no(err)
	if done.Done != 1 || !done.Stored || len(done.Nodes) != 1 {
		w.Errorf("both pauses are ended: %+v", done)
	}
	q, err := api.GetQueue(w.ctx(), queue)
	w.no(err)
	if q.Pause != nil || q.Consumers != 1 || q.Paused != 0 {
		w.Errorf("a resumed queue: %+v", q)
	}
	w.changedNode(api.ResumeQueue(w.ctx(), queue)) // nothing is stored any more
}

func testHistory(w *world) {
	c := w.config(0)
	store, err := memhistory.New(memhistory.Config{})
	w.no(err)
	c.History = store
	api := w.h.API(w.T, c, false)
	now := time.Now().UTC().Add(-10 * time.Second).Truncate(time.Millisecond) // the tasks end later
	var facts []*history.Facts
	tell := func(e events.Event) {
		e.NodeID = node
		facts = append(facts, history.NewFacts(&e))
	}
	for i := range 5 {
		id, at := task.ID(fmt.Sprint("h-", i)), now.Add(time.Duration(i)*time.Millisecond)
		tell(events.Event{Type: events.TaskSent, TaskID: id, Name: "suite.told", Queue: queue, Time: at})
		tell(events.Event{Type: events.TaskStarted, TaskID: id, Time: at.Add(time.Second)})
		end := events.Event{Type: events.TaskSucceeded, TaskID: id, Time: at.Add(2 * time.Second), Runtime: time.Second}
		if i%2 == 1 {
			end = events.Event{Type: events.TaskFailed, TaskID: id, Time: at.Add(2 * time.Second), Runtime: time.Second, Exception: "it is broken"}
		}
		tell(end)
	}
	tell(events.Event{Type: events.TaskSent, TaskID: "h-waits", Name: "suite.told", Queue: "suite-far", Time: now})
	tell(events.Event{Type: events.TaskSent, TaskID: "p-0", Name: "p", Queue: "suite-far", Time: now, Args: "a secret is [hidden]"})
	_, err = store.Record(w.ctx(), &history.Batch{Facts: facts, Now: now.Add(time.Minute)})
	w.no(err)

	var got []string
	for q := (inspect.TaskQuery{Query: "state:failed,succeeded name:suite.*", Limit: 2}); ; {
		page, err := api.ListTasks(w.ctx(), q)
		w.no(err)
		for _, one := range page.Tasks {
			got = append(got, string(one.ID)+" "+string(one.State))
		}
		if q.Cursor = page.Next; page.Next == "" {
			break
		}
	}
	if diff := cmp.Diff([]string{"h-4 succeeded", "h-3 failed", "h-2 succeeded", "h-1 failed", "h-0 succeeded"}, got); diff != "" {
		w.Errorf("tasks of a query: (-want +got)\n%s", diff)
	}
	n, err := api.CountTasks(w.ctx(), "state:failed")
	w.no(err)
	if n != (inspect.Count{N: 2}) {
		w.Errorf("two tasks have failed, and the count is %v", n)
	}
	_, err = api.CountTasks(w.ctx(), "colour:red")
	w.is(err, inspect.ErrInvalid)
	for q, want := range map[inspect.RateQuery]inspect.Rates{
		{Queue: queue, Minutes: 60}:      {Sent: 5, Succeeded: 3, Failed: 2},
		{Name: "suite.told", Minutes: 3}: {Sent: 6, Succeeded: 3, Failed: 2}, // one in another queue
	} {
		rates, err := api.ListRates(w.ctx(), q)
		w.no(err)
		if len(rates.Minutes) != q.Minutes {
			w.Errorf("rates of %+v: %d minutes", q, len(rates.Minutes))
		}
		var sum inspect.Rates
		for i, r := range rates.Minutes {
			if i > 0 && !r.Since.Equal(rates.Minutes[i-1].Since.Add(time.Minute)) {
				w.Errorf("the minute after %v is %v", rates.Minutes[i-1].Since, r.Since)
			}
			sum.Sent, sum.Succeeded, sum.Failed = sum.Sent+r.Sent, sum.Succeeded+r.Succeeded, sum.Failed+r.Failed
		}
		if sum != want {
			w.Errorf("rates of %+v: %+v, want %+v", q, sum, want)
		}
	}
	_, err = api.ListRates(w.ctx(), inspect.RateQuery{Minutes: inspect.MaxMinutes + 1})
	w.is(err, inspect.ErrInvalid)
	_, err = w.h.API(w.T, w.config(0), false).ListRates(w.ctx(), inspect.RateQuery{})
	w.is(err, inspect.ErrUnsupported)
	_, err = api.ListTasks(w.ctx(), inspect.TaskQuery{Cursor: "x"})
	w.is(err, inspect.ErrInvalid)

	d, err := api.GetTask(w.ctx(), inspect.TaskKey{ID: "h-1"})
	w.no(err)
	kinds := make([]string, len(d.Timeline))
	for i, s := range d.Timeline {
		kinds[i] = s.Event
	}
	if diff := cmp.Diff([]string{"sent", "started", "failed"}, kinds); diff != "" || d.Name != "suite.told" || d.Queue != queue || d.Error != "it is broken" || !slices.Contains(d.Found, "history") {
		w.Errorf("a task of the history: %+v, its timeline: (-want +got)\n%s", d, diff)
	}
	if r := w.why(api, "h-0").Reasons[0]; r.Kind != inspect.KindOver || !r.At.Equal(now.Add(2*time.Second)) {
		w.Errorf("a task that has ended: %+v", r)
	}
	w.helps(w.why(api, "h-waits").Reasons[0], inspect.DoStartConsumer, "")
	w.submit(okTask, "alive")
	w.letters("p", 2)
	for id, want := range map[task.ID]string{"p-0": "a secret is [hidden]", "p-1": ""} {
		l, err := api.GetDead(w.ctx(), inspect.DeadKey{Queue: queue, ID: id})
		w.no(err)
		if l.Preview != want {
			w.Errorf("letter %s has the preview %q, want %q", id, l.Preview, want)
		}
	}
	q, err := api.ListQueues(w.ctx(), inspect.QueueQuery{})
	w.no(err)
	for _, one := range q.Queues {
		if one.Name == queue && (one.Rates == nil || one.Rates.Failed != 2 || one.Rates.Succeeded != 3 || one.Rates.Sent != 5) {
			w.Errorf("the rates of the queue: %+v", one.Rates)
		}
	}
}
