package inspect_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/history/memhistory"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/settings/memsettings"
	"github.com/swarmiji/swarmiji/task"
)

// TestWhyPaused shows that a pause or a breaker of a task's name, or of its queue, is the reason
// why the task waits. The message of a paused task is in a queue of its own, which has no consumer.
func TestWhyPaused(t *testing.T) {
	ctx, server, bus, store := testwait.Long(t), membroker.NewServer(membroker.Config{}), memevents.New(memevents.Config{}), memsettings.New()
	defer bus.Close(context.Background())
	p, err := producer.New(producer.Config{Broker: server.Connect()})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(context.Background())
	const aside = "work.paused.mail.send"
	for id, queue := range map[task.ID]string{"moved": aside, "waits": "work"} {
		if err := broker.Declare(ctx, server.Connect(), broker.Queue{Name: queue}); err != nil {
			t.Fatal(err)
		}
		if _, err := task.New[int, int]("mail.send").Submit(ctx, p, 1, task.WithQueue(queue), task.WithID(id)); err != nil {
			t.Fatal(err)
		}
	}
	l, err := inspect.New(inspect.Config{Broker: server.Connect(), Events: bus, Settings: store, Listen: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	why := func(id task.ID, queue string) []inspect.Reason {
		t.Helper()
		e, err := l.Why(ctx, inspect.TaskKey{ID: id, Queues: []string{queue}})
		if err != nil {
			t.Fatal(err)
		}
		return e.Reasons
	}
	// paused expects a single reason, with parts of its text and the command that helps.
	paused := func(got []inspect.Reason, at time.Time, help string, parts ...string) {
		t.Helper()
		if len(got) != 1 || got[0].Kind != inspect.KindPaused || !got[0].At.Equal(at) || got[0].Help == nil || got[0].Help.Command != help {
			t.Errorf("want one reason, paused until %v with the help %q: %+v", at, help, got)
			return
		}
		for _, part := range parts {
			if !strings.Contains(got[0].Text, part) {
				t.Errorf("%q does not say %q", got[0].Text, part)
			}
		}
	}
	const resumeName, resumeQueue = "swarmiji resume --task mail.send", "swarmiji queue resume work"
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(settings.PauseTask(ctx, store, "mail.send", settings.Pause{By: "ada", Why: "wrong text"}))
	paused(why("moved", aside), time.Time{}, resumeName, "The tasks mail.send are paused by ada", "until it is resumed", "wrong text")
	paused(why("waits", "work"), time.Time{}, resumeName)
	_, err = settings.ResumeTask(ctx, store, "mail.send")
	must(err)

	must(settings.TaskBreaker("mail.send").Set(ctx, store, settings.Breaker{Until: until, Why: "no route to host"}))
	paused(why("moved", aside), until, resumeName, "paused by a breaker", "no route to host")
	must(settings.TaskBreaker("mail.send").Set(ctx, store, settings.Breaker{Until: time.Now().Add(-time.Minute)}))
	if got := why("waits", "work"); len(got) != 1 || got[0].Kind != inspect.KindNoConsumer {
		t.Errorf("after the pause of the breaker: %+v", got)
	}

	must(settings.QueueBreaker("work").Set(ctx, store, settings.Breaker{Until: until, Why: "no route to host"}))
	got := why("waits", "work")
	if len(got) != 2 || got[1].Kind != inspect.KindNoConsumer {
		t.Fatalf("want a paused queue without consumers: %+v", got)
	}
	paused(got[:1], until, resumeQueue, "Queue work is paused by a breaker")
}

// TestWhyWithoutQueue shows that a task is explained although the event with its queue was lost.
func TestWhyWithoutQueue(t *testing.T) {
	ctx := testwait.Long(t)
	store, err := memhistory.New(memhistory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	e := events.Event{Type: events.TaskFailed, TaskID: "again", Retry: true, Time: time.Now(), Exception: "no route to host"}
	if _, err := store.Record(ctx, &history.Batch{Facts: []*history.Facts{history.NewFacts(&e)}}); err != nil {
		t.Fatal(err)
	}
	l, err := inspect.New(inspect.Config{History: store, Settings: memsettings.New(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	got, err := l.Why(ctx, inspect.TaskKey{ID: "again"})
	if err != nil || len(got.Reasons) != 1 || got.Reasons[0].Kind != inspect.KindRetry {
		t.Errorf("%+v, %v", got, err)
	}
}
