package inspect

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/liveness"
	"github.com/swarmiji/swarmiji/inspect/internal/patience"
	"github.com/swarmiji/swarmiji/router"
)

// noAnswer is the text of errors of the class ErrNoConsumer.
const noAnswer = "no consumer answered; a consumer answers only if its program sets open.Options.Control and consumer.Config.Control, with the same keys, if any"

// census holds what consumers and producers say of themselves: their heartbeats, and the answers of
// consumers to a question. It is immutable.
type census struct {
	began, at time.Time // the question was sent after began, and all answers came before at
	nodes     map[string]*Worker
	late      map[string]time.Time // consumers whose heartbeats have stopped, with the last one
	replies   []control.Reply
	err       error // why the consumers could not be asked; nil: they were
	refused   uint64
}

// census asks the consumers, or returns answers that are younger than a second. With more than a
// hundred consumers they may be older, so that all of them give up to a hundred answers a second.
// Concurrent callers share one question. It returns an error only if ctx ends, or neither Events
// nor Control is given.
func (l *Local) census(ctx context.Context) (*census, error) {
	if l.cfg.Events == nil && l.cfg.Control == nil {
		return nil, missing("consumers", needEvents)
	}
	select {
	case l.asking <- struct{}{}:
		defer func() { <-l.asking }()
	case <-ctx.Done():
		return nil, wrapped(ctx.Err())
	}
	l.mu.Lock()
	c, forgotten := l.last, l.forgotten
	l.mu.Unlock()
	if c != nil && time.Since(c.at) < max(fresh, time.Duration(len(c.replies))*eachAnswer) {
		return c, nil
	}
	c = l.ask(ctx)
	if err := ctx.Err(); err != nil {
		return nil, wrapped(err)
	}
	l.mu.Lock()
	if l.forgotten == forgotten { // otherwise c may be of before a change
		l.last = c
	}
	l.mu.Unlock()
	return c, nil
}

// forget makes the next call of census ask again.
func (l *Local) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.forgotten = nil, l.forgotten+1
}

// ask asks the consumers for their sizes, and listens for heartbeats meanwhile.
func (l *Local) ask(ctx context.Context) *census {
	c := &census{began: time.Now(), nodes: make(map[string]*Worker), late: make(map[string]time.Time)}
	listening, enough := context.WithTimeout(ctx, l.cfg.Listen)
	defer enough()
	known, heard := l.listen(listening)
	if l.cfg.Control == nil {
		c.err = missing("consumers", needControl)
		if known == nil {
			<-listening.Done() // heartbeats are all that comes
		}
	} else {
		wait := control.Wait{Replies: l.cfg.Replies, Timeout: l.cfg.Listen}
		if wait.Replies == 0 {
			wait = l.patience(known, nil, nil)
		}
		before := l.cfg.Control.Refused()
		c.replies, c.err = l.cfg.Control.Send(ctx, control.Command{Do: control.DoStats}, wait)
		c.refused = l.cfg.Control.Refused() - before
		if errors.Is(c.err, control.ErrMissing) {
			c.err = nil
		}
	}
	enough()
	for _, n := range heard() {
		c.hear(&n)
	}
	for i := range c.replies {
		c.note(&c.replies[i])
	}
	l.conclude(c, known)
	c.at = time.Now()
	return c
}

// conclude notes which consumers answered, and which are gone.
func (l *Local) conclude(c *census, known []liveness.Node) {
	if c.err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	answers := func(id string) bool { return c.nodes[id] != nil && c.nodes[id].Answers }
	l.shown.Asked(known, answers, time.Since(c.began) >= l.cfg.Listen)
	for id, heard := range c.late {
		c.nodes[id].Offline = !answers(id) && l.shown.Gone(id, heard)
	}
}

// listen returns the nodes that Run knows, and nil if it does not run. heard waits for the end of
// ctx unless Run runs, and returns the nodes.
func (l *Local) listen(ctx context.Context) (known []liveness.Node, heard func() []liveness.Node) {
	l.mu.Lock()
	observer := l.watch
	l.mu.Unlock()
	if observer != nil {
		return observer.Nodes(), observer.Nodes
	}
	if l.cfg.Events == nil {
		return nil, func() []liveness.Node { return nil }
	}
	observer, err := liveness.New(liveness.Config{Bus: l.cfg.Events, Silent: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil { // impossible: the bus is set
		return nil, func() []liveness.Node { return nil }
	}
	ended := make(chan error, 1)
	go func() { ended <- observer.Run(ctx) }()
	return nil, func() []liveness.Node {
		if err := <-ended; err != nil {
			l.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "inspect: listening for heartbeats failed", slog.Any("error", err))
		}
		return observer.Nodes()
	}
}

// noneKnown limits the wait for answers of consumers if Run knows none of them.
const noneKnown = 250 * time.Millisecond

// patience returns how long a command for these nodes and queues waits for answers, and for how
// many: those of the consumers that Run knows.
func (l *Local) patience(known []liveness.Node, nodes, queues []string) control.Wait {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := control.Wait{Replies: l.shown.Expected(known, nodes, queues), Timeout: l.cfg.Listen}
	if w.Replies == 0 && l.watch != nil && time.Since(l.since) > l.cfg.Listen {
		w.Timeout = min(w.Timeout, noneKnown)
	}
	return w
}

// knownNodes returns the nodes that Run knows, and nil if it does not run.
func (l *Local) knownNodes() []liveness.Node {
	l.mu.Lock()
	observer := l.watch
	l.mu.Unlock()
	if observer == nil {
		return nil
	}
	return observer.Nodes()
}

// hear adds a node from its heartbeats.
func (c *census) hear(n *liveness.Node) {
	w := &n.Worker
	if patience.Late(n) {
		c.late[n.ID] = n.Heard
	}
	c.nodes[n.ID] = &Worker{
		Node: n.ID, Offline: !n.Online, Role: w.Role, Host: w.Hostname, Active: w.Active, Reserved: w.Reserved, Stuck: w.Stuck,
		Processed: w.Processed, Version: w.Version, Heartbeat: n.Told, Load: share(w.Load), Memory: share(w.Mem), Queues: slices.Clone(w.Queues),
	}
}

// share returns nil for a negative, unknown share.
func share(f float64) *float64 {
	if f < 0 {
		return nil
	}
	return &f
}

// note adds the answer of a consumer.
func (c *census) note(r *control.Reply) {
	n := c.nodes[r.Node]
	if n == nil {
		n = &Worker{Node: r.Node, Role: events.RoleConsumer}
		c.nodes[r.Node] = n
	}
	n.Answers, n.Offline, n.Queues = true, false, r.Queues
	if r.Stats == nil {
		return
	}
	n.Active, n.Reserved, n.Stuck, n.Totals, n.Stopping = 0, 0, 0, r.Stats.Totals, r.Stats.Stopping
	for _, q := range r.Stats.Queues {
		n.Active, n.Reserved, n.Stuck = n.Active+q.Active, n.Reserved+q.Reserved, n.Stuck+q.Stuck
		n.Serves = append(n.Serves, ServedQueue(q))
	}
	n.Processed = max(n.Processed, int64(r.Stats.Totals["succeeded"]+r.Stats.Totals["failed"]+r.Stats.Totals["retried"]))
}

// consumers calls fn for each consumer that runs and serves a queue. served is nil if it does not
// answer.
func (c *census) consumers(queue string, fn func(w *Worker, served *ServedQueue)) {
	for _, w := range c.nodes {
		if w.Offline || w.Role != events.RoleConsumer || !slices.Contains(w.Queues, queue) {
			continue
		}
		i := slices.IndexFunc(w.Serves, func(s ServedQueue) bool { return s.Name == queue })
		if i < 0 {
			fn(w, nil)
			continue
		}
		fn(w, &w.Serves[i])
	}
}

// queues returns the names of the queues of running consumers.
func (c *census) queues() []string {
	seen := make(map[string]bool)
	for _, w := range c.nodes {
		if !w.Offline && w.Role == events.RoleConsumer {
			for _, q := range w.Queues {
				seen[q] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// answering returns the nodes of the consumers that answer. With queues it leaves out those that
// serve none of them.
func (c *census) answering(queues []string) []string {
	var nodes []string
	for i := range c.replies {
		if r := &c.replies[i]; len(queues) == 0 || slices.ContainsFunc(r.Queues, func(q string) bool { return slices.Contains(queues, q) }) {
			nodes = append(nodes, r.Node)
		}
	}
	return nodes
}

// quiet returns the number of consumers that send heartbeats and do not answer.
func (c *census) quiet() (n int) {
	for _, w := range c.nodes {
		if !w.Offline && !w.Answers && w.Role == events.RoleConsumer {
			n++
		}
	}
	return n
}

// sorted returns the nodes in the order of their ids.
func (c *census) sorted() []Worker {
	all := make([]Worker, 0, len(c.nodes))
	for _, w := range c.nodes {
		all = append(all, *w)
	}
	slices.SortFunc(all, func(a, b Worker) int { return cmp.Compare(a.Node, b.Node) })
	return all
}

// names returns the known queues, sorted: those of the broker if it can list them, of the
// configuration, of the consumers, and "default". c may be nil. Returns the error of the broker.
func (l *Local) names(ctx context.Context, c *census) ([]string, error) {
	all := append(slices.Clone(l.cfg.Queues), router.DefaultQueue)
	if c != nil {
		all = append(all, c.queues()...)
	}
	if l.cfg.Broker != nil {
		queues, err := broker.Queues(ctx, l.cfg.Broker)
		if err != nil && !errors.Is(err, broker.ErrUnsupported) {
			return nil, err
		}
		all = append(all, queues...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
