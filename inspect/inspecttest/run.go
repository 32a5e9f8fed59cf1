package inspecttest

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/history/memhistory"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/task"
)

func testRunTask(w *world) {
	w.consume()
	api := w.api(1)
	w.submit(failTask, "r-dead", task.WithHeader("tenant", "42"))
	w.untilWhy(api, "r-dead", inspect.KindDead)
	for _, args := range []bool{false, true} {
		d, err := api.GetTask(w.ctx(), inspect.TaskKey{ID: "r-dead", Args: args})
		w.no(err)
		want := ""
		if args {
			want = `"r-dead"`
		}
		if string(d.Original) != want || d.NotAgain != "" {
			w.Errorf("with Args %v: the original arguments are %s, not again: %q", args, d.Original, d.NotAgain)
		}
	}
	again := func(r inspect.TaskRun) task.ID {
		w.Helper()
		c, err := api.RunTask(w.ctx(), r)
		w.no(err)
		if c.Do != inspect.DoRunTask || c.Target != string(r.ID) || c.Done != 1 || c.Copy == "" || c.Copy == string(r.ID) {
			w.Fatalf("a task runs again: %+v", c)
		}
		return task.ID(c.Copy)
	}
	// the copy fails too, so that its dead letter shows its arguments
	for edited, want := range map[string]string{"": "r-dead", ` "r-dead" `: "r-dead", `"edited"`: "edited"} {
		id := again(inspect.TaskRun{ID: "r-dead", Args: json.RawMessage(edited)})
		if r := w.untilWhy(api, id, inspect.KindDead); !strings.Contains(r.Text, "it is broken: "+want) {
			w.Errorf("a copy with the arguments %s: %s", edited, r.Text)
		}
		l, err := api.GetDead(w.ctx(), inspect.DeadKey{Queue: queue, ID: id, Args: true})
		w.no(err)
		if l.Headers["tenant"] != "42" || string(l.Args) != `"`+want+`"` {
			w.Errorf("a copy with the arguments %s: %+v", edited, l)
		}
	}
	w.oneCopy(4, func() int { // the original and three copies
		s, err := api.SummarizeDead(w.ctx(), inspect.DeadCount{DeadFilter: inspect.DeadFilter{Queue: queue, Name: failTask.Name()}})
		w.no(err)
		return s.Count.N
	}, func(api inspect.API, key string) (inspect.Change, error) {
		return api.RunTask(w.ctx(), inspect.TaskRun{ID: "r-dead", Key: key})
	})
	_, err := api.GetDead(w.ctx(), inspect.DeadKey{Queue: queue, ID: "r-dead"}) // it stays
	w.no(err)
	_, err = api.RunTask(w.ctx(), inspect.TaskRun{ID: "r-dead", Args: json.RawMessage(`{"half`)})
	w.is(err, inspect.ErrInvalid)
	_, err = api.RunTask(w.ctx(), inspect.TaskRun{ID: "never"})
	w.is(err, inspect.ErrNotFound)
	if w.finds() && w.keeps() {
		w.submit(okTask, "r-later", task.WithDelay(waiting))
		w.untilState(api, "r-later", inspect.StateDelayed)
		w.untilState(api, again(inspect.TaskRun{ID: "r-later"}), inspect.State(task.StateSucceeded))
		w.untilState(api, "r-later", inspect.StateDelayed)
		_, err = api.RunTask(w.ctx(), inspect.TaskRun{ID: "r-later", Now: true, Args: json.RawMessage("1")})
		w.is(err, inspect.ErrInvalid)
		c, err := api.RunTask(w.ctx(), inspect.TaskRun{ID: "r-later", Now: true})
		w.no(err)
		if c.Done != 1 || c.Copy != "" {
			w.Errorf("a delayed task runs now: %+v", c)
		}
		w.untilState(api, "r-later", inspect.State(task.StateSucceeded))
		_, err = api.RunTask(w.ctx(), inspect.TaskRun{ID: "r-later", Now: true})
		w.is(err, inspect.ErrConflict)
		_, err = api.RunTask(w.ctx(), inspect.TaskRun{ID: "never", Now: true})
		w.is(err, inspect.ErrNotFound)
	} else if !w.finds() {
		_, err = api.RunTask(w.ctx(), inspect.TaskRun{ID: "r-dead", Now: true})
		w.is(err, inspect.ErrUnsupported)
	}
	if w.keeps() {
		w.submit(okTask, "r-ok")
		w.untilState(api, "r-ok", inspect.State(task.StateSucceeded))
		_, err = api.RunTask(w.ctx(), inspect.TaskRun{ID: "r-ok"})
		w.is(err, inspect.ErrConflict)
		d, err := api.GetTask(w.ctx(), inspect.TaskKey{ID: "r-ok", Args: true})
		w.no(err)
		if d.NotAgain == "" || d.Original != nil {
			w.Errorf("a task without a message: %+v", d)
		}
	}
}

func testRunKept(w *world) {
	store, err := memhistory.New(memhistory.Config{})
	w.no(err)
	recorder, err := history.NewRecorder(history.RecorderConfig{Bus: w.swarm.Events, Store: store, Logger: slog.New(slog.DiscardHandler)})
	w.no(err)
	ctx, stop := context.WithCancel(w.ctx())
	ended := make(chan error, 1)
	go func() { ended <- recorder.Run(ctx) }()
	w.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			w.Error("Run:", err)
		}
	})
	<-recorder.Listening()
	w.consume(func(c *consumer.Config) { c.Report.KeepArguments = events.MaxOriginal })
	config := w.config(1)
	config.History = store
	api := w.h.API(w.T, config, true)
	var start string
	w.until("events are read", func() bool {
		page, err := api.ListEvents(w.ctx(), inspect.EventQuery{})
		start = page.Next
		return err == nil
	})
	succeeds := func(id task.ID, args string) {
		w.Helper()
		var d inspect.TaskDetail
		testwait.Until(w.T, "the history has "+args, func() bool {
			d, err = api.GetTask(w.ctx(), inspect.TaskKey{ID: id, Args: true})
			return err == nil && d.State == inspect.State(task.StateSucceeded) && d.NotAgain == ""
		})
		if string(d.Original) != args || d.Queue != queue {
			w.Errorf("the original arguments of %s in %s are %s, want %s", id, d.Queue, d.Original, args)
		}
	}
	w.submit(okTask, "k-ok", task.WithHeader("tenant", "42"))
	succeeds("k-ok", `"k-ok"`)
	for edited, want := range map[string]string{"": `"k-ok"`, `"edited"`: `"edited"`} {
		c, err := api.RunTask(w.ctx(), inspect.TaskRun{ID: "k-ok", Args: json.RawMessage(edited)})
		w.no(err)
		succeeds(task.ID(c.Copy), want)
	}
	long := strings.Repeat("x", events.MaxOriginal-300)
	_, err = okTask.Submit(w.ctx(), w.producer, long, task.WithID("k-long"))
	w.no(err)
	succeeds("k-long", `"`+long+`"`)
	w.submit(slowTask, "k-slow")
	w.untilState(api, "k-slow", inspect.StateRunning)
	_, err = api.RunTask(w.ctx(), inspect.TaskRun{ID: "k-slow"})
	w.is(err, inspect.ErrConflict) // it has not ended
	w.release <- struct{}{}
	succeeds("k-slow", `"k-slow"`)

	for q, slow := (inspect.EventQuery{Cursor: start, Types: []string{events.TaskReceived}}), false; !slow; {
		page, err := api.ListEvents(w.ctx(), q)
		w.no(err)
		for _, e := range page.Events {
			slow = slow || e.Task == "k-slow"
			if _, has := e.Fields["original"]; has {
				w.Errorf("an event has the original message of %s", e.Task)
			}
		}
		q.Cursor, q.Wait = page.Next, inspect.Duration(10*time.Second)
	}

	forged := events.Event{Type: events.TaskReceived, TaskID: "k-forged", Name: "other", Queue: queue, Time: time.Now(), NodeID: node}
	kept, err := store.Get(w.ctx(), "k-ok")
	w.no(err)
	forged.Fields = events.TaskInfo{Original: kept.Original, OriginalType: kept.OriginalType}.Fields(nil)
	end := events.Event{Type: events.TaskSucceeded, TaskID: "k-forged", Time: time.Now(), NodeID: node}
	_, err = store.Record(w.ctx(), &history.Batch{Facts: []*history.Facts{history.NewFacts(&forged), history.NewFacts(&end)}, Now: time.Now()})
	w.no(err)
	_, err = api.RunTask(w.ctx(), inspect.TaskRun{ID: "k-forged"})
	w.is(err, inspect.ErrConflict) // it is the message of another task
}
