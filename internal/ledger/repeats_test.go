package ledger_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/internal/ledger"
)

// second returns a time of a run that began at the zero of Unix time.
func second(n float64) time.Time { return time.UnixMilli(int64(n * 1000)) }

// line returns an event of a task at a second, written by a process.
func line(id string, e ledger.Event, at float64, by string) ledger.Line {
	return ledger.Line{Event: e, ID: id, At: second(at), By: by}
}

func TestRepeats(t *testing.T) {
	faults := []ledger.Fault{
		{Name: "killed", By: "c1", From: second(10), To: second(10)},
		{Name: "cut", From: second(20), To: second(23)},
	}
	for _, tc := range []struct {
		name      string
		lines     []ledger.Line
		causes    map[string]int
		unexplain int
	}{
		{
			"its process was killed while it ran",
			[]ledger.Line{line("a", ledger.Started, 9, "c1"), line("a", ledger.Started, 12, "c2"), line("a", ledger.Finished, 13, "c2")},
			map[string]int{"killed": 1},
			0,
		},
		{
			"its process was killed before its acknowledgement was sent",
			[]ledger.Line{line("a", ledger.Started, 9, "c1"), line("a", ledger.Finished, 9.5, "c1"), line("a", ledger.Started, 12, "c2")},
			map[string]int{"killed": 1},
			0,
		},
		{
			"its process was killed long after it had finished",
			[]ledger.Line{line("a", ledger.Started, 5, "c1"), line("a", ledger.Finished, 6, "c1"), line("a", ledger.Started, 12, "c2")},
			map[string]int{},
			1,
		},
		{
			"another process was killed",
			[]ledger.Line{line("a", ledger.Started, 9, "c2"), line("a", ledger.Started, 12, "c1")},
			map[string]int{},
			1,
		},
		{
			"the connections of all were cut",
			[]ledger.Line{line("a", ledger.Started, 19, "c2"), line("a", ledger.Started, 21, "c1")},
			map[string]int{"cut": 1},
			0,
		},
		{
			"each start after the first needs a cause",
			[]ledger.Line{line("a", ledger.Started, 19, "c2"), line("a", ledger.Started, 24, "c1"), line("a", ledger.Finished, 25, "c1"), line("a", ledger.Started, 30, "c1")},
			map[string]int{"cut": 1},
			1,
		},
		{
			"it was submitted again",
			[]ledger.Line{
				line("a", ledger.Submitted, 1, "p"), line("a", ledger.Submitted, 2, "p"),
				line("a", ledger.Started, 3, "c2"), line("a", ledger.Finished, 4, "c2"), line("a", ledger.Started, 5, "c2"),
			},
			map[string]int{ledger.Resubmitted: 1},
			0,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := ledger.NewHistory(tc.lines)
			causes, unexplained := h.Repeats(faults)
			if d := cmp.Diff(tc.causes, causes); d != "" || len(unexplained) != tc.unexplain {
				t.Errorf("%d unexplained, wanted %d; causes (-wanted +found):\n%s", len(unexplained), tc.unexplain, d)
			}
			if vs := h.Check(ledger.RepeatsExplained(faults)); len(vs) != tc.unexplain {
				t.Errorf("violations %v; wanted %d", vs, tc.unexplain)
			}
		})
	}
}

func TestEnds(t *testing.T) {
	died := map[string]time.Time{"c1": second(10)}
	var lines []ledger.Line
	for _, id := range []string{"finished", "dead", "died", "taken", "lost", "lived", "long ago"} {
		lines = append(lines, line(id, ledger.Confirmed, -60, "p"))
	}
	lines = append(lines,
		line("finished", ledger.Started, 1, "c1"), line("finished", ledger.Finished, 2, "c1"), line("finished", ledger.Dead, 90, "test"),
		line("dead", ledger.Taken, 9, "c1"), line("dead", ledger.Dead, 90, "test"),
		line("died", ledger.Started, 9, "c1"),
		line("taken", ledger.Taken, 9.9, "c1"),
		line("lived", ledger.Started, 9, "c2"),
		line("long ago", ledger.Started, -50, "c1"),
		line("submitted only", ledger.Submitted, 1, "p"),
		line("never taken", ledger.Dead, 90, "test"))
	h := ledger.NewHistory(lines)
	ends, _ := h.Ends(died)
	if want := (ledger.Ends{Finished: 1, Uncertain: 1, Died: 2}); ends != want {
		t.Errorf("the tasks ended as %+v; wanted %+v", ends, want)
	}
	if d := cmp.Diff([]string{"lived", "long ago", "lost"}, ids(h.Check(ledger.EndsForSure(died)))); d != "" {
		t.Errorf("lost tasks (-wanted +found):\n%s", d)
	}
	if d := cmp.Diff([]string{"finished", "never taken"}, ids(h.Check(ledger.OnlyTakenAreDead))); d != "" {
		t.Errorf("dead letters that nobody had taken (-wanted +found):\n%s", d)
	}
}

func ids(vs []ledger.Violation) []string {
	var all []string
	for _, v := range vs {
		all = append(all, v.Task.ID)
	}
	return all
}
