package crashes

import (
	"context"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	nodePollInterval = time.Second     // between two reads of a node's state
	nodeTimeout      = 5 * time.Second // limit of one read
)

// nodes finds out which nodes have died. One goroutine watches each node, however many runs wait
// for its verdict. The zero value is ready for use.
type nodes struct {
	mu      sync.Mutex
	watched map[string]*nodeWatch
}

// nodeWatch is the watch of one node, from the first question about it to the verdict.
type nodeWatch struct {
	absent  chan struct{} // closed when the node was absent at a check
	done    chan struct{}
	verdict broker.StartVerdict // set before done is closed
}

// verdict returns the verdict on the starts of a node. It blocks until the node shows a sign of
// life or has left in order (StartCleared), or has shown no sign for AbsentAfter (StartDied: the
// starts count as deaths). It starts a goroutine that watches the node if none runs; that goroutine
// ends with w.fetch. It takes n.mu, but not while it waits. If it has to wait because the node is
// absent, it calls waits once, without n.mu.
//
// Returns StartOpen if ctx or w.fetch ends first.
func (n *nodes) verdict(ctx context.Context, w *Watch, node string, waits func()) broker.StartVerdict {
	n.mu.Lock()
	of := n.watched[node]
	if of == nil {
		of = &nodeWatch{absent: make(chan struct{}), done: make(chan struct{})}
		if n.watched == nil {
			n.watched = make(map[string]*nodeWatch)
		}
		n.watched[node] = of
		w.cfg.Go(func() { n.watch(w, node, of) })
	}
	n.mu.Unlock()
	absent := of.absent
	for {
		select {
		case <-of.done:
			return of.verdict
		case <-ctx.Done():
			return broker.StartOpen
		case <-absent:
			absent = nil
			waits()
		}
	}
}

// watch reads the state of a node repeatedly and blocks until it has a verdict: the node shows a
// sign of life or has left (StartCleared), or has shown none for AbsentAfter without a break
// (StartDied). If w.fetch ends first, the verdict is StartOpen. It then sets of.verdict, closes
// of.done and removes of from n. It closes of.absent when the node is first seen absent. It takes
// n.mu.
//
// A failed read, or a long gap between two reads (for example a frozen process), starts the time
// again.
func (n *nodes) watch(w *Watch, node string, of *nodeWatch) {
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.watched, node)
		close(of.done)
	}()
	gap := min(nodePollInterval, w.cfg.AbsentAfter/4)
	var since, last time.Time
	absent := sync.OnceFunc(func() { close(of.absent) })
	for w.fetch.Err() == nil {
		ctx, cancel := context.WithTimeout(w.fetch, nodeTimeout)
		state, err := w.cfg.Witness.NodeState(ctx, node)
		cancel()
		now := time.Now()
		switch {
		case err != nil:
			since = time.Time{}
		case state != broker.NodeAbsent:
			of.verdict = broker.StartCleared
			return
		case since.IsZero() || now.Sub(last) > 2*(gap+nodeTimeout):
			since = now
			absent()
		case now.Sub(since) >= w.cfg.AbsentAfter:
			of.verdict = broker.StartDied
			return
		}
		last = now
		wake.Sleep(w.fetch, gap)
	}
}
