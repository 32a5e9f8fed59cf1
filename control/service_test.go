package control_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/swarmiji/swarmiji/control"
)

// recording is a Service that notes its calls.
type recording struct {
	mu    sync.Mutex
	calls []string
}

func (r *recording) note(call string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call)
}

func (r *recording) Start(_ context.Context, n control.Node) (serve, end func()) {
	r.note("start " + n.NodeID())
	return func() { r.note("serve") }, func() { r.note("end") }
}

// TestServices shows that all services start, serve and end, with and without a server.
func TestServices(t *testing.T) {
	one, two := &recording{}, &recording{}
	serve, end := control.Start(t.Context(), &fake{id: "n1"}, nil, []control.Service{one, two})
	want := []string{"start n1"}
	for _, s := range []*recording{one, two} {
		if !slices.Equal(s.calls, want) {
			t.Errorf("calls after Start: %q", s.calls)
		}
	}
	serve()
	end()
	want = append(want, "serve", "end")
	for _, s := range []*recording{one, two} {
		if !slices.Equal(s.calls, want) {
			t.Errorf("calls at the end: %q", s.calls)
		}
	}
	var none *control.Server
	if none.Counts() != (control.Counts{}) {
		t.Error("a nil server has counts")
	}
}
