package amqpbroker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/naming"
)

const (
	// startNoteBytes limits the stream of starts on the server, in bytes: about 250,000 notes of 250
	// bytes.
	startNoteBytes   = 64 << 20
	startNoteSegment = 4 << 20
	// maxStarts limits the starts that a reader keeps in memory.
	maxStarts = 250_000
)

// witness writes notes of starts into their stream and keeps the notes that it reads there.
type witness struct {
	log *noteLog

	mu     sync.Mutex
	starts map[messageKey][]broker.Start // oldest first, without ID and Generation
	order  []startRef                    // oldest first
	nodes  map[string]*nodeEntry

	own       map[string]struct{} // the nodes for which this process answers
	asked     map[string]struct{} // the nodes in own for which a process has asked
	answering bool
}

// startRef stands for one start in witness.starts. The first startRef of a key stands for the
// oldest start under the key.
type startRef struct {
	key messageKey
	at  time.Time
}

// newWitness returns the witness of a Broker, whose log applies each note that it reads under the
// witness's mutex. It sends nothing to the server and starts no goroutine.
func (b *Broker) newWitness() *witness {
	w := &witness{
		log: b.newNoteLog(b.names.starts(), startNoteBytes, startNoteSegment), nodes: make(map[string]*nodeEntry), own: make(map[string]struct{}), asked: make(map[string]struct{}),
	}
	w.clearStarts()
	w.log.apply = func(n *note, _ int64) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.apply(n)
	}
	w.log.reset = func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.clearStarts()
	}
	return w
}

// clearStarts drops all starts. The entries of nodes stay, because a node that has left does not
// return. Call it with w.mu held.
func (w *witness) clearStarts() {
	w.starts, w.order = make(map[messageKey][]broker.Start), nil
}

// apply changes the state as the note n says. Unknown kinds, repeated starts and verdicts on
// unknown starts are ignored. A new start drops old ones, see dropOld. Call it with w.mu held.
func (w *witness) apply(n *note) {
	switch n.Kind {
	case noteStart:
		s, key, ok := n.start()
		list := w.starts[key]
		if !ok || indexOf(list, s.Nonce) >= 0 {
			return
		}
		w.starts[key] = append(list, s)
		w.order = append(w.order, startRef{key, noteTime(n.At)})
		w.dropOld(time.Now())
	case noteVerdict:
		s, key, ok := n.start()
		if i := indexOf(w.starts[key], s.Nonce); ok && i >= 0 {
			w.starts[key][i].Verdict = s.Verdict
		}
	case noteAsk:
		w.recordQuestion(n.Node, n.Nonce)
	case noteAlive:
		for _, node := range n.Nodes {
			w.recordAnswer(node)
		}
	case noteLeft:
		w.recordLeave(n.Node, noteTime(n.At))
	}
}

// indexOf returns the index in list of the start with the given nonce, or -1.
func indexOf(list []broker.Start, nonce string) int {
	return slices.IndexFunc(list, func(s broker.Start) bool { return s.Nonce == nonce })
}

// dropOld drops starts that are older than noteAge, and the oldest starts above maxStarts. Call it
// with w.mu held.
func (w *witness) dropOld(now time.Time) {
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

// NoteStart implements [broker.Witness]. It writes a note of s into a stream, blocks until this
// process has read it back, and returns the earlier starts of the message. The first call in a
// process starts to read all notes of the namespace. For errors see noteStart.
func (b *Broker) NoteStart(ctx context.Context, queue string, s broker.Start) (earlier []broker.Start, err error) {
	earlier, err = b.witness.noteStart(ctx, queue, s)
	return earlier, wrap(err, "note a start in", queue)
}

// noteStart writes a note of s and blocks until this process has read it back. It returns the
// earlier starts of the same message, oldest first. This process answers for s.Node from then on,
// also after an error. It takes w.mu, but does not hold it while it waits.
//
// Returns ErrMalformed if the queue name or s is not valid, ErrUnavailable if the stream was
// created again meanwhile, and the errors of writeAndRead.
func (w *witness) noteStart(ctx context.Context, queue string, s broker.Start) ([]broker.Start, error) {
	if err := checkStart(queue, &s); err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.own[s.Node] = struct{}{}
	w.mu.Unlock()
	key := keyOf(queue, s.ID, s.Generation, nil)
	err := w.log.writeAndRead(ctx, &note{
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
		return nil, fmt.Errorf("%w: the stream of start notes was created again while it was read; try again", broker.ErrUnavailable)
	}
	earlier := slices.Clone(list[:i])
	for i := range earlier {
		earlier[i].ID, earlier[i].Generation = s.ID, s.Generation
	}
	return earlier, nil
}

// checkStart returns ErrMalformed if the queue name or s is not valid.
func checkStart(queue string, s *broker.Start) error {
	if !naming.ValidName(queue) {
		return fmt.Errorf("%w: queue name %.140q", broker.ErrMalformed, queue)
	}
	return s.Check()
}

// JudgeStart implements [broker.Witness]. It appends the verdict to the stream of starts and waits
// for the confirmation. It does not check that the start was noted. Returns ErrMalformed if the
// queue name or s is not valid, and the errors of append. The verdict may be stored even after an
// error of append.
func (b *Broker) JudgeStart(ctx context.Context, queue string, s broker.Start) error {
	if err := checkStart(queue, &s); err != nil {
		return wrap(err, "judge a start in", queue)
	}
	l := b.witness.log
	err := l.append(ctx, l.newNoteID(), &note{
		Kind: noteVerdict, At: time.Now().UnixMilli(), Key: keyOf(queue, s.ID, s.Generation, nil).String(), Nonce: s.Nonce, Verdict: int(s.Verdict),
	})
	return wrap(err, "judge a start in", queue)
}
