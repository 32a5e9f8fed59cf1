package exporter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// patience bounds a look at the broker.
const patience = 2 * time.Minute

// fixedStats is an Inspector with fixed answers.
type fixedStats struct {
	stats map[string]broker.Stats
	err   error
	asked int
}

func (f *fixedStats) Stats(_ context.Context, queue string) (broker.Stats, error) {
	f.asked++
	st, ok := f.stats[queue]
	if !ok {
		return st, broker.ErrNoQueue
	}
	return st, f.err
}

func (f *fixedStats) Purge(context.Context, string) (int, error) { panic("the exporter purges") }

// sample matches a line of Prometheus' text format: name, queue and value.
var sample = regexp.MustCompile(`^(swarmiji_[a-z_]+)(?:\{queue="([A-Za-z0-9._-]+)"\})? ([0-9.e+-]+)$`)

// shown returns the values of a page by name and queue. Each metric must have its type before.
func shown(t *testing.T, page []byte) map[string]float64 {
	t.Helper()
	all, typed := map[string]float64{}, map[string]bool{}
	for _, line := range strings.Split(strings.TrimSuffix(string(page), "\n"), "\n") {
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, _, _ := strings.Cut(rest, " ")
			typed[name] = true
			continue
		}
		if strings.HasPrefix(line, "# HELP ") {
			continue
		}
		m := sample.FindStringSubmatch(line)
		if m == nil || !typed[m[1]] {
			t.Fatalf("line %q of\n%s", line, page)
		}
		v, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSpace(m[1]+" "+m[2])] = v
	}
	return all
}

func TestPage(t *testing.T) {
	in := &fixedStats{stats: map[string]broker.Stats{
		"mail":   {Ready: 3, Held: 2, Delayed: 1, Dead: 4, DeadDropped: 5, Oldest: time.Now().Add(-time.Hour)},
		"rabbit": {Ready: 3, Held: -1, Delayed: -1, Dead: 0, DeadDropped: -1},
		"empty":  {},
	}}
	w := &Exporter{Inspector: in, Names: []string{"rabbit", "mail", "mail", "empty", "nobody"}, Timeout: patience, Logger: slog.New(slog.DiscardHandler)}
	got := shown(t, w.page(t.Context()))
	for name, want := range map[string]float64{
		"swarmiji_queue_ready_tasks mail": 3, "swarmiji_queue_held_tasks mail": 2, "swarmiji_queue_delayed_tasks mail": 1,
		"swarmiji_queue_dead_tasks mail": 4, "swarmiji_queue_dead_dropped_tasks_total mail": 5, "swarmiji_queue_ready_tasks rabbit": 3,
		"swarmiji_queue_oldest_seconds empty": 0, "swarmiji_exporter_up": 1, "swarmiji_exporter_failures_total": 0, "swarmiji_exporter_queues_left_out": 0,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %g, %t; want %g", name, v, ok, want)
		}
	}
	if age := got["swarmiji_queue_oldest_seconds mail"]; age < 3600 || age > 7200 {
		t.Errorf("the oldest task has waited for %g s, want about 3600", age)
	}
	for name := range got {
		if strings.HasSuffix(name, "nobody") || strings.HasSuffix(name, " rabbit") && name != "swarmiji_queue_ready_tasks rabbit" && name != "swarmiji_queue_dead_tasks rabbit" {
			t.Errorf("%s is shown and not known", name)
		}
	}

	in.err = errors.New("no answer")
	got = shown(t, w.page(t.Context()))
	if got["swarmiji_exporter_up"] != 0 || got["swarmiji_exporter_failures_total"] != 1 {
		t.Errorf("without an answer: %v", got)
	}
	for name := range got {
		if strings.HasPrefix(name, "swarmiji_queue") {
			t.Errorf("without an answer %s is shown", name)
		}
	}
	in.err = nil
	if got = shown(t, w.page(t.Context())); got["swarmiji_exporter_up"] != 1 || got["swarmiji_queue_ready_tasks mail"] != 3 {
		t.Errorf("after a failure: %v", got)
	}
}

// TestIsFrugal shows that a look is used for further requests, that the names are read
// rarely, and that at most maxExported queues are shown.
func TestIsFrugal(t *testing.T) {
	in := &fixedStats{stats: map[string]broker.Stats{}}
	var names []string
	for i := range maxExported + 7 {
		names = append(names, fmt.Sprintf("q-%04d", i))
		in.stats[names[i]] = broker.Stats{Ready: i}
	}
	listed := 0
	w := &Exporter{Inspector: in, Refresh: time.Hour, Timeout: patience, Logger: slog.New(slog.DiscardHandler), List: func(context.Context) ([]string, error) {
		listed++
		return names, nil
	}}
	for range 3 {
		got := shown(t, w.page(t.Context()))
		if got["swarmiji_exporter_queues_left_out"] != 7 || got["swarmiji_queue_ready_tasks q-0999"] != 999 {
			t.Fatalf("%d values, %g queues left out", len(got), got["swarmiji_exporter_queues_left_out"])
		}
	}
	if in.asked != maxExported || listed != 1 {
		t.Errorf("%d questions for lengths and %d for names, want %d and 1", in.asked, listed, maxExported)
	}
	w.Refresh = 0
	w.page(t.Context())
	if in.asked != 2*maxExported || listed != 1 {
		t.Errorf("%d questions for lengths and %d for names, want %d and 1", in.asked, listed, 2*maxExported)
	}
}
