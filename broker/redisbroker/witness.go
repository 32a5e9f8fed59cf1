package redisbroker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/messagecode"
	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	// noteRetention is the retention of the notes of a message, from the last note on, and of a node's
	// record that it left.
	noteRetention = 24 * time.Hour
	// nodeTTL is the expiry of a node's key. The key is renewed at each nodeBeat, or after nodeRetry
	// if that failed. A node that does not renew it for nodeSilence is absent. The key alone does not
	// prove that the process is alive, since it may have died after the last renewal.
	nodeTTL     = 10 * time.Second
	nodeBeat    = time.Second
	nodeRetry   = 500 * time.Millisecond
	nodeSilence = 4 * time.Second
	nodePoll    = 100 * time.Millisecond // pause between two reads of the key

	nodeHere = "here"
	nodeLeft = "left"
)

// nodes holds the nodes that have noted a start through a Broker and have not left.
type nodes struct {
	mu      sync.Mutex
	seen    map[string]time.Time // when the last answered sign of life was sent
	renewed bool                 // a goroutine renews them
}

// NoteStart implements [broker.Witness]. It writes a sign of life of s.Node if the last one is
// older than 5 s, and renews it from then on. Then it stores the note and returns the earlier ones.
// It waits for the server.
//
// It does not wait for replicas, even with Config.WaitReplicas: if a failover loses a note, one
// crash is not counted. A server whose memory is full still accepts notes. Returns ErrMalformed if
// s or the queue name is not valid, ErrClosed after Close, an error for a damaged stored note.
func (b *Broker) NoteStart(ctx context.Context, queue string, s broker.Start) ([]broker.Start, error) {
	key, err := b.noteKey(queue, s)
	if err != nil {
		return nil, err
	}
	if err := b.makePresent(ctx, s.Node); err != nil {
		return nil, wrap(err, "note a start in", queue)
	}
	v, err := b.conn.Eval(ctx, b.scripts.note.Script, []string{key},
		s.Nonce, formatNote(s), broker.MaxStarts, int64(noteRetention/time.Second))
	if err != nil {
		return nil, wrap(err, "note a start in", queue)
	}
	answer, ok := v.([]any)
	if !ok {
		return nil, wrap(errAnswer, "note a start in", queue)
	}
	earlier := make([]broker.Start, len(answer))
	for i := range answer {
		earlier[i] = broker.Start{ID: s.ID, Generation: s.Generation}
		if err := parseNote(text(answer, i), &earlier[i]); err != nil {
			return nil, wrap(err, "note a start in", queue)
		}
	}
	return earlier, nil
}

// JudgeStart implements [broker.Witness]. It changes the verdict of the stored note and does
// nothing if the note does not exist. It waits for the server. Returns ErrMalformed if s or the
// queue name is not valid, ErrClosed after Close.
func (b *Broker) JudgeStart(ctx context.Context, queue string, s broker.Start) error {
	key, err := b.noteKey(queue, s)
	if err != nil {
		return err
	}
	_, err = b.conn.Eval(ctx, b.scripts.judge.Script, []string{key}, s.Nonce, int(s.Verdict))
	return wrap(err, "judge a start in", queue)
}

// noteKey returns the key of the notes of the message of s. Returns ErrMalformed if s or the queue
// name is not valid, ErrClosed after Close.
func (b *Broker) noteKey(queue string, s broker.Start) (string, error) {
	q, err := b.open(queue)
	if err != nil {
		return "", err
	}
	err = s.Check()
	if err == nil && (!messagecode.ValidID(s.ID) || s.Generation >= math.MaxInt32) {
		err = fmt.Errorf("%w: a message cannot have the id %.128q and generation %d", broker.ErrMalformed, s.ID, s.Generation)
	}
	if err == nil && (s.Verdict < 0 || s.Verdict > 9) {
		err = fmt.Errorf("%w: verdict %d", broker.ErrMalformed, s.Verdict)
	}
	return q.names.notes(keyOf(s.ID, s.Generation)), wrap(err, "notes of", queue)
}

// formatNote returns the stored form of a note: verdict, nonce, node, 1 if it ran alone or 0, and
// its start in microseconds since 1970, separated by spaces.
func formatNote(s broker.Start) string {
	alone := "0"
	if s.Alone {
		alone = "1"
	}
	return strconv.Itoa(int(s.Verdict)) + " " + s.Nonce + " " + s.Node + " " + alone + " " + strconv.FormatInt(s.At.UnixMicro(), 10)
}

// parseNote reads a stored note into s, except ID and Generation. It ignores fields that a later
// version may have added at the end. Returns errAnswer for a damaged note.
func parseNote(note string, s *broker.Start) error {
	const fields = 5
	f := strings.SplitN(note, " ", fields+1)
	if len(f) < fields {
		return fmt.Errorf("%w: note %.200q", errAnswer, note)
	}
	verdict, err := strconv.Atoi(f[0])
	at, atErr := strconv.ParseInt(f[4], 10, 64)
	if err := errors.Join(err, atErr); err != nil {
		return fmt.Errorf("%w: note %.200q: %w", errAnswer, note, err)
	}
	s.Verdict, s.Nonce, s.Node, s.Alone, s.At = broker.StartVerdict(verdict), f[1], f[2], f[3] == "1", time.UnixMicro(at)
	return nil
}

// NodeState implements [broker.Witness]. It waits up to 4 s for a sign of life of the node. Returns
// ErrMalformed if the name is not valid, ErrUnavailable if ctx ends earlier, ErrClosed if the
// Broker is closed.
func (b *Broker) NodeState(ctx context.Context, node string) (broker.NodeState, error) {
	if err := b.checkNode(node); err != nil {
		return broker.NodeAbsent, err
	}
	state, err := b.nodeState(ctx, node)
	return state, wrap(err, "state of node", node)
}

// nodeState reads the key of a node every nodePoll, until it knows the state of the node, for at
// most nodeSilence. It takes no lock.
//
//   - NodePresent: the node has renewed its key since the first read.
//   - NodeLeft: the key says so.
//   - NodeAbsent: the key does not exist, or was not renewed within nodeSilence.
//
// Returns an error if Redis fails, ctx ends or the Broker is closed.
func (b *Broker) nodeState(ctx context.Context, node string) (broker.NodeState, error) {
	begun, before := time.Now(), int64(math.MaxInt64)
	for {
		v, err := b.conn.Eval(ctx, b.scripts.look.Script, []string{nodeKey(b.cfg.Namespace, node)})
		if err != nil {
			return broker.NodeAbsent, err
		}
		answer, ok := v.([]any)
		what, left := text(answer, 0), number(answer, 1)
		switch {
		case !ok:
			return broker.NodeAbsent, errAnswer
		case what == nodeLeft:
			return broker.NodeLeft, nil
		case what == "" || time.Since(begun) > nodeSilence:
			return broker.NodeAbsent, nil
		case left > before: // it was renewed since the first read
			return broker.NodePresent, nil
		}
		before = left
		if err := b.sleep(ctx, nodePoll); err != nil {
			return broker.NodeAbsent, err
		}
	}
}

// sleep blocks for d. Returns ErrUnavailable if ctx ends first, ErrClosed if the Broker is closed
// first.
func (b *Broker) sleep(ctx context.Context, d time.Duration) error {
	switch {
	case wake.SleepOr(ctx, b.ctx.Done(), d):
		return nil
	case ctx.Err() != nil:
		return errNotSent(ctx, nil)
	}
	return errClosed
}

// Leave implements [broker.Witness]. It stores "left" in the key of the node for 24 h, waits for
// the server, and stops renewing the node. After an error the node is still renewed. It does
// nothing for a node that noted no start in this Broker. Returns ErrMalformed if the name is not
// valid, ErrClosed after Close. It takes the mutex of b.nodes, but does not hold it while it waits.
func (b *Broker) Leave(ctx context.Context, node string) error {
	if err := b.checkNode(node); err != nil {
		return err
	}
	b.nodes.mu.Lock()
	_, known := b.nodes.seen[node]
	b.nodes.mu.Unlock()
	if !known {
		return nil
	}
	if _, err := b.setNode(ctx, node, nodeLeft, noteRetention, b.conn.Eval); err != nil {
		return wrap(err, "leave of node", node)
	}
	b.nodes.mu.Lock()
	defer b.nodes.mu.Unlock()
	delete(b.nodes.seen, node)
	return nil
}

// checkNode returns ErrMalformed if the node name is not valid, ErrClosed after Close. It takes
// b.mu.
func (b *Broker) checkNode(node string) error {
	if !naming.ValidName(node) {
		return fmt.Errorf("redis node %.140q: %w: not a valid node name", node, broker.ErrMalformed)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return fmt.Errorf("redis node %q: %w", node, errClosed)
	}
	return nil
}

// setNode stores state, nodeHere or nodeLeft, in the node's key with the given expiry. It waits for
// the server. It returns true if the state was stored, false and nil if the node has left before,
// and false with the error of the server.
func (b *Broker) setNode(ctx context.Context, node, state string, ttl time.Duration, eval evaluator) (bool, error) {
	v, err := eval(ctx, b.scripts.node.Script, []string{nodeKey(b.cfg.Namespace, node)}, state, ttl.Milliseconds())
	return v == int64(1), err
}

// makePresent writes a sign of life of a node and starts the goroutine that renews the nodes,
// unless that runs. It sends nothing if this Broker wrote a sign of life within the last 5 s. It
// returns nil, and does not renew the node, if the node has left before.
//
// It waits for the server and returns its errors. It takes the mutex of b.nodes, but does not hold
// it while it waits.
func (b *Broker) makePresent(ctx context.Context, node string) error {
	n := &b.nodes
	n.mu.Lock()
	last, known := n.seen[node]
	n.mu.Unlock()
	if known && time.Since(last) < nodeTTL/2 {
		return nil
	}
	sent := time.Now()
	here, err := b.setNode(ctx, node, nodeHere, nodeTTL, b.conn.Eval)
	if err != nil || !here {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.seen == nil {
		n.seen = make(map[string]time.Time)
	}
	n.seen[node] = sent
	if !n.renewed {
		n.renewed = b.start(b.renewNodes)
	}
	return nil
}

// renewNodes sends signs of life of all nodes in b.nodes at each nodeBeat. After a failure it tries
// again after nodeRetry. It blocks until no node is left or the Broker ends. It takes the mutex of
// b.nodes, but does not hold it while it waits.
func (b *Broker) renewNodes() {
	n := &b.nodes
	wait := nodeBeat
	for {
		if !wake.Sleep(b.ctx, wait) {
			return
		}
		n.mu.Lock()
		all := make([]string, 0, len(n.seen))
		for node := range n.seen {
			all = append(all, node)
		}
		n.renewed = len(all) > 0
		n.mu.Unlock()
		if len(all) == 0 {
			return
		}
		wait = nodeBeat
		for _, node := range all {
			if b.renewNode(node) != nil {
				wait = nodeRetry
			}
		}
	}
}

// renewNode sends one sign of life of a node and waits up to 2 s for the answer. It returns the
// error of that call and changes nothing then. It records the time if the server accepted it,
// unless Leave has removed the node from b.nodes meanwhile. It removes the node from b.nodes if the
// server says that it has left. It takes the mutex of b.nodes.
func (b *Broker) renewNode(node string) error {
	n := &b.nodes
	ctx, cancel := context.WithTimeout(b.ctx, nodeTTL/5)
	defer cancel()
	sent := time.Now()
	here, err := b.setNode(ctx, node, nodeHere, nodeTTL, b.conn.EvalOnce)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch _, known := n.seen[node]; {
	case !known: // it has left meanwhile
	case here:
		n.seen[node] = sent
	default:
		delete(n.seen, node)
	}
	return nil
}
