package amqpbroker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/keyset"
)

const (
	// startNoteBytes is what the server keeps of the notes of starts: about 250,000 of 250 bytes.
	startNoteBytes   = 64 << 20
	startNoteSegment = 4 << 20
	// maxStarts is how many starts a reader knows.
	maxStarts = 250_000
)

// witness is what this process writes into the stream of starts, and what it has read there.
type witness struct {
	log *noteLog

	mu     sync.Mutex
	starts map[messageKey][]broker.Start // oldest first, without ID and Generation
	order  []noted                       // oldest first
	nodes  map[string]*nodeSign

	own       map[string]struct{} // the nodes for which this process answers
	called    map[string]struct{} // those of them that were asked for
	answering bool
}

// noted is where a start stands in witness.starts: it is the oldest of its message.
type noted struct {
	key messageKey
	at  time.Time
}

func (b *Broker) newWitness() *witness {
	w := &witness{
		log: b.newNoteLog(b.names.starts(), startNoteBytes, startNoteSegment), nodes: make(map[string]*nodeSign), own: make(map[string]struct{}), called: make(map[string]struct{}),
	}
	w.clear()
	w.log.apply = func(n *note, _ int64) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.apply(n)
	}
	w.log.forget = func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.clear()
	}
	return w
}

// clear forgets the starts. Nodes that have left do not come back.
func (w *witness) clear() {
	w.starts, w.order = make(map[messageKey][]broker.Start), nil
}

// apply takes a note in; w.mu is held.
func (w *witness) apply(n *note) {
	switch n.Kind {
	case noteStart:
		s, key, ok := n.start()
		list := w.starts[key]
		if !ok || indexOf(list, s.Nonce) >= 0 {
			return
		}
		w.starts[key] = append(list, s)
		w.order = append(w.order, noted{key, millis(n.At)})
		w.trim(time.Now())
	case noteVerdict:
		s, key, ok := n.start()
		if i := indexOf(w.starts[key], s.Nonce); ok && i >= 0 {
			w.starts[key][i].Verdict = s.Verdict
		}
	case noteAsk:
		w.call(n.Node, n.Nonce)
	case noteHere:
		for _, node := range n.Nodes {
			w.here(node)
		}
	case noteLeft:
		w.left(n.Node, millis(n.At))
	}
}

func indexOf(list []broker.Start, nonce string) int {
	return slices.IndexFunc(list, func(s broker.Start) bool { return s.Nonce == nonce })
}

// trim forgets what is too old or too much; w.mu is held.
func (w *witness) trim(now time.Time) {
	n := 0
	for n < len(w.order) && (len(w.order)-n > maxStarts || now.Sub(w.order[n].at) > noteAge) {
		key := w.order[n].key
		if list := w.starts[key]; len(list) > 1 {
			w.starts[key] = list[1:]
		} else {
			delete(w.starts, key)
		}
		n++
	}
	w.order = w.order[n:]
}

// NoteStart implements [broker.Witness]. The first one of a process begins to read the notes of the
// namespace.
func (b *Broker) NoteStart(ctx context.Context, queue string, s broker.Start) (earlier []broker.Start, err error) {
	earlier, err = b.witness.note(ctx, queue, s)
	return earlier, wrap(err, "note a start in", queue)
}

func (w *witness) note(ctx context.Context, queue string, s broker.Start) ([]broker.Start, error) {
	if err := checkStart(queue, &s); err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.own[s.Node] = struct{}{}
	w.mu.Unlock()
	key := keyOf(queue, s.ID, s.Generation, nil)
	err := w.log.write(ctx, &note{
		Kind: noteStart, At: time.Now().UnixMilli(), Key: key.String(), Nonce: s.Nonce, Node: s.Node,
		Start: s.At, Alone: s.Alone, Verdict: int(s.Verdict),
	})
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.starts[key]
	i := indexOf(list, s.Nonce)
	if i < 0 {
		return nil, fmt.Errorf("%w: the notes of starts were lost while they were read", broker.ErrUnavailable)
	}
	earlier := slices.Clone(list[:i])
	for i := range earlier {
		earlier[i].ID, earlier[i].Generation = s.ID, s.Generation
	}
	return earlier, nil
}

func checkStart(queue string, s *broker.Start) error {
	if !keyset.ValidName(queue) {
		return fmt.Errorf("%w: queue name %.140q", broker.ErrMalformed, queue)
	}
	return s.Check()
}

// JudgeStart implements [broker.Witness].
func (b *Broker) JudgeStart(ctx context.Context, queue string, s broker.Start) error {
	if err := checkStart(queue, &s); err != nil {
		return wrap(err, "judge a start in", queue)
	}
	l := b.witness.log
	err := l.append(ctx, l.name(), &note{
		Kind: noteVerdict, At: time.Now().UnixMilli(), Key: keyOf(queue, s.ID, s.Generation, nil).String(), Nonce: s.Nonce, Verdict: int(s.Verdict),
	})
	return wrap(err, "judge a start in", queue)
}
