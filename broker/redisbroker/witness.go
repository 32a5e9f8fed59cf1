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
	"github.com/swarmiji/swarmiji/internal/keyset"
	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	// keepNotes is how long the notes of a message are kept after the last one, and the word of a
	// node that left.
	keepNotes = 24 * time.Hour
	// nodeTTL is how long the key of a node lasts, which is renewed at each nodeBeat, and after
	// nodeRetry if that failed. A node that does not renew it for nodeSilence is absent: its key
	// alone says that it lived, and its process may have died since.
	nodeTTL     = 10 * time.Second
	nodeBeat    = time.Second
	nodeRetry   = 500 * time.Millisecond
	nodeSilence = 4 * time.Second
	nodePoll    = 100 * time.Millisecond // between two looks at the key

	nodeHere = "here"
	nodeLeft = "left"
)

// nodes are the nodes that have noted a start through a Broker and have not left.
type nodes struct {
	mu      sync.Mutex
	seen    map[string]time.Time // when the last sign of life was sent that the server has answered
	renewed bool                 // a goroutine renews them
}

// NoteStart implements [broker.Witness]. It does not wait for replicas, also with
// Config.WaitReplicas: a note that is lost in a failover makes a crash go uncounted, no more. A
// server whose memory is full takes notes all the same.
func (b *Broker) NoteStart(ctx context.Context, queue string, s broker.Start) ([]broker.Start, error) {
	key, err := b.noteKey(queue, s)
	if err != nil {
		return nil, err
	}
	if err := b.appear(ctx, s.Node); err != nil {
		return nil, wrap(err, "note a start in", queue)
	}
	v, err := b.conn.Eval(ctx, b.scripts.note.Script, []string{key},
		s.Nonce, formatNote(s), broker.MaxStarts, int64(keepNotes/time.Second))
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

// JudgeStart implements [broker.Witness].
func (b *Broker) JudgeStart(ctx context.Context, queue string, s broker.Start) error {
	key, err := b.noteKey(queue, s)
	if err != nil {
		return err
	}
	_, err = b.conn.Eval(ctx, b.scripts.judge.Script, []string{key}, s.Nonce, int(s.Verdict))
	return wrap(err, "judge a start in", queue)
}

// noteKey checks a start and returns the key of its message's notes.
func (b *Broker) noteKey(queue string, s broker.Start) (string, error) {
	q, err := b.open(queue)
	if err != nil {
		return "", err
	}
	err = s.Check()
	if err == nil && (!validID(s.ID) || s.Generation >= math.MaxInt32) {
		err = fmt.Errorf("%w: no message has the id %.128q and generation %d", broker.ErrMalformed, s.ID, s.Generation)
	}
	if err == nil && (s.Verdict < 0 || s.Verdict > 9) {
		err = fmt.Errorf("%w: verdict %d", broker.ErrMalformed, s.Verdict)
	}
	return q.names.notes(keyOf(s.ID, s.Generation)), wrap(err, "notes of", queue)
}

// formatNote is a note as the server keeps it: verdict, nonce, node, 1 if it ran alone, and when it
// began, in microseconds since 1970.
func formatNote(s broker.Start) string {
	alone := "0"
	if s.Alone {
		alone = "1"
	}
	return strconv.Itoa(int(s.Verdict)) + " " + s.Nonce + " " + s.Node + " " + alone + " " + strconv.FormatInt(s.At.UnixMicro(), 10)
}

// parseNote reads a note. What a later version may have added behind it is passed over.
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

// NodeState implements [broker.Witness]. A node is present if it gives a sign of life now, for
// which NodeState waits up to 4 s. If ctx ends before, it is an error.
func (b *Broker) NodeState(ctx context.Context, node string) (broker.NodeState, error) {
	if err := b.checkNode(node); err != nil {
		return broker.NodeAbsent, err
	}
	state, err := b.nodeState(ctx, node)
	return state, wrap(err, "state of node", node)
}

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
		case left > before: // it was renewed since the question
			return broker.NodePresent, nil
		}
		before = left
		if err := b.wait(ctx, nodePoll); err != nil {
			return broker.NodeAbsent, err
		}
	}
}

func (b *Broker) wait(ctx context.Context, d time.Duration) error {
	switch {
	case wake.SleepOr(ctx, b.ctx.Done(), d):
		return nil
	case ctx.Err() != nil:
		return notSent(ctx, nil)
	}
	return errClosed
}

// Leave implements [broker.Witness].
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
	if _, err := b.sign(ctx, node, nodeLeft, keepNotes, b.conn.Eval); err != nil {
		return wrap(err, "leave of node", node)
	}
	b.nodes.mu.Lock()
	defer b.nodes.mu.Unlock()
	delete(b.nodes.seen, node)
	return nil
}

func (b *Broker) checkNode(node string) error {
	if !keyset.ValidName(node) {
		return fmt.Errorf("redis node %.140q: %w: not a node's name", node, broker.ErrMalformed)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return fmt.Errorf("redis node %q: %w", node, errClosed)
	}
	return nil
}

// sign tells the server what a node does; false if the node has left before.
func (b *Broker) sign(ctx context.Context, node, what string, ttl time.Duration, eval evaluator) (bool, error) {
	v, err := eval(ctx, b.scripts.node.Script, []string{nodeKey(b.cfg.Namespace, node)}, what, ttl.Milliseconds())
	return v == int64(1), err
}

// appear makes a node present, and sees to it that it stays so.
func (b *Broker) appear(ctx context.Context, node string) error {
	n := &b.nodes
	n.mu.Lock()
	last, known := n.seen[node]
	n.mu.Unlock()
	if known && time.Since(last) < nodeTTL/2 {
		return nil
	}
	sent := time.Now()
	here, err := b.sign(ctx, node, nodeHere, nodeTTL, b.conn.Eval)
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

// renewNodes sends signs of life of all nodes, until there are none or the Broker ends.
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

func (b *Broker) renewNode(node string) error {
	n := &b.nodes
	ctx, cancel := context.WithTimeout(b.ctx, nodeTTL/5)
	defer cancel()
	sent := time.Now()
	here, err := b.sign(ctx, node, nodeHere, nodeTTL, b.conn.EvalOnce)
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
