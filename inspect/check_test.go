package inspect

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/task"
)

// TestClocks: a clock outside of the interval of the question is reported.
func TestClocks(t *testing.T) {
	now := time.Now()
	for off, want := range map[time.Duration]Outcome{
		0: Fine, -time.Hour: Warn, time.Hour: Warn, -3 * time.Second: Warn, 3 * time.Second: Warn, 500 * time.Millisecond: Fine,
	} {
		var f findings
		checkClocks(&f, []control.Reply{{Node: "n", At: now.Add(off)}}, now, now)
		if len(f.list) != 1 || f.list[0].Outcome != want {
			t.Errorf("off by %v: %+v, want %s", off, f.list, want)
		}
	}
}

// TestLabelsEndWithTheirEvents shows that events of a task get its name and queue while an earlier
// event of it is known, and no longer.
func TestLabelsEndWithTheirEvents(t *testing.T) {
	tail := newEventTail(slog.New(slog.DiscardHandler))
	add := func(e Event) Event {
		tail.add(e)
		es, _, _, _ := tail.From(tail.Next()-1, 1, func(*Event) bool { return true })
		return es[0]
	}
	add(Event{Type: "task-sent", Task: "long", Name: "n", Queue: "q"})
	for i := range 3 * keptEvents {
		add(Event{Type: "task-sent", Task: task.ID(fmt.Sprint(i)), Name: "n", Queue: "q"})
		if i%(keptEvents/2) == 0 {
			if e := add(Event{Type: "task-progress", Task: "long"}); e.Name != "n" || e.Queue != "q" {
				t.Fatalf("after %d events: %+v", i, e)
			}
		}
	}
	if e := add(Event{Type: "task-received", Task: "long", Name: "renamed"}); e.Queue != "q" {
		t.Errorf("an event with a name alone: %+v", e)
	}
	if e := add(Event{Type: "task-started", Task: "0"}); e.Name != "" {
		t.Errorf("the first event is gone, and its task is still known: %+v", e)
	}
	if n := len(tail.labels); n > keptEvents {
		t.Errorf("%d tasks are known by %d events", n, keptEvents)
	}
}
