package suite

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/internal/captable"
)

type harness struct{ Fast bool }

type emptyWorld struct{}

func (emptyWorld) CloseAll() {}

func TestRunReports(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: nothing is reported")
	}
	t.Setenv(captable.Update, "1")
	file := filepath.Join(t.TempDir(), "broker-x.json")
	ran := 0
	pass := func(emptyWorld) { ran++ }
	needs := []func(harness) string{func(h harness) string { return Unless(h.Fast, "not fast") }}
	cases := []Case[harness, emptyWorld]{
		{Area: "a", Name: "one", Run: pass},
		{Area: "b", Name: "one", Run: pass, Needs: needs},
		{Area: "a", Name: "two", Run: pass, Needs: needs},
	}
	run := func(name string, cases []Case[harness, emptyWorld], open func(t testing.TB) harness) {
		t.Run(name, func(t *testing.T) {
			Run(t, cases, open,
				func(testing.TB, harness) emptyWorld { return emptyWorld{} },
				func(h harness) About { return About{File: file, Port: "broker", Promises: Promises(h)} })
		})
	}
	open := func(testing.TB) harness { return harness{} }

	// A case that skips itself, or whose server is missing, does not count, so no report is compared.
	run("no server", cases, func(t testing.TB) harness { t.Skip("no server"); return harness{} })
	run("one without a server", cases, func(t testing.TB) harness {
		if ran > 0 {
			t.Skip("no server any more")
		}
		return harness{}
	})
	if _, err := os.Stat(file); err == nil {
		t.Fatal("a run in part was reported")
	}

	run("whole", cases, open)
	as, err := captable.Read(filepath.Dir(file))
	if err != nil {
		t.Fatal(err)
	}
	skip := func(name string) []captable.Skip { return []captable.Skip{{Case: name, Reason: "not fast"}} }
	want := []captable.Adapter{{Name: "x", Report: captable.Report{
		Port:     "broker",
		Promises: []captable.Promise{{Name: "Fast", Value: captable.No}},
		Areas:    []captable.Area{{Name: "a", Passed: true, Skipped: skip("two")}, {Name: "b", Skipped: skip("one")}},
	}}}
	if diff := cmp.Diff(want, as); diff != "" {
		t.Errorf("(-want +reported):\n%s", diff)
	}
	if ran != 2 {
		t.Errorf("%d cases ran, want the one that can, twice", ran)
	}
}

func TestAPartOfARunIsNotCompared(t *testing.T) {
	// the file does not exist, so a comparison would fail
	file := filepath.Join(t.TempDir(), "broker-x.json")
	for name, r := range map[string]recorder{
		"left out by -run, or failed": {cases: 2, seen: 1, about: About{File: file, Port: "broker"}},
		"without a file":              {cases: 1, seen: 1, about: About{Port: "broker"}},
	} {
		t.Run(name, func(t *testing.T) { r.check(t) })
	}
}

func TestPromises(t *testing.T) {
	got := Promises(struct {
		A, B bool
		N, M int
		D, E time.Duration
	}{A: true, N: 7, D: time.Second})
	want := []captable.Promise{
		{Name: "A", Value: "yes"},
		{Name: "B", Value: "no"},
		{Name: "N", Value: "7"},
		{Name: "M", Value: "no"},
		{Name: "D", Value: "1s"},
		{Name: "E", Value: "no"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
