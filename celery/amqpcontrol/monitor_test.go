package amqpcontrol_test

import (
	"context"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/swarmiji/swarmiji/events/liveness"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/history/memhistory"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/task"
)

// output collects the lines of a process.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

// has reports whether one line has all texts.
func (o *output) has(texts ...string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(strings.Split(o.text.String(), "\n"), func(line string) bool {
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) })
	})
}

// collect starts a process of celery and collects its output.
func (s *shell) collect(args ...string) *output {
	s.t.Helper()
	o := &output{}
	_, lines, _ := s.start(exec.Command(s.py, append([]string{"-u", "-m", "celery", "-A", "app"}, args...)...))
	go func() { // ends with the output, at the end of the process
		for {
			line, err := lines.ReadString('\n')
			o.mu.Lock()
			o.text.WriteString(line)
			o.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return o
}

// TestMonitors shows that Celery's monitor sees a consumer in Go, and that the observers of this
// module see a Python worker.
func TestMonitors(t *testing.T) {
	w := newWorld(t)
	run := func(f func(ctx context.Context) error) {
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- f(ctx) }()
		t.Cleanup(func() { stop(); <-ended })
	}
	nodes, err := liveness.New(liveness.Config{Bus: newBus(t, w.url), Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	store, err := memhistory.New(memhistory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	recorder, err := history.NewRecorder(history.RecorderConfig{Bus: newBus(t, w.url), Store: store, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	run(nodes.Run)
	run(recorder.Run)
	testwait.Closed(t, "the recorder to listen", recorder.Listening())

	w.control("flagged as revoked", "revoke", "gone")
	dump := w.py.collect("events", "--dump")
	testwait.Until(t, "a heartbeat of Go in the dump", func() bool { return dump.has("go@vm", "heartbeat", "sw_ident=swarmiji", "freq=0.2") })
	w.py.collect("worker", "-P", "solo", "-E", "--without-gossip", "-n", "py@vm", "-l", "error")
	testwait.Until(t, "a heartbeat of Python in the dump", func() bool { return dump.has("py@vm", "heartbeat", "sw_ident=py-celery") })
	testwait.Until(t, "both nodes and the producer", func() bool {
		seen := make(map[string]string)
		for _, n := range nodes.Nodes() {
			seen[n.ID] = n.Worker.Ident
		}
		return seen["go"] == "swarmiji" && seen["py@vm"] == "py-celery"
	})
	// Python has learned the revocation when it started
	out, status := w.py.run("inspect", "-j", "-t", "30", "-d", "py@vm", "revoked")
	if status != 0 || !strings.Contains(out, `"gone"`) {
		t.Errorf("the Python worker has not merged the revoked task: %d\n%s", status, out)
	}
	if out, _ := w.py.run("status", "-t", "3"); !strings.Contains(out, "go@vm: OK") || !strings.Contains(out, "py@vm: OK") {
		t.Errorf("celery status:\n%s", out)
	}

	good, bad := submit(w, goAdd, []int{1, 2}), submit(w, goFail, "boom")
	sent, _ := w.py.run("send", "py.add", "[1, 2]")
	failed, _ := w.py.run("send", "py.fail", `["no"]`)
	pyGood, pyBad := task.ID(strings.TrimSpace(sent)), task.ID(strings.TrimSpace(failed))
	for _, texts := range [][]string{
		{"web@vm", "task sent", "go.add", string(good)},
		{"go@vm", "task received", "go.add", string(good)},
		{"go@vm", "task started", "go.add", string(good)},
		{"go@vm", "task succeeded", "go.add"},
		{"go@vm", "task retried", "go.fail", string(bad), "boom"},
		{"go@vm", "task failed", "go.fail", string(bad), "boom"},
		{"py@vm", "task succeeded", "py.add", "result=3"},
	} {
		testwait.Until(t, "a line in the dump with "+strings.Join(texts, ", "), func() bool { return dump.has(texts...) })
	}
	for id, want := range map[task.ID]history.Record{
		good: {Name: "go.add", State: history.Succeeded}, bad: {Name: "go.fail", State: history.Failed},
		pyGood: {Name: "py.add", State: history.Succeeded}, pyBad: {Name: "py.fail", State: history.Failed},
	} {
		var got history.Record
		testwait.Until(t, "the history of "+want.Name, func() bool {
			got, err = store.Get(t.Context(), id)
			return err == nil && got.State == want.State
		})
		if got.Name != want.Name {
			t.Errorf("%s is %q in the history, want %q", id, got.Name, want.Name)
		}
	}
}
