package sqlbroker

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
)

// maxRefunds limits the keys with refunds. With more of them, all are forgotten.
const maxRefunds = 1000

// turnState is the order in which a process claims from the keys of a fair queue: deficit round
// robin. The keys of a level are a ring, in the order of their names. In its turn a key gives as
// many messages as its weight. The process remembers where it was, and the database has no such
// state. Safe for concurrent use.
type turnState struct {
	mu      sync.Mutex
	levels  []turn
	refunds map[levelKey]int
}

// ring is a part of the ring of a fair queue, for the claims of one subscription.
type ring struct {
	state *turnState
	order []int64 // the levels, in the order in which the current claim looks at them

	// keys are those of the most urgent level that has free messages, as they were read last. The
	// first has the next turn, or the rest of one.
	keys  []*ringKey
	level int64
	whole bool // keys is the whole ring, without the keys at their limit; otherwise its beginning
	fresh bool // keys were read for the current claim
	from  int  // index in order of the first level to read: all messages of those before are locked
	empty int  // claims in a row that got no message, although keys had some

	missed map[string]bool // rows that a claim named and did not get: a transaction had locked them

	claimed int // messages of all claims
	passed  int // keys at their limit that the last reading met
}

// newRing returns a ring for the claims of a subscription.
func newRing(state *turnState) *ring {
	r := &ring{state: state, order: make([]int64, len(state.levels))}
	for i := range r.order {
		r.order[i] = int64(i)
	}
	return r
}

// begin sets the order of the levels for a claim.
func (r *ring) begin(order []int64) {
	if !slices.Equal(r.order, order) {
		r.order, r.from = slices.Clone(order), 0
	}
}

// isLast reports whether the level of r.keys is the last of the order.
func (r *ring) isLast() bool { return r.level == r.order[len(r.order)-1] }

// turn is the last turn of a level: its key has given so many messages, less those that were
// refunded.
type turn struct {
	key   string
	given int
	known bool // false: the level has had no turn yet
}

// levelKey is a key in a level.
type levelKey struct {
	level int64
	key   string
}

// ringKey is a key with free messages. A claim begins behind its mark (due, seq).
type ringKey struct {
	key      string
	weight   int
	due, seq int64
	marked   bool
	row      string // of the first free message, if the key was just read
	n, got   int    // of the current claim
	room     int    // messages that the bound of the key allows
}

// pick is a part of a claim: up to n messages of a key behind its mark, or the one in a row.
type pick struct {
	level    int64
	key      string
	due, seq int64
	row      string
	n        int
	from     *ringKey
}

// newTurnState returns the state of a queue with so many levels.
func newTurnState(levels int) *turnState {
	return &turnState{levels: make([]turn, levels), refunds: make(map[levelKey]int)}
}

// part is a part of the ring of a level: the keys from low to high, without high.
type part struct {
	level     int64
	low, high string
}

// parts returns the parts of a level's ring, in the order of the turns.
func (r *ring) parts(level int64) []part {
	r.state.mu.Lock()
	from := r.state.levels[level].key
	r.state.mu.Unlock()
	if from == "" {
		return []part{{level, "", afterKeys()}}
	}
	return []part{{level, from, afterKeys()}, {level, "", from}}
}

// limit returns how many keys to read for a claim of so many messages. The first of them may have
// given all messages of its turn. A process without any turn reads more, and begins at one of them.
func (r *ring) limit(want int) int {
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	if slices.ContainsFunc(r.state.levels, func(t turn) bool { return t.known }) {
		return want + 1
	}
	return maxClaim
}

// set stores the keys that were read, as parts has ordered them. whole reports that they are all of
// the level. The first turn of a level goes to a random one of them, so that processes that start
// together, or often, begin at different keys.
func (r *ring) set(level int64, keys []*ringKey, whole bool) {
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	r.level, r.keys, r.whole, r.fresh = level, keys, whole, true
	if t := &r.state.levels[level]; !t.known && len(keys) > 0 {
		r.rotate(rand.IntN(len(keys)))
		t.known, t.key = true, r.keys[0].key
	}
}

// rotate makes the key with index i the first.
func (r *ring) rotate(i int) {
	if r.whole {
		r.keys = slices.Concat(r.keys[i:], r.keys[:i])
	} else {
		r.keys = r.keys[i:]
	}
}

// refund gives the key one more message in its next turn: one that it gave came back unstarted.
func (s *turnState) refund(k levelKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.refunds) >= maxRefunds {
		clear(s.refunds)
	}
	s.refunds[k]++
}

// pick returns the keys whose turns come next, for want messages. It counts these turns. If the
// whole ring is known, a key may have several turns.
func (r *ring) pick(want int) []pick {
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	last, t, refunds := 0, &r.state.levels[r.level], r.state.refunds
	for _, k := range r.keys {
		k.n, k.got = 0, 0
		// A message before the mark came back.
		if len(refunds) > 0 && refunds[levelKey{r.level, k.key}] > 0 {
			k.due, k.seq, k.marked = math.MinInt64, 0, false
		}
	}
	for lap, before := 0, -1; want > 0 && before != want && (lap == 0 || r.whole); lap++ {
		if lap > 0 { // in the first lap all keys may have given the messages of their turn
			before = want
		}
		for i, k := range r.keys {
			given := 0
			if lap == 0 && i == 0 && k.key == t.key {
				given = t.given
			} else if len(refunds) > 0 {
				given = -refunds[levelKey{r.level, k.key}]
				delete(refunds, levelKey{r.level, k.key})
			}
			n := min(k.weight-given, want, k.room-k.n)
			if n <= 0 {
				continue
			}
			k.n += n
			want -= n
			last, t.key, t.given = i, k.key, given+n
			if want == 0 {
				break
			}
		}
	}
	var picks []pick
	for _, k := range r.keys {
		if k.n > 0 {
			p := pick{level: r.level, key: k.key, due: k.due, seq: k.seq, n: k.n, from: k}
			if k.n == 1 && r.empty == 0 && !r.missed[k.row] { // otherwise another consumer may have the row
				p.row = k.row
			}
			picks = append(picks, p)
			k.row = ""
			k.room -= k.n
		}
	}
	if len(picks) > 0 {
		r.rotate(last)
	}
	return picks
}

// maxMissed limits the rows in ring.missed. With more of them, all are forgotten.
const maxMissed = 1000

// miss makes later claims look for other messages of the key of row than the one in row.
func (r *ring) miss(row string) {
	if len(r.missed) >= maxMissed {
		clear(r.missed)
	}
	if r.missed == nil {
		r.missed = make(map[string]bool)
	}
	r.missed[row] = true
}

// maxEmpty is the number of claims without a message after which a level counts as drained,
// although keys had messages: other consumers have locked them.
const maxEmpty = 3

// taken moves the marks behind rows, the messages that a claim with picks got, ordered by due and
// seq. It removes keys that have no more. It reports whether the claim found all free messages of
// the queue.
func (r *ring) taken(picks []pick, rows []stored) (short bool) {
	r.claimed += len(rows)
	of := make(map[string]*ringKey, len(picks))
	for _, p := range picks {
		of[p.key] = p.from
	}
	for i := range rows {
		if k := of[rows[i].key()]; k != nil {
			k.got++
			if !k.marked || *rows[i].due > k.due || *rows[i].due == k.due && *rows[i].seq > k.seq {
				k.due, k.seq, k.marked = *rows[i].due, *rows[i].seq, true
			}
		}
	}
	short = r.fresh && r.whole && r.isLast() && len(picks) == len(r.keys)
	for _, p := range picks {
		k := p.from
		switch {
		case k.got >= p.n:
			short = false
		case p.row != "": // other messages of the key may be free
			r.miss(p.row)
			short = false
		case p.seq != 0: // a message before its mark may have come back
			k.due, k.seq, k.marked = math.MinInt64, 0, false
			short = false
		default:
			r.keys = slices.DeleteFunc(r.keys, func(other *ringKey) bool { return other == k })
		}
	}
	switch {
	case len(rows) > 0:
		r.empty, r.from = 0, 0
	case r.fresh:
		if r.empty++; r.empty >= maxEmpty && !r.isLast() {
			r.empty, r.from = 0, slices.Index(r.order, r.level)+1
		}
	}
	r.fresh = false
	if r.empty >= maxEmpty { // on the last level
		r.from = 0
		return true
	}
	return short && len(rows) > 0
}
