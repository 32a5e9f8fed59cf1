package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/celery/control"
	node "github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quiet returns a Logger that writes nothing.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// memory is a transport within the process. Publish calls the listeners at once.
type memory struct {
	mu   sync.Mutex
	open map[*mailbox]struct{}
	sent []control.Message
}

type mailbox struct {
	m      *memory
	box    control.Mailbox
	handle func(m *control.Message)
	busy   sync.Mutex // while handle runs
}

func newMemory() *memory { return &memory{open: make(map[*mailbox]struct{})} }

func (t *memory) Publish(_ context.Context, m *control.Message) error {
	t.mu.Lock()
	t.sent = append(t.sent, *m)
	open := slices.Collect(maps.Keys(t.open))
	t.mu.Unlock()
	for _, b := range open {
		if b.box.Exchange == m.Exchange && (m.Exchange != control.Replies || slices.Contains(b.box.Keys, m.Key)) {
			b.busy.Lock()
			b.handle(m)
			b.busy.Unlock()
		}
	}
	return nil
}

func (t *memory) Listen(_ context.Context, box control.Mailbox, handle func(m *control.Message)) (control.Listener, error) {
	b := &mailbox{m: t, box: box, handle: handle}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[b] = struct{}{}
	return b, nil
}

func (t *memory) About() map[string]any {
	return map[string]any{"transport": "memory", "hostname": "here", "port": 0, "virtual_host": "/"}
}

func (t *memory) Close(context.Context) error { return nil }

func (b *mailbox) Close(context.Context) error {
	b.busy.Lock()
	defer b.busy.Unlock()
	b.m.mu.Lock()
	defer b.m.mu.Unlock()
	delete(b.m.open, b)
	return nil
}

// taken returns the messages that were published to an exchange, and forgets them.
func (t *memory) taken(x control.Exchange) (ms []control.Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range t.sent {
		if m.Exchange == x {
			ms = append(ms, m)
		}
	}
	t.sent = slices.DeleteFunc(t.sent, func(m control.Message) bool { return m.Exchange == x })
	return ms
}

// fakeNode is a node that notes the calls that change it.
type fakeNode struct {
	queues  []string
	workers int
	calls   []string
	revoked []task.ID
}

func (n *fakeNode) note(call string, args ...any) error {
	data, err := json.Marshal(args)
	n.calls = append(n.calls, call+string(data))
	return err
}

func (n *fakeNode) NodeID() string   { return "go" }
func (n *fakeNode) Queues() []string { return n.queues }
func (n *fakeNode) Stats() node.Stats {
	return node.Stats{Queues: []node.QueueStats{{Name: "q", Workers: n.workers, Prefetch: 8}}, Totals: map[string]uint64{"started": 3}}
}
func (n *fakeNode) Active() []node.Task {
	return []node.Task{{ID: "a1", Name: "go.add", Queue: "q", Attempt: 1}}
}
func (n *fakeNode) Reserved() []node.Task {
	return []node.Task{{ID: "r1", Name: "go.add", Queue: "q", Attempt: 1}}
}
func (n *fakeNode) Names() []string                              { return []string{"go.mul", "go.add", "celery.ping"} }
func (n *fakeNode) Scale(queue string, workers int) error        { return n.note("scale", queue, workers) }
func (n *fakeNode) Pause(queues ...string) error                 { return n.note("pause", queues) }
func (n *fakeNode) Resume(queues ...string) error                { return n.note("resume", queues) }
func (n *fakeNode) SetRateLimit(name, rate string) error         { return n.note("rate", name, rate) }
func (n *fakeNode) Stop()                                        { _ = n.note("stop") }
func (n *fakeNode) Kill()                                        { _ = n.note("kill") }
func (n *fakeNode) LeaveQueue(_ context.Context, q string) error { return n.note("leave", q) }

func (n *fakeNode) ServeQueue(_ context.Context, name string, workers int) error {
	if name == "bad" {
		return errors.New("no such queue")
	}
	return n.note("serve", name, workers)
}

func (n *fakeNode) Revoke(_ context.Context, terminate bool, ids ...task.ID) error {
	n.revoked = append(n.revoked, ids...)
	return n.note("revoke", terminate, len(ids))
}

// served starts a service for n over a transport in memory.
func served(t testing.TB, n node.Node, c control.ServiceConfig) (*memory, *control.Bus, *control.Service) {
	t.Helper()
	tr := newMemory()
	bus, err := control.NewBus(control.Config{Transport: tr, Host: "vm"})
	if err != nil {
		t.Fatal(err)
	}
	c.Bus, c.Logger = bus, quiet()
	s, err := control.NewService(c)
	if err != nil {
		t.Fatal(err)
	}
	serve, end := s.Start(t.Context(), n)
	serve()
	t.Cleanup(func() {
		end()
		if err := bus.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return tr, bus, s
}
