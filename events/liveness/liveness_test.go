package liveness_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/liveness"
	"github.com/swarmiji/swarmiji/events/memevents"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tb is the common part of testing.T and rapid.T.
type tb interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// watched is a running observer with the changes that it reported.
type watched struct {
	*liveness.Observer
	stop func() error

	mu   sync.Mutex
	told []string
}

func (w *watched) note(s string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, s)
}

func (w *watched) heard() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.told...)
}

// observe runs an observer and waits until it has subscribed.
func observe(t tb, c liveness.Config) *watched {
	t.Helper()
	w := &watched{}
	if c.OnChange == nil {
		c.OnChange = func(n liveness.Node) { w.note(state(n)) }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	var err error
	if w.Observer, err = liveness.New(c); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	w.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	synctest.Wait()
	return w
}

func state(n liveness.Node) string {
	switch {
	case n.Online:
		return n.ID + " online"
	case n.Left:
		return n.ID + " left"
	}
	return n.ID + " silent"
}

func states(o *watched) (ss []string) {
	for _, n := range o.Nodes() {
		ss = append(ss, state(n))
	}
	return ss
}

func publish(t tb, bus events.EventBus, typ, node string, freq time.Duration) {
	t.Helper()
	w := &events.Worker{Hostname: "host of " + node, Role: events.RoleConsumer, Freq: freq}
	if err := bus.Publish(context.Background(), events.Event{Type: typ, NodeID: node, Time: time.Now(), Worker: w}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func want(t tb, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

// outages returns the worker-offline events that observers have sent.
func outages(t tb, sub events.Subscription) (found []string) {
	t.Helper()
	synctest.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for {
		e, err := sub.Receive(ctx)
		if err != nil {
			return found
		}
		if e.Worker.Observer != "" {
			found = append(found, e.NodeID+" by "+e.Worker.Observer)
		}
	}
}

func listen(t tb, bus events.EventBus) events.Subscription {
	t.Helper()
	sub, err := bus.Subscribe(context.Background(), events.Filter{Types: []string{events.WorkerOffline}})
	if err != nil {
		t.Fatal(err)
	}
	return sub
}

// TestOutages shows that a node is offline after 2 minutes of silence, or twice its announced
// heartbeat interval. Every observer reports each outage once, and a heartbeat makes the node
// online again (S39, S41).
func TestOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memevents.New(memevents.Config{})
		sub := listen(t, bus)
		a, b := observe(t, liveness.Config{Bus: bus, NodeID: "obs-a"}), observe(t, liveness.Config{Bus: bus, NodeID: "obs-b", OfflineAfter: time.Minute})
		quiet := observe(t, liveness.Config{Bus: bus, NodeID: "obs-c", Silent: true})
		publish(t, bus, events.WorkerOnline, "n-1", 2*time.Second)
		publish(t, bus, events.WorkerOnline, "rare", 4*time.Minute)
		publish(t, bus, events.WorkerHeartbeat, "forever", 24*time.Hour)
		want(t, "at first", []string{"forever online", "n-1 online", "rare online"}, states(a))
		for _, step := range []struct {
			after       time.Duration
			a, b, calls []string
		}{
			{time.Minute - 1, []string{"forever online", "n-1 online", "rare online"}, []string{"forever online", "n-1 online", "rare online"}, nil},
			{1, []string{"forever online", "n-1 online", "rare online"}, []string{"forever online", "n-1 silent", "rare online"}, []string{"n-1 by obs-b"}},
			{time.Minute - 1, []string{"forever online", "n-1 online", "rare online"}, []string{"forever online", "n-1 silent", "rare online"}, nil},
			{1, []string{"forever online", "n-1 silent", "rare online"}, []string{"forever online", "n-1 silent", "rare online"}, []string{"n-1 by obs-a"}},
			{6*time.Minute - 1, []string{"forever online", "n-1 silent", "rare online"}, []string{"forever online", "n-1 silent", "rare online"}, nil},
			{1, []string{"forever online", "n-1 silent", "rare silent"}, []string{"forever online", "n-1 silent", "rare silent"}, []string{"rare by obs-a", "rare by obs-b"}},
		} {
			time.Sleep(step.after)
			synctest.Wait()
			want(t, "a", step.a, states(a))
			want(t, "b", step.b, states(b))
			got := outages(t, sub)
			if len(got) == 2 && got[0] > got[1] {
				got[0], got[1] = got[1], got[0]
			}
			want(t, "told of", step.calls, got)
		}
		publish(t, bus, events.WorkerHeartbeat, "n-1", 2*time.Second)
		want(t, "again", []string{"forever online", "n-1 online", "rare silent"}, states(b))
		time.Sleep(2 * time.Minute)
		want(t, "the second outage", []string{"n-1 by obs-b", "n-1 by obs-a"}, outages(t, sub))
		want(t, "calls", []string{"n-1 online", "rare online", "forever online", "n-1 silent", "rare silent", "n-1 online", "n-1 silent"}, a.heard())
		want(t, "calls of who sends none", a.heard(), quiet.heard())
		time.Sleep(2*time.Hour - 10*time.Minute) // an announced interval counts up to one hour
		synctest.Wait()
		want(t, "who wants to be silent for ever", "forever silent", state(a.Nodes()[0]))
		for _, o := range []*watched{a, b, quiet} {
			if err := o.stop(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestLeaving shows that a node that announces its end has no outage, and that reports of other
// observers do not count.
func TestLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memevents.New(memevents.Config{})
		sub := listen(t, bus)
		o := observe(t, liveness.Config{Bus: bus, NodeID: "obs"})
		defer o.stop()
		publish(t, bus, events.WorkerOnline, "n-1", time.Second)
		if err := bus.Publish(t.Context(), events.Event{Type: events.WorkerOffline, NodeID: "n-1", Worker: &events.Worker{Observer: "liar"}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		want(t, "after another's word", []string{"n-1 online"}, states(o))
		publish(t, bus, events.WorkerOffline, "n-1", time.Second)
		publish(t, bus, events.WorkerOffline, "n-1", time.Second)
		publish(t, bus, events.WorkerOffline, "unknown", time.Second)
		want(t, "after its own word", []string{"n-1 left"}, states(o))
		time.Sleep(10 * time.Minute)
		want(t, "outages", []string{"n-1 by liar"}, outages(t, sub))
		publish(t, bus, events.WorkerOnline, "n-1", time.Second)
		want(t, "changes", []string{"n-1 online", "n-1 left", "n-1 online"}, o.heard())
		time.Sleep(3 * time.Hour)
		want(t, "long after", 0, len(states(o)))
	})
}

// TestWhatANodeSays shows that Nodes holds the newest data of a node, and that the node's clock has
// no influence.
func TestWhatANodeSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memevents.New(memevents.Config{})
		o := observe(t, liveness.Config{Bus: bus})
		defer o.stop()
		for i, clock := range []time.Time{time.Now().Add(-1000 * time.Hour), time.Now().Add(1000 * time.Hour), {}} {
			time.Sleep(time.Minute)
			e := events.Event{
				Type: events.WorkerHeartbeat, NodeID: "n-1", Time: clock, Fields: map[string]any{"beat": i},
				Worker: &events.Worker{Hostname: "h", Freq: time.Minute, Active: i, Processed: int64(100 * i), Load: 0.5, Mem: 0.25},
			}
			if err := bus.Publish(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			got := o.Nodes()[0]
			want(t, "node", liveness.Node{
				ID: "n-1", Online: true, Since: got.Since, Heard: time.Now(), Told: clock.UTC(), Worker: *e.Worker, Fields: map[string]any{"beat": float64(i)},
			}, got)
			if since := time.Since(got.Since); since != time.Duration(i)*time.Minute {
				t.Errorf("online for %v", since)
			}
		}
	})
}

// TestNodesAreBounded shows that a new node replaces an offline one but never an online one, and
// that memory is limited while OnChange hangs.
func TestNodesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memevents.New(memevents.Config{})
		o := observe(t, liveness.Config{Bus: bus, MaxNodes: 3})
		defer o.stop()
		for i, n := range []string{"a", "b", "c", "d"} {
			publish(t, bus, events.WorkerOnline, n, 0)
			if i < 2 {
				time.Sleep(time.Second)
				publish(t, bus, events.WorkerOffline, n, 0)
			}
		}
		want(t, "nodes", []string{"b left", "c online", "d online"}, states(o))
		publish(t, bus, events.WorkerOnline, "e", 0)
		publish(t, bus, events.WorkerOnline, "f", 0)
		want(t, "nodes", []string{"c online", "d online", "e online"}, states(o))
		want(t, "refused", uint64(1), o.Refused())
	})
}

// TestAPauseIsNoOutage shows that an observer that was suspended reports no outages for that time.
func TestAPauseIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memevents.New(memevents.Config{})
		sub := listen(t, bus)
		w := &watched{}
		o := observe(t, liveness.Config{Bus: bus, NodeID: "obs", OnChange: func(n liveness.Node) {
			if w.note(state(n)); n.ID == "slow" {
				time.Sleep(10 * time.Minute)
				panic("and then this")
			}
		}})
		defer o.stop()
		publish(t, bus, events.WorkerOnline, "n-1", time.Second)
		publish(t, bus, events.WorkerOnline, "slow", time.Second)
		time.Sleep(time.Minute)
		publish(t, bus, events.WorkerOffline, "n-1", time.Second)
		// the node came back within the pause: no change
		publish(t, bus, events.WorkerOnline, "n-1", time.Second)
		time.Sleep(10*time.Minute + 30*time.Second)
		want(t, "after the pause", []string(nil), outages(t, sub))
		time.Sleep(2 * time.Minute)
		want(t, "silent all the same", []string{"n-1 by obs", "slow by obs"}, outages(t, sub))
		want(t, "told", []string{"n-1 online", "slow online", "n-1 silent", "slow silent"}, w.heard())
		time.Sleep(11 * time.Minute)
	})
}

// troubledBus cannot be reached at first, and later its Publish blocks.
type troubledBus struct {
	events.EventBus
	until   time.Time
	release chan struct{}
}

func (b troubledBus) Subscribe(ctx context.Context, f events.Filter) (events.Subscription, error) {
	if time.Now().Before(b.until) {
		return nil, fmt.Errorf("no route: %w", events.ErrUnavailable)
	}
	return b.EventBus.Subscribe(ctx, f)
}

func (b troubledBus) Publish(context.Context, events.Event) error {
	<-b.release
	return nil
}

func TestBusInTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memevents.New(memevents.Config{})
		troubled := troubledBus{EventBus: bus, until: time.Now().Add(time.Minute), release: make(chan struct{})}
		var log bytes.Buffer
		o := observe(t, liveness.Config{Bus: troubled, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := strings.Count(log.String(), "cannot subscribe"); n != 1 {
			t.Errorf("%d lines about one interruption of the bus", n)
		}
		for _, n := range []string{"a", "b", "c"} {
			publish(t, bus, events.WorkerOnline, n, time.Second)
			time.Sleep(time.Second)
		}
		time.Sleep(2 * time.Minute)
		want(t, "nodes, though the bus takes no event", []string{"a silent", "b silent", "c silent"}, states(o))
		if err := o.stop(); err != nil {
			t.Error(err)
		}
		close(troubled.release)
		synctest.Wait()
	})
}

func TestRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memevents.New(memevents.Config{})
		o := observe(t, liveness.Config{Bus: bus})
		if err := o.Run(t.Context()); !errors.Is(err, liveness.ErrRunning) {
			t.Errorf("a second Run: %v", err)
		}
		if err := bus.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := o.stop(); !errors.Is(err, events.ErrClosed) {
			t.Errorf("Run on a closed bus: %v", err)
		}
		o = observe(t, liveness.Config{Bus: bus})
		if err := o.stop(); !errors.Is(err, events.ErrClosed) {
			t.Errorf("Run on a bus closed before: %v", err)
		}
		far := observe(t, liveness.Config{Bus: troubledBus{until: time.Now().Add(time.Hour)}})
		time.Sleep(time.Second)
		if err := far.stop(); err != nil {
			t.Errorf("Run that never reached its bus: %v", err)
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	_, err := liveness.New(liveness.Config{OfflineAfter: -1, ForgetAfter: -1, MaxNodes: -1})
	for _, problem := range []string{"Bus is not set", "OfflineAfter", "ForgetAfter", "MaxNodes"} {
		if err == nil || !contains(err, problem) {
			t.Errorf("%v does not name %s", err, problem)
		}
	}
}
