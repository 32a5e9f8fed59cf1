package sqlbroker

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/messagecode"
)

// readInto gives r the keys of level 0 as the database returns them, for a claim of want messages.
func readInto(r *ring, weights map[string]int, want int) {
	all := make([]string, 0, len(weights))
	for key := range weights {
		all = append(all, key)
	}
	slices.Sort(all)
	var keys []*ringKey
	limit := r.limit(want)
	for _, p := range r.parts(0) {
		for _, key := range all {
			if key >= p.low && key < p.high && len(keys) < limit {
				keys = append(keys, &ringKey{key: key, weight: weights[key], due: math.MinInt64, room: math.MaxInt})
			}
		}
	}
	r.set(0, keys, len(keys) < limit)
}

// Keys that always have messages give them in proportion to their weights, within one turn and one
// claim. A message that is refunded comes again.
func TestRingShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := make(map[string]int)
		for i := range rapid.IntRange(1, 30).Draw(t, "keys") {
			weights[fmt.Sprint("k", i)] = rapid.IntRange(1, 5).Draw(t, "weight")
		}
		state := newTurnState(1)
		r := newRing(state)
		starts, most := make(map[string]int), 0
		for range rapid.IntRange(1, 60).Draw(t, "claims") {
			want := rapid.IntRange(1, 40).Draw(t, "want")
			most = max(most, want)
			var picks []pick
			if !rapid.Bool().Draw(t, "read") {
				picks = r.pick(want)
			}
			read := len(picks) == 0
			if read {
				readInto(r, weights, want)
				picks = r.pick(want)
			}
			got := 0
			for _, p := range picks {
				got += p.n
				starts[p.key] += p.n
				if rapid.IntRange(0, 9).Draw(t, "back") == 0 {
					starts[p.key]--
					state.refund(levelKey{0, p.key})
				}
			}
			if got > want || got == 0 || got < want && r.whole {
				t.Fatalf("picked %d of %d", got, want)
			}
		}
		for key, w := range weights {
			for other, v := range weights {
				diff := float64(starts[key])/float64(w) - float64(starts[other])/float64(v)
				if limit := 2 + float64(most)*2/float64(min(w, v)); diff > limit {
					t.Fatalf("starts %v of weights %v differ by %v turns", starts, weights, diff)
				}
			}
		}
	})
}

// keyRow returns a stored message of a key.
func keyRow(t *testing.T, key string, due, seq int64) stored {
	t.Helper()
	meta, err := messagecode.AppendExtras(nil, &broker.Message{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return stored{due: &due, seq: &seq, meta: meta}
}

// A claim is short if the whole ring was read and no key gave as many messages as it could. A key
// whose mark may hide a message that came back is claimed from its beginning again.
func TestRingShort(t *testing.T) {
	r := newRing(newTurnState(1))
	readInto(r, map[string]int{"a": 1}, 5)
	if short := r.taken(r.pick(5), []stored{keyRow(t, "a", 1, 1), keyRow(t, "a", 1, 2)}); !short || len(r.keys) != 0 {
		t.Error("a claim that found all messages is not short")
	}
	readInto(r, map[string]int{"a": 1}, 2)
	if r.taken(r.pick(2), []stored{keyRow(t, "a", 1, 1), keyRow(t, "a", 1, 2)}) {
		t.Error("a full claim is short")
	}
	picks := r.pick(2) // without another reading
	if picks[0].due != 1 || picks[0].seq != 2 || picks[0].row != "" {
		t.Errorf("the next claim begins at %+v, want the mark", picks[0])
	}
	if r.taken(picks, []stored{keyRow(t, "a", 1, 3)}) || len(r.keys) != 1 || r.keys[0].marked {
		t.Error("a claim behind a mark is short, or keeps the mark")
	}
	for i := range maxEmpty {
		readInto(r, map[string]int{"a": 1}, 2)
		if short := r.taken(r.pick(2), nil); short != (i == maxEmpty-1) {
			t.Errorf("empty claim %d: short is %v", i, short)
		}
	}
}

// A claim that named the first row of a key and did not get it is not short. Later claims look for
// other messages of the key while that row is the first.
func TestRingMissedRow(t *testing.T) {
	r := newRing(newTurnState(1))
	for i, first := range []string{"2", "2", "2", "3"} {
		r.state.levels[0] = turn{key: "b", given: 1, known: true}
		readInto(r, map[string]int{"a": 1, "b": 1}, 3)
		for _, k := range r.keys {
			k.row = map[string]string{"a": "1", "b": first}[k.key]
		}
		picks := r.pick(3) // a, b, a
		if b := picks[0]; b.key != "b" || b.n != 1 || b.row != map[int]string{0: "2", 3: "3"}[i] {
			t.Errorf("claim %d begins with %+v", i, b)
		}
		rows := []stored{keyRow(t, "a", 1, int64(i))} // the only one of a
		if i > 0 {
			rows = append(rows, keyRow(t, "b", 1, int64(10+i)))
		}
		if r.taken(picks, rows) {
			t.Errorf("claim %d is short", i)
		}
	}
}

// After some claims without a message the next level is read. After those of the last level the
// queue counts as drained, and the first level is read again.
func TestRingLockedLevels(t *testing.T) {
	r := newRing(newTurnState(2))
	for i := range 4 * maxEmpty {
		last := i/maxEmpty%2 == 1
		if r.from == 1 != last {
			t.Fatalf("claim %d reads from level %d", i, r.from)
		}
		r.set(int64(r.from), []*ringKey{{key: "a", weight: 1, due: math.MinInt64, room: math.MaxInt}}, true)
		drained := last && i%maxEmpty == maxEmpty-1
		if r.taken(r.pick(2), nil) != drained {
			t.Fatalf("claim %d: drained is %v", i, !drained)
		}
		if drained {
			r.empty = 0 // otherwise one claim of the first level is enough
		}
	}
}

// No key is beyond the end of the ring.
func TestAfterKeys(t *testing.T) {
	if last := strings.Repeat("\U0010FFFF", 63) + "\u00ff"; afterKeys() <= last || len(last) < 253 {
		t.Error("a key is beyond the end")
	}
}
