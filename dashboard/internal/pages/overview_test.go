package pages

import (
	"fmt"
	"testing"

	"github.com/swarmiji/swarmiji/inspect"
)

// TestFullest shows that the overview of many queues has those with waiting tasks and with dead
// letters. The answer of the API does not change.
func TestFullest(t *testing.T) {
	all := make([]inspect.Queue, 3*pageSize)
	for i := range all {
		all[i].Name = fmt.Sprintf("q-%03d", i)
	}
	if shown, more := fullest(all[:pageSize]); len(shown) != pageSize || more != 0 {
		t.Errorf("of %d queues %d are shown, %d not", pageSize, len(shown), more)
	}
	all[100].Dead, all[120].Ready, all[121].Ready = 7, 1, 2
	shown, more := fullest(all)
	if len(shown) != pageSize || more != 2*pageSize {
		t.Fatalf("%d are shown, %d not", len(shown), more)
	}
	for i, want := range []string{"q-121", "q-120", "q-100", "q-000", "q-001"} {
		if shown[i].Name != want {
			t.Errorf("queue %d is %s, want %s", i, shown[i].Name, want)
		}
	}
	if all[0].Name != "q-000" || all[121].Name != "q-121" {
		t.Error("the answer of the API has changed")
	}
}

// TestBusyNodes shows that only consumers that answer and run tasks are asked for them.
func TestBusyNodes(t *testing.T) {
	workers := make([]inspect.Worker, 2*maxBusy)
	if nodes := busyNodes(workers); nodes != nil {
		t.Errorf("idle consumers are asked: %q", nodes)
	}
	for i := range workers {
		workers[i] = inspect.Worker{Node: fmt.Sprint(i), Active: 1, Answers: i != 0}
	}
	if nodes := busyNodes(workers); len(nodes) != maxBusy || nodes[0] != "1" {
		t.Errorf("%d are asked, from %q", len(nodes), nodes[0])
	}
}
