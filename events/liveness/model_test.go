package liveness_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/liveness"
	"github.com/swarmiji/swarmiji/events/memevents"
)

func contains(err error, s string) bool { return strings.Contains(err.Error(), s) }

// model computes the expected state of an observer in the simplest way, in steps of one second.
type model struct {
	after  time.Duration
	nodes  map[string]*modelNode
	told   []string
	outage []string
}

type modelNode struct {
	online, left bool
	silent, freq time.Duration
	gone         time.Duration
}

func (m *model) hear(typ, id string, freq time.Duration) {
	n := m.nodes[id]
	if typ == events.WorkerOffline {
		if n != nil && n.online {
			n.online, n.left, n.gone = false, true, 0
			m.told = append(m.told, id+" left")
		}
		return
	}
	if n == nil {
		n = &modelNode{}
		m.nodes[id] = n
	}
	if !n.online {
		m.told = append(m.told, id+" online")
	}
	n.online, n.left, n.silent, n.freq = true, false, 0, freq
}

func (m *model) second() {
	ids := m.ids()
	for _, id := range ids {
		n := m.nodes[id]
		if !n.online {
			if n.gone += time.Second; n.gone > time.Hour+m.after/8 {
				delete(m.nodes, id)
			}
			continue
		}
		if n.silent += time.Second; n.silent >= max(m.after, 2*n.freq) {
			n.online, n.gone = false, 0
			m.told = append(m.told, id+" silent")
			m.outage = append(m.outage, id)
		}
	}
}

func (m *model) ids() (ids []string) {
	for id := range m.nodes {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (m *model) states() (ss []string) {
	for _, id := range m.ids() {
		n := m.nodes[id]
		ss = append(ss, state(liveness.Node{ID: id, Online: n.online, Left: n.left}))
	}
	return ss
}

// failure is a tb that panics, so that rapid can try a smaller case.
type failure string

func (failure) Helper()                        {}
func (f failure) Fatal(args ...any)            { panic(failure(fmt.Sprint(args...))) }
func (f failure) Fatalf(s string, args ...any) { panic(failure(fmt.Sprintf(s, args...))) }

// step is an event of a node, or a number of seconds that pass.
type step struct {
	typ, node string
	freq      time.Duration
	seconds   int
}

// TestObserversFollowTheModel shows that two observers with different settings report the same
// states as the model for random events.
func TestObserversFollowTheModel(t *testing.T) {
	event := rapid.Custom(func(t *rapid.T) step {
		return step{
			typ:  rapid.SampledFrom([]string{events.WorkerOnline, events.WorkerHeartbeat, events.WorkerHeartbeat, events.WorkerOffline}).Draw(t, "type"),
			node: rapid.SampledFrom([]string{"n-1", "n-2", "n-3"}).Draw(t, "node"),
			freq: rapid.SampledFrom([]time.Duration{0, 2 * time.Second, 40 * time.Second, 3 * time.Minute}).Draw(t, "freq"),
		}
	})
	pause := rapid.Custom(func(t *rapid.T) step {
		return step{seconds: rapid.OneOf(rapid.IntRange(1, 30), rapid.IntRange(1, 300), rapid.Just(3500)).Draw(t, "seconds")}
	})
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.OneOf(event, pause), 1, 40).Draw(rt, "steps")
		var failed any
		synctest.Test(t, func(*testing.T) { failed = follow(steps) })
		if failed != nil {
			rt.Fatal(failed)
		}
	})
}

// follow runs the steps and returns the failure, or nil.
func follow(steps []step) (failed any) {
	var t failure
	bus := memevents.New(memevents.Config{})
	afters := map[string]time.Duration{"obs-a": 2 * time.Minute, "obs-b": 24 * time.Second}
	observers, models := map[string]*watched{}, map[string]*model{}
	defer func() {
		failed = recover()
		for _, o := range observers {
			_ = o.stop()
		}
		_ = bus.Close(context.Background())
	}()
	sub := listen(t, bus)
	for id, after := range afters {
		observers[id] = observe(t, liveness.Config{Bus: bus, NodeID: id, OfflineAfter: after})
		models[id] = &model{after: after, nodes: map[string]*modelNode{}}
	}
	for _, s := range steps {
		if s.typ != "" {
			publish(t, bus, s.typ, s.node, s.freq)
		}
		for range s.seconds {
			time.Sleep(time.Second)
			for _, m := range models {
				m.second()
			}
		}
		for _, m := range models {
			if s.typ != "" {
				m.hear(s.typ, s.node, s.freq)
			}
		}
		said := outages(t, sub)
		for id, o := range observers {
			models[id].compare(t, id, o, said)
		}
	}
	return nil
}

func (m *model) compare(t tb, id string, o *watched, said []string) {
	// A node that was offline for an hour is removed at the next check; around that time both states
	// are right.
	if !slices.ContainsFunc(m.ids(), func(n string) bool { return !m.nodes[n].online && m.nodes[n].gone >= time.Hour }) {
		want(t, "nodes of "+id, m.states(), states(o))
	}
	want(t, "changes told by "+id, m.told, o.heard())
	var mine []string
	for _, s := range said {
		if n, by, _ := strings.Cut(s, " by "); by == id {
			mine = append(mine, n)
		}
	}
	want(t, "outages told of by "+id, m.outage, mine)
	m.outage = nil
}
