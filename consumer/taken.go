package consumer

import (
	"sync"

	"github.com/swarmiji/swarmiji/broker"
)

// maxTaken bounds how many messages taken remembers.
const maxTaken = 10_000

// taken remembers the messages that the broker took back from this process while it ran or settled them. When they come to
// it again it knows that they did not end it. The oldest are forgotten first. The zero value is ready.
type taken struct {
	mu    sync.Mutex
	set   map[takenKey]struct{}
	order []takenKey
}

type takenKey struct {
	id         string
	generation int
}

func (t *taken) add(m *broker.Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := takenKey{m.ID, m.Generation}
	if _, known := t.set[k]; known {
		return
	}
	if t.set == nil {
		t.set = make(map[takenKey]struct{})
	}
	if len(t.order) == maxTaken {
		delete(t.set, t.order[0])
		t.order = t.order[1:]
	}
	t.set[k] = struct{}{}
	t.order = append(t.order, k)
}

// has reports whether m was taken back. It may come more than once, so it stays known.
func (t *taken) has(m *broker.Message) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, known := t.set[takenKey{m.ID, m.Generation}]
	return known
}
