package amqpbroker

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

const (
	// ackNoteBytes is what the server keeps of the notes of acknowledgements. A note takes about
	// 150 bytes and 11 for each further message that shares it.
	ackNoteBytes   = 256 << 20
	ackNoteSegment = 16 << 20
	// A reader remembers ackBlocks blocks of ackBlock acknowledgements, 32 MB, and forgets a
	// block at a time.
	ackBlock  = 64 << 10
	ackBlocks = 64
	// clockSkew is how far the clocks of a producer and a consumer may be apart.
	clockSkew = time.Minute
)

// ackNotes are the notes of what AckSync acknowledged. A node that is killed may forget an
// acknowledgement, and not the note.
type ackNotes struct {
	log     *noteLog
	refused atomic.Bool // by the server, for lack of permission

	mu      sync.Mutex
	next    *roundTrip // the note that is written next
	keys    []byte     // what it will hold
	writing bool
	index   ackIndex
}

func (b *Broker) newAckNotes() *ackNotes {
	a := &ackNotes{log: b.newNoteLog(b.names.acks(), ackNoteBytes, ackNoteSegment)}
	a.log.apply = func(n *note, offset int64) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.index.add(n, offset)
	}
	a.log.forget = func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.index = ackIndex{}
	}
	return a
}

// short is the part of a key that notes of acknowledgements hold. Of two messages with one short
// key the second is taken for acknowledged, as one is of which nothing is known: it does not run.
func (k messageKey) short() uint64 { return binary.BigEndian.Uint64(k[:]) }

// add begins to write a note of a message. The done of the round trip is closed when the note is
// confirmed. While one note is being written, the keys of the next are collected (group commit):
// that is as fast as several notes at a time, and costs the server less.
func (a *ackNotes) add(key uint64) *roundTrip {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.next == nil {
		a.next = &roundTrip{done: make(chan struct{})}
	}
	r := a.next
	a.keys = binary.BigEndian.AppendUint64(a.keys, key)
	if !a.writing {
		if a.writing = a.log.b.spawn(a.write); !a.writing {
			r.err = broker.ErrClosed
			close(r.done)
			a.next, a.keys = nil, nil
		}
	}
	return r
}

// write writes notes as long as there are any.
func (a *ackNotes) write() {
	for {
		a.mu.Lock()
		r, keys := a.next, a.keys
		a.next, a.keys = nil, nil
		a.writing = r != nil
		a.mu.Unlock()
		if r == nil {
			return
		}
		r.err = a.log.append(a.log.b.stop, a.log.name(), &note{Kind: noteAck, At: time.Now().UnixMilli(), Messages: keys})
		close(r.done)
	}
}

// has reports whether there is, or may have been, a note of a message. since is the earliest time
// at which it can have been acknowledged; zero: unknown.
func (a *ackNotes) has(ctx context.Context, key uint64, since time.Time) (bool, error) {
	if err := a.log.sync(ctx); err != nil {
		return false, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.index.empty() {
		return false, fmt.Errorf("%w: the notes of acknowledgements were lost while they were read", broker.ErrUnavailable)
	}
	return !a.index.reaches(since) || a.index.has(key), nil
}

// ackIndex is what a reader knows of the notes. The zero value knows nothing.
type ackIndex struct {
	blocks  []ackKeys // oldest first, each full and sorted
	fresh   ackKeys
	known   map[uint64]struct{} // those of fresh
	whole   bool                // the first note of the stream is known
	started bool
}

// ackKeys are acknowledged messages.
type ackKeys struct {
	since time.Time // of the first note
	keys  []uint64
}

func (x *ackIndex) empty() bool { return !x.started }

func (x *ackIndex) add(n *note, offset int64) {
	if !x.started {
		x.started, x.whole = true, offset == 0
		x.fresh.since = millis(n.At)
	}
	if x.known == nil {
		x.known = make(map[uint64]struct{})
	}
	for b := n.Messages; len(b) >= 8; b = b[8:] {
		key := binary.BigEndian.Uint64(b)
		x.known[key] = struct{}{}
		x.fresh.keys = append(x.fresh.keys, key)
	}
	if len(x.fresh.keys) < ackBlock {
		return
	}
	slices.Sort(x.fresh.keys)
	x.blocks = append(x.blocks, ackKeys{since: x.fresh.since, keys: slices.Clip(x.fresh.keys)})
	x.fresh, x.known = ackKeys{since: millis(n.At)}, nil
	if len(x.blocks) > ackBlocks {
		x.blocks = slices.Delete(x.blocks, 0, 1)
		x.whole = false
	}
}

// reaches reports whether all notes since t are known. The first note of a stream says since when
// it is; AMQP's times are whole seconds.
func (x *ackIndex) reaches(t time.Time) bool {
	if t.IsZero() {
		return false
	}
	oldest := x.fresh.since
	if len(x.blocks) > 0 {
		oldest = x.blocks[0].since
	}
	if oldest.IsZero() {
		return false
	}
	if x.whole {
		return !t.Add(time.Second).Before(oldest)
	}
	return !t.Add(-clockSkew).Before(oldest)
}

func (x *ackIndex) has(key uint64) bool {
	if _, ok := x.known[key]; ok {
		return true
	}
	for _, b := range x.blocks {
		if _, ok := slices.BinarySearch(b.keys, key); ok {
			return true
		}
	}
	return false
}
