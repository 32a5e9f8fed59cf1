package events_test

import (
	"fmt"
	"testing"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/task"
)

// TestDecodeSharesTexts shows that repeated texts of a message, such as node and queue names, share
// memory across event types. An event costs about two allocations, for its own texts.
func TestDecodeSharesTexts(t *testing.T) {
	var es []events.Event
	for i := range events.MaxBatch / 4 {
		id := task.ID(fmt.Sprintf("id-%d", i))
		for _, typ := range []string{events.TaskSent, events.TaskReceived, events.TaskStarted, events.TaskSucceeded} {
			e := full(typ)
			e.TaskID, e.Fields = id, nil
			es = append(es, e)
		}
	}
	data, err := events.Encode(es)
	if err != nil {
		t.Fatal(err)
	}
	got := testing.AllocsPerRun(10, func() {
		if _, err := events.Decode(data); err != nil {
			t.Fatal(err)
		}
	})
	if most := 2.5 * float64(len(es)); got > most {
		t.Errorf("%d events cost %g allocations, want at most %g", len(es), got, most)
	}
	t.Logf("%g allocations for %d events", got, len(es))
}
