package ledger_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/internal/ledger"
)

func TestLinesOfManyWritersStayWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	const writers, each = 8, 200
	var wg sync.WaitGroup
	for i := range writers {
		w, err := ledger.Create(path, "writer") // a separate file handle, as another process would have
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer w.Close()
			for j := range each {
				if err := w.Write(ledger.Started, fmt.Sprintf("%d-%d", i, j)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	lines, err := ledger.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	next := make(map[string]int)
	for _, l := range lines {
		writer, number, _ := strings.Cut(l.ID, "-")
		if number != fmt.Sprint(next[writer]) {
			t.Fatalf("writer %s: line %s comes where %d was expected", writer, number, next[writer])
		}
		next[writer]++
		if l.Event != ledger.Started || l.By != "writer" || time.Since(l.At).Abs() > time.Minute {
			t.Fatalf("line %+v is not what was written", l)
		}
	}
	if len(lines) != writers*each {
		t.Errorf("%d lines were read, %d written", len(lines), writers*each)
	}
}

func TestReadRefusesWhatIsNoLedger(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		lines      int
		fails      bool
	}{
		{"nothing", "", 0, false},
		{"a line", "started a 1700000000000\n", 1, false},
		{"a line without time", "started a\n", 1, false},
		{"a line that is being written", "started a 1\nfinish", 1, false},
		{"only a line that is being written", "started a", 0, false},
		{"an unknown event", "begun a 1\n", 0, true},
		{"no id", "started\n", 0, true},
		{"a bad time", "started a yesterday\n", 0, true},
		{"two lines in one", "started a 1started b 1\n", 0, true},
		{"an empty line", "\n", 0, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ledger")
			if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			lines, err := ledger.Read(path)
			if (err != nil) != tc.fails || len(lines) != tc.lines {
				t.Errorf("Read(%q) = %v, %v; wanted %d lines, an error: %v", tc.text, lines, err, tc.lines, tc.fails)
			}
		})
	}
	if lines, err := ledger.Read(filepath.Join(t.TempDir(), "none")); err != nil || lines != nil {
		t.Errorf("a file that does not exist: %v, %v; wanted no lines and no error", lines, err)
	}
}

// history makes a history from tasks written as "id: event event ...".
func history(tasks ...string) ledger.History {
	var lines []ledger.Line
	for _, text := range tasks {
		id, evs, _ := strings.Cut(text, ": ")
		for e := range strings.FieldsSeq(evs) {
			lines = append(lines, ledger.Line{Event: ledger.Event(e), ID: id})
		}
	}
	return ledger.NewHistory(lines)
}

func TestRules(t *testing.T) {
	for _, tc := range []struct {
		name string
		rule ledger.Rule
		ok   []string
		bad  []string
	}{
		{
			"NoLoss", ledger.NoLoss,
			[]string{"a: submitted confirmed started finished", "b: submitted", "c: submitted failed", "d: submitted confirmed revoked", "e: submitted started finished"},
			[]string{"f: submitted confirmed", "g: submitted confirmed started"},
		},
		{
			"NoRepeat", ledger.NoRepeat,
			[]string{"a: submitted submitted confirmed started finished", "b: submitted confirmed"},
			[]string{"c: submitted confirmed started finished started finished", "d: submitted confirmed started started finished"},
		},
		{
			"NoGhosts", ledger.NoGhosts,
			[]string{"a: submitted started confirmed finished", "b: submitted failed", "c: submitted started"},
			[]string{"d: started finished", "e: submitted failed started", "f: started submitted confirmed"},
		},
		{
			"Results", ledger.Results,
			[]string{"a: submitted confirmed started finished result", "b: submitted started finished", "c: submitted started finished result confirmed"},
			[]string{"d: submitted confirmed started finished", "e: submitted confirmed started finished result result", "f: submitted confirmed started result finished", "g: submitted confirmed result"},
		},
		{
			"RepeatsOnlyOf", ledger.RepeatsOnlyOf(map[string]bool{"a": true}),
			[]string{"a: submitted confirmed started started finished", "b: submitted confirmed started finished"},
			[]string{"c: submitted confirmed started started finished"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if vs := history(tc.ok...).Check(tc.rule); len(vs) > 0 {
				t.Errorf("these obey the rule: %v", vs)
			}
			var found []string
			for _, v := range history(append(tc.ok, tc.bad...)...).Check(tc.rule) {
				found = append(found, v.Task.String())
			}
			if d := cmp.Diff(tc.bad, found); d != "" {
				t.Errorf("tasks that break the rule (-wanted +found):\n%s", d)
			}
		})
	}
}

func TestOpen(t *testing.T) {
	h := history("a: started finished", "b: started", "c: started started finished", "d: submitted")
	var open []string
	for _, task := range h.Open() {
		open = append(open, task.ID)
	}
	if d := cmp.Diff([]string{"b", "c"}, open); d != "" {
		t.Errorf("tasks that were started and did not finish (-wanted +found):\n%s", d)
	}
}
