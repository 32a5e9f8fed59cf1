package sqlbroker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/messagecode"
	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	// noteRetention is the retention of notes and of nodes that have left.
	noteRetention = 24 * time.Hour
	// sweepEvery is the interval at which a Broker that notes starts removes old notes.
	sweepEvery = time.Hour

	// A node raises its beat each nodeBeat, or after nodeRetry if that failed. A node whose beat
	// does not grow for nodeSilence is absent.
	nodeBeat    = time.Second
	nodeRetry   = 500 * time.Millisecond
	nodeSilence = 4 * time.Second
	nodeOld     = 10 * time.Second       // a node with an older beat is absent at once
	nodePoll    = 100 * time.Millisecond // pause between two reads of the beat
)

// nodes holds the nodes that have noted a start through a Broker and have not left.
type nodes struct {
	mu      sync.Mutex
	seen    map[string]time.Time // when the last committed beat was sent
	renewed bool                 // a goroutine raises the beats
	swept   time.Time            // when makePresent last removed old notes
}

// storedNote is the stored form of a note. Later versions only add fields.
type storedNote struct {
	Nonce   string `json:"nonce"`
	Node    string `json:"node"`
	Alone   bool   `json:"alone,omitempty"`
	At      int64  `json:"at"` // microseconds since 1970
	Verdict int    `json:"verdict,omitempty"`
}

// NoteStart implements [broker.Witness]. It creates the queue if it does not exist. It raises the
// beat of s.Node if the last one is older than 5 s, and each second from then on. Then it stores
// the note and returns the earlier ones. It waits for the database. It takes the mutex of b.nodes.
//
// Returns ErrMalformed if s or the queue name is not valid, ErrClosed after Close, and errors of
// the database. After an error the note may be stored.
func (b *Broker) NoteStart(ctx context.Context, queue string, s broker.Start) (earlier []broker.Start, err error) {
	if err := b.checkNote(queue, s); err != nil {
		return nil, err
	}
	q, err := b.ensureKnown(ctx, queue)
	if err == nil {
		err = b.makePresent(ctx, s.Node)
	}
	if err == nil {
		err = b.changeNotes(ctx, q, s, true, func(notes []broker.Start) []broker.Start {
			notes, earlier = broker.AddStart(notes, s)
			return notes
		})
	}
	if err != nil {
		return nil, wrap(err, "note a start in", queue)
	}
	return earlier, nil
}

// JudgeStart implements [broker.Witness]. It stores the verdict of s in the note with the nonce of
// s. It does nothing if the queue or the note does not exist. It waits for the database. Returns
// ErrMalformed if s or the queue name is not valid, ErrClosed after Close, and errors of the
// database.
func (b *Broker) JudgeStart(ctx context.Context, queue string, s broker.Start) error {
	if err := b.checkNote(queue, s); err != nil {
		return err
	}
	q, err := b.queue(ctx, queue)
	if errors.Is(err, broker.ErrNoQueue) {
		return nil
	}
	if err == nil {
		err = b.changeNotes(ctx, q, s, false, func(notes []broker.Start) []broker.Start {
			for i := range notes {
				if notes[i].Nonce == s.Nonce {
					notes[i].Verdict = s.Verdict
				}
			}
			return notes
		})
	}
	return wrap(err, "judge a start in", queue)
}

// checkNote returns ErrMalformed if s or the queue name is not valid, ErrClosed after Close, and
// nil otherwise. It takes b.mu.
func (b *Broker) checkNote(queue string, s broker.Start) error {
	if err := b.checkOpen(queue); err != nil {
		return err
	}
	err := s.Check()
	if err == nil && (!messagecode.ValidID(s.ID) || s.Generation >= math.MaxInt32) {
		err = fmt.Errorf("%w: a message cannot have the id %.128q and generation %d", broker.ErrMalformed, s.ID, s.Generation)
	}
	return wrap(err, "notes of", queue)
}

// changeNotes replaces the notes of the message of s by what fn returns, in one transaction that
// locks them. fn gets the stored notes, which may be empty, and may run more than once. If create
// is false and the message has no row of notes it does nothing. It waits for the database. Returns
// its errors, and ErrAccess if the stored notes cannot be read.
func (b *Broker) changeNotes(ctx context.Context, q *queue, s broker.Start, create bool, fn func([]broker.Start) []broker.Start) error {
	return b.update(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		key := []any{q.id, s.ID, int64(s.Generation)}
		if create {
			if _, err := tx.Exec(ctx, b.text.addNotes, key...); err != nil {
				return err
			}
		}
		var text string
		err := tx.Row(ctx, b.text.notes, key...).Scan(&text)
		if errors.Is(err, sqlconn.ErrNoRows) && !create {
			return nil
		}
		if err != nil {
			return err
		}
		notes, err := parseNotes(text, s)
		if err != nil {
			return err
		}
		if text, err = formatNotes(fn(notes)); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, b.text.saveNotes, append(key, text)...)
		return err
	})
}

// parseNotes returns the notes in their stored form, with the id and generation of s. Returns
// ErrAccess if text is not such a form.
func parseNotes(text string, s broker.Start) ([]broker.Start, error) {
	var all []storedNote
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, fmt.Errorf("%w: damaged notes: %w", broker.ErrAccess, err)
	}
	notes := make([]broker.Start, len(all))
	for i, n := range all {
		notes[i] = broker.Start{
			ID: s.ID, Generation: s.Generation, Nonce: n.Nonce, Node: n.Node, Alone: n.Alone,
			At: time.UnixMicro(n.At), Verdict: broker.StartVerdict(n.Verdict),
		}
	}
	return notes, nil
}

// formatNotes returns the stored form of notes: JSON without id and generation. Its error is always
// nil.
func formatNotes(notes []broker.Start) (string, error) {
	all := make([]storedNote, len(notes))
	for i, n := range notes {
		all[i] = storedNote{Nonce: n.Nonce, Node: n.Node, Alone: n.Alone, At: n.At.UnixMicro(), Verdict: int(n.Verdict)}
	}
	text, err := json.Marshal(all)
	return string(text), err
}

// NodeState implements [broker.Witness]. It waits up to 4 s for the next beat of the node. Returns
// ErrMalformed if the name is not valid, ErrUnavailable if ctx ends earlier, ErrClosed if the
// Broker is closed, and errors of the database. With an error the state has no meaning.
func (b *Broker) NodeState(ctx context.Context, node string) (broker.NodeState, error) {
	if err := b.checkNode(node); err != nil {
		return broker.NodeAbsent, err
	}
	state, err := b.nodeState(ctx, node)
	return state, wrap(err, "state of node", node)
}

// nodeState reads the beat of a node every nodePoll, until it knows the state of the node, for at
// most nodeSilence. It changes nothing.
//
//   - NodePresent: the beat has grown since the first read.
//   - NodeLeft: the row says so.
//   - NodeAbsent: the node has no row, or the beat did not grow within nodeSilence.
//   - NodeAbsent, too: the last beat is older than nodeOld.
//
// Returns ErrUnavailable if ctx ends first, errClosed if the Broker ends first, and errors of the
// database. With an error the state has no meaning.
func (b *Broker) nodeState(ctx context.Context, node string) (broker.NodeState, error) {
	begun, before := time.Now(), int64(0)
	for {
		var beat, left, age int64
		err := b.view(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
			return tx.Row(ctx, b.text.look, b.cfg.Namespace, node).Scan(&beat, &left, &age)
		})
		switch {
		case errors.Is(err, sqlconn.ErrNoRows):
			return broker.NodeAbsent, nil
		case err != nil:
			return broker.NodeAbsent, err
		case left != 0:
			return broker.NodeLeft, nil
		case before != 0 && beat > before:
			return broker.NodePresent, nil
		case time.Since(begun) > nodeSilence, age > nodeOld.Microseconds():
			return broker.NodeAbsent, nil
		}
		before = beat
		switch {
		case wake.SleepOr(ctx, b.life.Done(), nodePoll):
		case ctx.Err() != nil:
			return broker.NodeAbsent, errNotSent(ctx)
		default:
			return broker.NodeAbsent, errClosed
		}
	}
}

// Leave implements [broker.Witness]. It stores for 24 h that the node has left, waits for the
// database, and stops raising its beat. After an error the beat is still raised. It does nothing
// for a node that noted no start in this Broker. Returns ErrMalformed if the name is not valid,
// ErrClosed after Close. It takes the mutex of b.nodes, but does not hold it while it waits.
func (b *Broker) Leave(ctx context.Context, node string) error {
	if err := b.checkNode(node); err != nil {
		return err
	}
	n := &b.nodes
	n.mu.Lock()
	_, known := n.seen[node]
	n.mu.Unlock()
	if !known {
		return nil
	}
	if _, err := b.exec(ctx, "", b.text.leave, b.cfg.Namespace, node); err != nil {
		return wrap(err, "leave of node", node)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.seen, node)
	return nil
}

// checkNode returns ErrMalformed if the node name is not valid, ErrClosed after Close. It takes
// b.mu.
func (b *Broker) checkNode(node string) error {
	if !naming.ValidName(node) {
		return fmt.Errorf("sql node %.140q: %w: not a valid node name", node, broker.ErrMalformed)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return fmt.Errorf("sql node %q: %w", node, errClosed)
	}
	return nil
}

// makePresent raises the beat of a node and starts the goroutine that raises the beats, unless that
// runs. It does nothing if this Broker raised the beat within the last 5 s. It returns nil, and
// does not raise the beat again, if the node has left before. Once an hour it removes old notes.
//
// It waits for the database and returns its errors. It takes the mutex of b.nodes, but does not
// hold it while it waits.
func (b *Broker) makePresent(ctx context.Context, node string) error {
	n := &b.nodes
	n.mu.Lock()
	last, known := n.seen[node]
	sweep := time.Since(n.swept) > sweepEvery
	if sweep {
		n.swept = time.Now()
	}
	n.mu.Unlock()
	if sweep {
		b.sweepNotes(ctx)
	}
	if known && time.Since(last) < nodeOld/2 {
		return nil
	}
	sent := time.Now()
	here, err := b.exec(ctx, "", b.text.here, b.cfg.Namespace, node)
	if err != nil || here == 0 {
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

// sweepNotes removes the notes and nodes of all namespaces that are older than noteRetention. It
// ignores errors: the next sweep tries again.
func (b *Broker) sweepNotes(ctx context.Context) {
	for _, query := range []string{b.text.oldNotes, b.text.oldNodes} {
		_, _ = b.exec(ctx, "", query, noteRetention.Microseconds())
	}
}

// renewNodes raises the beats of all nodes in b.nodes at each nodeBeat. After a failure it tries
// again after nodeRetry. It blocks until no node is left or the Broker ends. It takes the mutex of
// b.nodes, but does not hold it while it waits.
func (b *Broker) renewNodes() {
	n := &b.nodes
	wait := nodeBeat
	for wake.Sleep(b.life, wait) {
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

// renewNode raises the beat of a node and waits up to 2 s for that. It returns the error of that
// call and changes nothing then. It notes the time of the beat in b.nodes, unless Leave has removed
// the node meanwhile. It removes the node from b.nodes if the database says that it has left. It
// takes the mutex of b.nodes.
func (b *Broker) renewNode(node string) error {
	n := &b.nodes
	ctx, cancel := context.WithTimeout(b.life, nodeOld/5)
	defer cancel()
	sent := time.Now()
	here, err := b.exec(ctx, "", b.text.beat, b.cfg.Namespace, node)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch _, known := n.seen[node]; {
	case !known: // it has left meanwhile
	case here > 0:
		n.seen[node] = sent
	default:
		delete(n.seen, node)
	}
	return nil
}
