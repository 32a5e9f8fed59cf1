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
	// ackNoteBytes limits the stream of acknowledgement notes on the server, in bytes. A note takes
	// about 150 bytes, and 11 for each further message in it.
	ackNoteBytes   = 256 << 20
	ackNoteSegment = 16 << 20
	// The index keeps at most ackBlocks full blocks of ackBlock keys, 32 MB. It drops one block at a
	// time.
	ackBlock  = 64 << 10
	ackBlocks = 64
	// clockSkew is the difference between the clocks of a producer and a consumer that is tolerated.
	clockSkew = time.Minute
)

// ackNotes writes and reads the notes of messages that AckSync acknowledged. A node that is killed
// may forget an acknowledgement, but the note is in a stream and survives.
type ackNotes struct {
	log     *noteLog
	refused atomic.Bool // the server does not permit the stream

	mu      sync.Mutex
	next    *roundTrip // the result of the next note, which is not being written yet
	keys    []byte     // the keys of that note
	writing bool
	index   ackIndex
}

// newAckNotes returns the ackNotes of a Broker. Its log adds each note that it reads to the index,
// and empties the index when the log is reset (see noteLog.reset). It holds a.mu for both.
// newAckNotes sends nothing to the server and starts no goroutine.
func (b *Broker) newAckNotes() *ackNotes {
	a := &ackNotes{log: b.newNoteLog(b.names.acks(), ackNoteBytes, ackNoteSegment)}
	a.log.apply = func(n *note, offset int64) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.index.add(n, offset)
	}
	a.log.reset = func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.index = ackIndex{}
	}
	return a
}

// prefix64 returns the first 8 bytes of k, which is the form that acknowledgement notes hold. If
// two messages have the same prefix, the second counts as acknowledged and may not run.
func (k messageKey) prefix64() uint64 { return binary.BigEndian.Uint64(k[:]) }

// add adds the key to the next note of acknowledgements and returns the shared result of that
// note. It does not block. The result's done channel is closed when the server has confirmed the
// note or the write has failed. It takes a.mu.
//
// Keys that arrive while a note is being written share the next note (group commit). add starts
// the writing goroutine if none runs. After Close the result is ErrClosed.
func (a *ackNotes) add(key uint64) *roundTrip {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.next == nil {
		a.next = &roundTrip{done: make(chan struct{})}
	}
	r := a.next
	a.keys = binary.BigEndian.AppendUint64(a.keys, key)
	if !a.writing {
		if a.writing = a.log.b.spawn(a.writeLoop); !a.writing {
			r.err = broker.ErrClosed
			close(r.done)
			a.next, a.keys = nil, nil
		}
	}
	return r
}

// writeLoop writes the collected keys as one note after the other and waits for each confirmation.
// It sets the result that the calls of add share, and closes its done channel. It returns when no
// key is left. It takes a.mu, but not while it waits.
func (a *ackNotes) writeLoop() {
	for {
		a.mu.Lock()
		r, keys := a.next, a.keys
		a.next, a.keys = nil, nil
		a.writing = r != nil
		a.mu.Unlock()
		if r == nil {
			return
		}
		r.err = a.log.append(a.log.b.stop, a.log.newNoteID(), &note{Kind: noteAck, At: time.Now().UnixMilli(), Messages: keys})
		close(r.done)
	}
}

// has reports whether a message may have been acknowledged by AckSync. It first reads the stream
// up to its end, which blocks until that is done or ctx ends. It takes a.mu, but not while it
// waits.
//
//   - A note holds key: true.
//   - The known notes do not go back to since, the earliest time of an acknowledgement: true.
//   - since is zero, which means unknown: true.
//   - Otherwise: false.
//
// Returns the errors of sync, and ErrUnavailable if the notes were dropped in the meantime.
func (a *ackNotes) has(ctx context.Context, key uint64, since time.Time) (bool, error) {
	if err := a.log.sync(ctx); err != nil {
		return false, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.index.empty() {
		return false, fmt.Errorf("%w: the stream of acknowledgement notes was created again while it was read; try again", broker.ErrUnavailable)
	}
	return !a.index.covers(since) || a.index.has(key), nil
}

// ackIndex holds the keys of the acknowledgement notes that were read. The zero value is empty.
type ackIndex struct {
	blocks  []ackKeys // oldest first, each full and sorted
	fresh   ackKeys
	known   map[uint64]struct{} // the keys of fresh
	whole   bool                // the index begins with the first note of the stream
	started bool
}

// ackKeys is a block of keys of acknowledged messages.
type ackKeys struct {
	since time.Time // time of the first note of the block
	keys  []uint64
}

// empty reports whether no note was read yet.
func (x *ackIndex) empty() bool { return !x.started }

// add adds the keys of a note at the given offset of the stream. A block of ackBlock keys is sorted
// and moved to x.blocks. If there are more than ackBlocks blocks, add drops the oldest and sets
// x.whole to false. The first note sets x.whole if its offset is 0. Call it with the mutex of
// ackNotes held, like the other methods.
func (x *ackIndex) add(n *note, offset int64) {
	if !x.started {
		x.started, x.whole = true, offset == 0
		x.fresh.since = noteTime(n.At)
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
	x.fresh, x.known = ackKeys{since: noteTime(n.At)}, nil
	if len(x.blocks) > ackBlocks {
		x.blocks = slices.Delete(x.blocks, 0, 1)
		x.whole = false
	}
}

// covers reports whether the index holds all notes since t. It returns false for a zero t, for an
// empty index, and if the oldest note holds no valid time.
//
// If the index begins with the first note of the stream, it covers every t since that note. One
// second is tolerated, because AMQP times are whole seconds. Otherwise t must lie at least
// clockSkew after the oldest note.
func (x *ackIndex) covers(t time.Time) bool {
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

// has reports whether the index holds key. It changes nothing. The caller guards the index.
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
