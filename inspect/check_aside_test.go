package inspect_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/settings/memsettings"
)

// TestCheckAside shows the findings about the queue of a paused task's messages. They name the
// pause or the consumers of another queue.
func TestCheckAside(t *testing.T) {
	ctx, b, store := testwait.Long(t), membroker.New(), memsettings.New()
	defer b.Close(context.Background())
	long := strings.Repeat("x", 120)
	if err := broker.Declare(ctx, b, broker.Queue{Name: "work"}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mail.send", long} {
		queue := settings.AsideQueue("work", name)
		if err := broker.Declare(ctx, b, broker.Queue{Name: queue}); err != nil {
			t.Fatal(err)
		}
		if err := b.Publish(ctx, queue, &broker.Message{ID: "m-1", ContentType: "text/plain"}); err != nil {
			t.Fatal(err)
		}
	}
	l, err := inspect.New(inspect.Config{Broker: b, Settings: store, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	expect := func(task, want string) {
		t.Helper()
		report, err := l.Check(ctx, inspect.CheckQuery{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range report.Findings {
			if f.Check == "queue "+settings.AsideQueue("work", task) {
				got = append(got, string(f.Outcome)+": "+f.Detail)
			}
		}
		if len(got) != 1 || got[0] != want {
			t.Errorf("the findings are %q, want %q", got, want)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(settings.PauseTask(ctx, store, "mail.send", settings.Pause{}))
	expect("mail.send", "warning: 1 tasks mail.send of queue work wait here while their name is paused: swarmiji resume --task mail.send")
	_, err = settings.ResumeTask(ctx, store, "mail.send")
	must(err)
	expect("mail.send", "warning: 1 tasks mail.send wait here since a pause; start a consumer of queue work, which moves them back")
	// the name of the queue has a hash, so that only the settings know the task
	must(settings.AsideOf("work", long).Set(ctx, store, settings.Aside{}))
	must(settings.PauseTask(ctx, store, long, settings.Pause{}))
	expect(long, "warning: 1 tasks "+long+" of queue work wait here while their name is paused: swarmiji resume --task "+long)
}
