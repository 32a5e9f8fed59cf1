package captable_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/internal/captable"
)

// The page matches the reports. With SWARMIJI_UPDATE=1 the test writes the page.
func TestPageIsUpToDate(t *testing.T) {
	if err := captable.Check("../../docs/capabilities.md", "../../docs/capabilities", os.Getenv(captable.Update) == "1"); err != nil {
		t.Error(err)
	}
}

func report() captable.Report {
	return captable.Report{
		Port: "broker",
		Promises: []captable.Promise{
			{Name: "Durable", Value: captable.Yes}, {Name: "Watch", Value: captable.No}, {Name: "MaxBody", Value: "6291456"},
		},
		Areas: []captable.Area{
			{Name: "deliver", Passed: true},
			{Name: "fault", Passed: true, Skipped: []captable.Skip{{Case: "a cut", Reason: "the harness has no Sever"}, {Case: "a restart", Reason: "no Restart"}}},
			{Name: "watch", Skipped: []captable.Skip{{Case: "one", Reason: "no Watch"}, {Case: "two", Reason: "no Watch"}}},
		},
	}
}

func TestRender(t *testing.T) {
	other := captable.Report{
		Port:     "broker",
		Promises: []captable.Promise{{Name: "Durable", Value: captable.Yes}, {Name: "Order", Value: captable.Yes}},
		Areas:    []captable.Area{{Name: "deliver", Passed: true}, {Name: "order", Passed: true}},
	}
	store := captable.Report{Port: "results", Promises: []captable.Promise{{Name: "TTL", Value: "100ms"}, {Name: "MaxResult", Value: "1500"}}}
	page, err := captable.Render([]captable.Adapter{
		{Name: "aaa", Report: other}, {Name: "memory", Report: report()}, {Name: "redis", Report: store},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(string(page), "\n## Brokers\n")
	want := `
All brokers pass the cases of confirmed publishing, leases and settlement. Further promises:

|  | memory | aaa |
|---|---|---|
| a confirmed message survives a restart of the server | yes, within its process | yes |
| first in, first out, for one publisher and priority | – | yes |
| it tells when the connection is lost, blocked and back | – | – |
| a larger body is refused at Submit (size: configured by the suite) | 6 MiB | – |
| *cases:* deliver | all | all |
| *cases:* order | – | all |
| *cases:* fault | some [1] [2] | – |
| *cases:* watch | – [3] | – |

- [1] it has no connection to lose
- [2] no Restart
- [3] no Watch

## Result stores

A reply queue delivers a record once, to the process that asked. A store keeps it for all.

|  | redis |
|---|---|
| a record may have its own time to live (time: the shortest tested) | 100ms |
| a larger result is refused (size: configured by the suite) | 1500 bytes |
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRenderAsksForWords(t *testing.T) {
	r := report()
	r.Promises = append(r.Promises, captable.Promise{Name: "Flying", Value: captable.Yes})
	if _, err := captable.Render([]captable.Adapter{{Name: "x", Report: r}}); err == nil || !strings.Contains(err.Error(), "Flying") {
		t.Errorf("Render of a promise without words: %v", err)
	}
}

func TestCheckWritesAndCompares(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "capabilities")
	file := filepath.Join(dir, "broker-x.json")
	if err := report().Check(file, false); err == nil || !strings.Contains(err.Error(), captable.Update) {
		t.Errorf("Check without a file: %v, want one that tells what to do", err)
	}
	if err := report().Check(file, true); err != nil {
		t.Fatal(err)
	}
	if err := report().Check(file, false); err != nil {
		t.Errorf("Check of what was written: %v", err)
	}
	as, err := captable.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]captable.Adapter{{Name: "x", Report: report()}}, as); diff != "" {
		t.Errorf("Read (-written +read):\n%s", diff)
	}
	other := report()
	other.Promises[0].Value = captable.No
	err = other.Check(file, false)
	if err == nil || !strings.Contains(err.Error(), `-      "value": "yes"`) || !strings.Contains(err.Error(), `+      "value": "no"`) {
		t.Errorf("Check of another report: %v, want the lines that differ", err)
	}
	other = report()
	other.Areas[0], other.Areas[2] = other.Areas[2], other.Areas[0]
	if err := other.Check(file, false); err == nil {
		t.Error("Check took the areas in another order")
	}
	if err := report().Check(filepath.Join(dir, "events-x.json"), true); err == nil {
		t.Error("Check wrote a report of one port under the name of another")
	}
	if err := os.WriteFile(filepath.Join(dir, "broker-y.json"), []byte(`{"mine":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := captable.Read(dir); err == nil || !strings.Contains(err.Error(), "broker-y") {
		t.Errorf("Read of what is no report: %v", err)
	}
}
