package endtoend

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// heard holds the events that a listener has received so far.
type heard struct {
	r   *road
	sub events.Subscription
	all []events.Event
}

// hear subscribes on a separate connection to the bus that the producer and the consumer use.
// change may adapt their configurations afterwards.
func hear(t *testing.T, open Open, change func(*producer.Config, *consumer.Config)) *heard {
	t.Helper()
	var listen events.EventBus
	r := newRoad(t, open, func(p *producer.Config, c *consumer.Config) {
		h := open(t)
		p.Events, c.Events, listen = h.Events(t), h.Events(t), h.Events(t)
		for _, bus := range []events.EventBus{p.Events, c.Events, listen} {
			t.Cleanup(func() { _ = bus.Close(context.Background()) })
		}
		if change != nil {
			change(p, c)
		}
	})
	sub, err := listen.Subscribe(r.ctx(), events.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	return &heard{r: r, sub: sub}
}

// until receives events until ok returns true.
func (h *heard) until(what string, ok func() bool) {
	h.r.t.Helper()
	for ctx := h.r.ctx(); !ok(); {
		e, err := h.sub.Receive(ctx)
		if err != nil {
			h.r.t.Fatalf("waiting for %s: %v, after %+v", what, err, h.all)
		}
		h.all = append(h.all, e)
	}
}

// of returns the events of a task at a node, in their order.
func (h *heard) of(id task.ID, node string) (es []events.Event) {
	for _, e := range h.all {
		if e.TaskID == id && e.NodeID == node {
			es = append(es, e)
		}
	}
	return es
}

func (h *heard) count(id task.ID, typ string) (n int) {
	for _, e := range h.all {
		if e.TaskID == id && e.Type == typ {
			n++
		}
	}
	return n
}

// compare checks every field of the events of a task at a node.
//
// Some fields depend on the time, so compare checks them here and then clears them. Times must be
// within this test, in UTC and in order. A handler must have run for at least ran and been in the
// pool for at least as long (S31). A stack must begin as expected.
func (h *heard) compare(id task.ID, node string, begin time.Time, ran time.Duration, want ...events.Event) {
	t := h.r.t
	t.Helper()
	got := h.of(id, node)
	untimed := h.r.h.NoQueues || h.r.h.NoTimes // a retry is not delayed, or not by the broker
	if untimed {
		inAttempts(got)
	}
	last := begin
	for i := range got {
		e := &got[i]
		if e.Time.Location() != time.UTC || e.Time.Before(last) || e.Time.After(time.Now()) {
			t.Errorf("S35: %s at %v, want UTC, between %v and now", e.Type, e.Time, last)
		}
		if !untimed {
			last = e.Time
		}
		if done := e.Type == events.TaskSucceeded || e.Type == events.TaskFailed; done && (e.Runtime < ran || e.Pool < e.Runtime || e.Pool > h.r.h.Patience) {
			t.Errorf("S31: %s after %v, in the pool for %v; it ran for at least %v", e.Type, e.Runtime, e.Pool, ran)
		}
		if e.Stack != "" {
			e.Stack = strings.SplitAfter(e.Stack, "\n")[0]
		}
		e.Time, e.Runtime, e.Pool, e.NodeID, e.TaskID, e.Fields = time.Time{}, 0, 0, "", "", nil
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("S27 to S37: events of %s at %s (-want +got):\n%s", id, node, diff)
	}
}

// inAttempts sorts the events of a task by attempt. If a retry cannot be delayed, it may begin
// before the previous attempt has sent its last event. The order within an attempt stays the same.
func inAttempts(es []events.Event) {
	attempt := make([]int, len(es))
	runs := map[string]int{}
	for i, e := range es {
		switch e.Type {
		case events.TaskReceived:
			attempt[i] = e.Retries
		case events.TaskSent:
			attempt[i] = e.Retries - 1
		case events.TaskSucceeded:
			attempt[i] = len(es)
		default:
			attempt[i] = runs[e.Type]
			runs[e.Type]++
		}
	}
	order := make([]int, len(es))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return attempt[a] - attempt[b] })
	old := slices.Clone(es)
	for i, o := range order {
		es[i] = old[o]
	}
}

// testEvents: the events of a task have the promised fields and order (S27 to S37).
func testEvents(t *testing.T, open Open) {
	h := hear(t, open, func(p *producer.Config, c *consumer.Config) {
		p.Report.HeartbeatEvery, c.Report.HeartbeatEvery = -1, -1
		p.Report.Payloads, c.Report.Payloads = true, true
	})
	r := h.r
	const ran = 5 * time.Millisecond
	// the event of an attempt is sent after the next attempt was published
	delay := 300 * time.Millisecond
	if r.h.NoQueues {
		delay = 0
	}
	handle(r, work, func(ctx context.Context, i int) (int, error) {
		<-time.NewTimer(ran).C
		if req, _ := task.FromContext(ctx); req.Retries == 0 {
			return 0, task.Retry(errBroken, task.After(delay))
		}
		return 10 * i, nil
	})
	handle(r, fail, func(context.Context, string) (int, error) {
		<-time.NewTimer(ran).C
		panic("events")
	})
	long := task.New[string, string]("long")
	handle(r, long, func(_ context.Context, s string) (string, error) { return s, nil })
	begin := time.Now().Truncate(time.Millisecond)
	r.start()
	f := submit(r, work, 7)
	want(r, f, 70)
	g := submit(r, fail, "x")
	wantError(r, g, task.ErrPanic)
	text := strings.Repeat("ä", events.MaxPreview)
	l := submit(r, long, text)
	want(r, l, text)
	h.until("all events", func() bool {
		return h.count(f.ID(), events.TaskSent) == 2 && h.count(f.ID(), events.TaskSucceeded) == 1 &&
			h.count(g.ID(), events.TaskSent) == 1 && h.count(g.ID(), events.TaskFailed) == 1 &&
			h.count(l.ID(), events.TaskSent) == 1 && h.count(l.ID(), events.TaskSucceeded) == 1
	})

	exchange, key := broker.Locate(r.broker, queueName)
	pid := os.Getpid()
	sent := func(name, args string, retries int) events.Event { // S27, S37
		return events.Event{Type: events.TaskSent, Name: name, Args: args, Retries: retries, Queue: queueName, Exchange: exchange, RoutingKey: key}
	}
	received := func(name, args string, retries int) events.Event { // S28, S37
		return events.Event{Type: events.TaskReceived, Name: name, Args: args, Retries: retries, Queue: queueName}
	}
	// S29, and S30: neither name nor arguments
	started := events.Event{Type: events.TaskStarted, PID: pid}
	p, c := r.producer.NodeID(), r.consumer.NodeID()
	h.compare(f.ID(), p, begin, 0, sent("work", "7", 0))
	h.compare(f.ID(), c, begin, ran,
		received("work", "7", 0), started,
		sent("work", "7", 1), // from the consumer that published the retry
		// S32: one event for each attempt
		events.Event{Type: events.TaskFailed, Exception: errBroken.Error(), Retry: true},
		received("work", "7", 1), started,
		events.Event{Type: events.TaskSucceeded, Result: "70"}, // S31
	)
	h.compare(g.ID(), p, begin, 0, sent("fail", "x", 0))
	failures := h.of(g.ID(), c)
	stack := strings.SplitAfter(failures[len(failures)-1].Stack, "\n")[0]
	if stack == "" {
		t.Error("S32: a panic without a stack")
	}
	h.compare(g.ID(), c, begin, ran, received("fail", "x", 0), started,
		// S32: without a retry
		events.Event{Type: events.TaskFailed, Exception: failures[len(failures)-1].Exception, Stack: stack})
	if !strings.Contains(failures[len(failures)-1].Exception, "events") {
		t.Errorf("S32: the exception is %q", failures[len(failures)-1].Exception)
	}
	cut := text[:events.MaxPreview] // S31: a preview of 1 KiB
	h.compare(l.ID(), c, begin, 0, received("long", cut, 0), started, events.Event{Type: events.TaskSucceeded, Result: cut})
	if p == c || slices.Contains([]string{p, c}, "") {
		t.Errorf("S35: the nodes are %q and %q", p, c)
	}
	_ = h.sub.Close(context.Background())
}

// testExpiredEvent: a skipped task has one event that says so, and no event of an attempt (S33).
func testExpiredEvent(t *testing.T, open Open) {
	h := hear(t, open, func(p *producer.Config, c *consumer.Config) {
		p.Report.HeartbeatEvery, c.Report.HeartbeatEvery = -1, -1
	})
	r := h.r
	handle(r, work, func(_ context.Context, i int) (int, error) { return i, nil })
	if r.h.NoTimes { // without times tasks cannot expire, see testExpired
		return
	}
	f := submit(r, work, 1, task.WithExpires(time.Now().Add(-time.Minute)))
	r.start()
	wantError(r, f, task.ErrExpired)
	h.until("task-revoked", func() bool { return h.count(f.ID(), events.TaskRevoked) == 1 })
	es := h.of(f.ID(), r.consumer.NodeID())
	got := es[len(es)-1]
	if diff := cmp.Diff(map[string]any{"terminated": false, "expired": true}, got.Fields); diff != "" || len(es) != 2 {
		t.Errorf("S33: %d events, the last with (-want +got):\n%s", len(es), diff)
	}
	_ = h.sub.Close(context.Background())
}

// testHeartbeats: both sides send events at their start, while they live and at their end (S38 to
// S42).
func testHeartbeats(t *testing.T, open Open) {
	h := hear(t, open, func(p *producer.Config, c *consumer.Config) {
		p.Report.HeartbeatEvery, c.Report.HeartbeatEvery = 10*time.Millisecond, 10*time.Millisecond
		c.Report.HeartbeatFields = func() map[string]any { return map[string]any{"zone": "b", "active": -1} }
	})
	r := h.r
	handle(r, work, func(_ context.Context, i int) (int, error) { return i, nil })
	run := r.start()
	want(r, submit(r, work, 1), 1)
	nodes := map[string]string{r.consumer.NodeID(): events.RoleConsumer, r.producer.NodeID(): events.RoleProducer}
	from := func(node, typ string) (last *events.Event, n int) {
		for i := range h.all {
			if e := &h.all[i]; e.NodeID == node && e.Type == typ {
				last = e
				n++
			}
		}
		return last, n
	}
	h.until("heartbeats that count the task", func() bool {
		for node := range nodes {
			if e, n := from(node, events.WorkerHeartbeat); n < 3 || e.Worker.Processed < 1 {
				return false
			}
		}
		return true
	})
	if err := run.stop(); err != nil {
		t.Fatal(err)
	}
	if err := r.producer.Close(r.ctx()); err != nil {
		t.Fatal(err)
	}
	h.until("worker-offline", func() bool {
		_, c := from(r.consumer.NodeID(), events.WorkerOffline)
		_, p := from(r.producer.NodeID(), events.WorkerOffline)
		return c == 1 && p == 1
	})
	host, _ := os.Hostname() // if that fails, the heartbeats have no host either
	for node, role := range nodes {
		var types []string
		for i := range h.all {
			e := &h.all[i]
			if e.NodeID != node || !slices.Contains(events.WorkerTypes(), e.Type) {
				continue
			}
			if types = append(types, e.Type); e.Worker == nil {
				t.Fatalf("S38: %s says nothing of %s", e.Type, node)
			}
			w := *e.Worker
			if w.Load > 1 || w.Mem > 1 || w.Active < 0 || w.Processed < 0 || w.Processed > 1 || w.Version == "" || w.System == "" {
				t.Errorf("S39: %s of %s: %+v", e.Type, node, w)
			}
			if diff := cmp.Diff([]any{host, role, 10 * time.Millisecond, "swarmiji", ""}, []any{w.Hostname, w.Role, w.Freq, w.Ident, w.Observer}); diff != "" {
				t.Errorf("S38: %s of %s (-want +got):\n%s", e.Type, node, diff)
			}
			wantFields := map[string]any(nil) // S40: its own fields win over the user's
			if e.Type == events.WorkerHeartbeat && role == events.RoleConsumer {
				wantFields = map[string]any{"zone": "b"}
			}
			if diff := cmp.Diff(wantFields, e.Fields); diff != "" {
				t.Errorf("S40: %s of %s (-want +got):\n%s", e.Type, node, diff)
			}
		}
		if n := len(types); types[0] != events.WorkerOnline || types[n-1] != events.WorkerOffline || slices.Contains(types[1:], events.WorkerOnline) {
			t.Errorf("S42: %s sent %v", node, types)
		}
	}
	_ = h.sub.Close(context.Background())
}
