package consumer

import (
	"context"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	nodeLook    = time.Second     // between two looks at a node
	nodeTimeout = 5 * time.Second // of one look
)

// nodes tells which nodes have died. Each node is watched by one goroutine, however many runs wait
// for the verdict. The zero value is ready.
type nodes struct {
	mu      sync.Mutex
	watched map[string]*watch
}

type watch struct {
	done    chan struct{}
	verdict broker.StartVerdict // set before done is closed
}

// judge returns the verdict on the starts of a node. StartOpen: ctx or the fetching has ended.
func (n *nodes) judge(ctx, fetch context.Context, c *Consumer, node string) broker.StartVerdict {
	n.mu.Lock()
	w := n.watched[node]
	if w == nil {
		w = &watch{done: make(chan struct{})}
		if n.watched == nil {
			n.watched = make(map[string]*watch)
		}
		n.watched[node] = w
		c.settling.Go(func() { n.watch(fetch, c, node, w) })
	}
	n.mu.Unlock()
	select {
	case <-w.done:
		return w.verdict
	case <-ctx.Done():
		return broker.StartOpen
	}
}

// watch looks at a node until it shows a sign of life, or none for AbsentAfter. A look without an answer, and a gap between two
// looks such as this process being frozen, begin the time anew: what nobody saw says nothing.
func (n *nodes) watch(fetch context.Context, c *Consumer, node string, w *watch) {
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.watched, node)
		close(w.done)
	}()
	gap := min(nodeLook, c.cfg.Tuning.AbsentAfter/4)
	var since, last time.Time
	for fetch.Err() == nil {
		ctx, cancel := context.WithTimeout(fetch, nodeTimeout)
		state, err := c.witness.NodeState(ctx, node)
		cancel()
		now := time.Now()
		switch {
		case err != nil:
			since = time.Time{}
		case state != broker.NodeAbsent:
			w.verdict = broker.StartCleared
			return
		case since.IsZero() || now.Sub(last) > 2*(gap+nodeTimeout):
			since = now
		case now.Sub(since) >= c.cfg.Tuning.AbsentAfter:
			w.verdict = broker.StartDied
			return
		}
		last = now
		wake.Sleep(fetch, gap)
	}
}
