package amqpcontrol_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/task"
)

// request is a task in the replies of Celery's clients.
type request struct {
	ID, Name, Hostname string
	TimeStart          *float64 `json:"time_start"`
	DeliveryInfo       struct {
		RoutingKey string `json:"routing_key"`
	} `json:"delivery_info"`
}

// TestCommandLine runs Celery's own command line against a consumer in Go.
func TestCommandLine(t *testing.T) {
	w := newWorld(t)
	testwait.Until(t, "the consumer to run", func() bool { return w.c.Stats().Running })
	var ok struct{ OK, Error string }
	clear := func() any { ok.OK, ok.Error = "", ""; return &ok }

	if out, status := w.py.run("status", "-t", "2"); status != 0 || !strings.Contains(out, "go@vm: OK") || !strings.Contains(out, "1 node online") {
		t.Errorf("celery status: %d\n%s", status, out)
	}
	if w.inspect(clear(), "ping"); ok.OK != "pong" {
		t.Errorf("ping: %+v", ok)
	}
	var names []string
	if w.inspect(&names, "registered"); !slices.Equal(names, []string{"go.add", "go.fail", "go.hold"}) {
		t.Errorf("registered: %v", names)
	}
	if w.inspect(clear(), "report"); !strings.Contains(ok.OK, "swarmiji:") {
		t.Errorf("report: %+v", ok)
	}
	var conf map[string]any
	if w.inspect(&conf, "conf"); conf["worker_concurrency"] != 4.0 || strings.Contains(conf["broker_url"].(string), "guest") {
		t.Errorf("conf: %v", conf)
	}
	var clock struct{ Clock int64 }
	w.inspect(&clock, "clock")
	first := clock.Clock
	if w.inspect(&clock, "clock"); first < 1 || clock.Clock <= first {
		t.Errorf("the clock is %d, then %d", first, clock.Clock)
	}
	var queues []struct {
		Name     string
		Exchange struct{ Name, Type string }
	}
	if w.inspect(&queues, "active_queues"); len(queues) != 1 || queues[0].Name != "goq" || queues[0].Exchange.Type != "direct" {
		t.Errorf("active_queues: %+v", queues)
	}
	var nothing []any
	if w.inspect(&nothing, "scheduled"); nothing == nil || len(nothing) != 0 {
		t.Errorf("scheduled: %v", nothing)
	}

	// two run, and one waits for its rate limit
	submit(w, goHold, "x", task.WithID("h1"))
	testwait.Until(t, "the first task to run", func() bool { return w.c.Stats().Active == 1 })
	submit(w, goHold, "x", task.WithID("h2"))
	w.control("new rate limit set successfully", "rate_limit", "go.add", "1/h")
	submit(w, goAdd, []int{1, 2}, task.WithID("a1"))
	submit(w, goAdd, []int{1, 2}, task.WithID("a2"))
	testwait.Until(t, "two tasks to run and one to wait", func() bool { s := w.c.Stats(); return s.Active == 2 && s.Reserved == 1 })
	var rs []request
	if w.inspect(&rs, "active"); len(rs) != 2 || rs[0].ID != "h1" || rs[0].Name != "go.hold" || rs[0].Hostname != "go@vm" || rs[0].TimeStart == nil || rs[0].DeliveryInfo.RoutingKey != "goq" {
		t.Errorf("active: %+v", rs)
	}
	if w.inspect(&rs, "reserved"); len(rs) != 1 || rs[0].Name != "go.add" || rs[0].TimeStart != nil {
		t.Errorf("reserved: %+v", rs)
	}
	waits := rs[0].ID
	var found map[string][]any
	if w.inspect(&found, "query_task", "h1", waits, "none"); len(found) != 2 || found["h1"][0] != "active" || found[waits][0] != "reserved" {
		t.Errorf("query_task: %v", found)
	}
	w.control("tasks "+waits+" flagged as revoked", "revoke", waits)
	var ids []string
	if w.inspect(&ids, "revoked"); !slices.Equal(ids, []string{waits}) {
		t.Errorf("revoked: %v", ids)
	}
	w.control("terminate: h1", "terminate", "SIGTERM", "h1")
	select {
	case err := <-w.canceled:
		if !errors.Is(err, task.ErrRevoked) {
			t.Errorf("the context of h1 ended with %v", err)
		}
	case <-testwait.Long(t).Done():
		t.Fatal("the context of h1 has not ended")
	}
	w.release <- struct{}{} // h2
	w.control("rate limit disabled successfully", "rate_limit", "go.add", "0")
	testwait.Until(t, "all tasks to end", func() bool { s := w.c.Stats(); return s.Active+s.Reserved == 0 })

	w.control("unknown task", "rate_limit", "go.none", "10/m")
	w.control("Invalid rate limit string", "rate_limit", "go.add", "often")
	w.control("unknown task", "time_limit", "go.none", "1", "2")
	w.control("its definition", "time_limit", "go.add", "1", "2")
	w.control("pool will grow", "pool_grow", "2")
	var stats struct {
		PID, Uptime   int
		Clock         string
		Totals        map[string]int
		PrefetchCount int `json:"prefetch_count"`
		Broker        map[string]any
		Pool          struct {
			Max int `json:"max-concurrency"`
		}
	}
	if w.inspect(&stats, "stats"); stats.Pool.Max != 6 || stats.PID == 0 || stats.Clock == "" || stats.Totals["started"] != 3 || stats.Broker["transport"] != "amqp" {
		t.Errorf("stats: %+v", stats)
	}
	w.control("pool will shrink", "pool_shrink", "3")
	if w.inspect(&stats, "stats"); stats.Pool.Max != 3 {
		t.Errorf("stats after pool_shrink: %+v", stats)
	}
	w.control("Autoscale not enabled", "autoscale", "4", "1")
	w.control("Pool restarts not enabled", "pool_restart")
	w.control("add consumer goq2", "add_consumer", "goq2")
	if w.inspect(&queues, "active_queues"); len(queues) != 2 {
		t.Errorf("active_queues after add_consumer: %+v", queues)
	}
	w.control("no longer consuming from goq2", "cancel_consumer", "goq2")
	if w.inspect(&queues, "active_queues"); len(queues) != 1 {
		t.Errorf("active_queues after cancel_consumer: %+v", queues)
	}
	w.control("task events already enabled", "enable_events")
	w.control("task events disabled", "disable_events")
	w.control("task events enabled", "enable_events")
	if w.inspect(clear(), "memdump"); !strings.Contains(ok.Error, "NotImplementedError") {
		t.Errorf("memdump: %+v", ok)
	}

	// only addressed nodes answer
	if out, status := w.py.run("inspect", "-t", "1", "-d", "other@vm", "ping"); status == 0 || strings.Contains(out, "go@vm") {
		t.Errorf("ping of another node: %d\n%s", status, out)
	}

	// shutdown has no reply, as in Celery
	w.py.run("control", "-t", "1", "-d", "go@vm", "shutdown")
	select {
	case err := <-w.ended:
		if diff := cmp.Diff(nil, err); diff != "" {
			t.Errorf("Run after shutdown: %v", err)
		}
		w.ended <- nil // for the clean-up
	case <-testwait.Long(t).Done():
		t.Fatal("shutdown does not end the consumer")
	}
	if out, status := w.py.run("status", "-t", "1"); status == 0 {
		t.Errorf("celery status after the end: %s", out)
	}
}
