package turns_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/internal/turns"
)

// naive is the reference: it follows the rules of the package comment by searching.
type naive struct {
	clock float64
	sets  int
	keys  map[string]*naiveKey
}

type naiveKey struct {
	tag    float64
	set    int
	parked bool
	pushed []*item
	back   []*item
}

type item struct {
	id, order int
	key       string
	cost      float64
}

func (k *naiveKey) items() []*item {
	back := slices.Clone(k.back)
	slices.SortFunc(back, func(a, b *item) int { return cmp.Compare(a.order, b.order) })
	return append(back, k.pushed...)
}

func (k *naiveKey) credit() (sum float64) {
	for _, it := range k.back {
		sum += it.cost
	}
	return sum
}

func (n *naive) key(name string) *naiveKey {
	if n.keys[name] == nil {
		n.keys[name] = &naiveKey{tag: n.clock, set: n.sets}
		n.sets++
	}
	return n.keys[name]
}

func (n *naive) setTag(k *naiveKey, tag float64) {
	k.tag, k.set = tag, n.sets
	n.sets++
}

func (n *naive) push(it *item) { k := n.key(it.key); k.pushed = append(k.pushed, it) }

func (n *naive) giveBack(it *item) {
	k := n.key(it.key)
	k.back = append(k.back, it)
	n.setTag(k, max(k.tag-it.cost, n.clock-k.credit()))
}

func (n *naive) park(name string) {
	if k := n.keys[name]; k != nil && len(k.items()) > 0 {
		k.parked = true
	}
}

func (n *naive) unpark(name string) {
	k := n.keys[name]
	if k == nil || !k.parked {
		return
	}
	k.parked = false
	if least := n.clock - k.credit(); k.tag < least {
		n.setTag(k, least)
	}
}

func (n *naive) next() *item {
	var best *naiveKey
	for _, k := range n.keys {
		if len(k.items()) > 0 && !k.parked && (best == nil || k.tag < best.tag || k.tag == best.tag && k.set < best.set) {
			best = k
		}
	}
	if best == nil {
		return nil
	}
	return best.items()[0]
}

func (n *naive) drop(it *item, taken bool) {
	k := n.keys[it.key]
	before := len(k.back)
	k.back = slices.DeleteFunc(k.back, func(o *item) bool { return o == it })
	k.pushed = slices.DeleteFunc(k.pushed, func(o *item) bool { return o == it })
	if taken {
		n.setTag(k, k.tag+it.cost)
	} else if least := n.clock - k.credit(); len(k.back) < before && k.tag < least {
		n.setTag(k, least)
	}
	lowest, some := math.Inf(1), false
	for _, k := range n.keys {
		if len(k.items()) > 0 {
			some = true
			if !k.parked {
				lowest = min(lowest, k.tag)
			}
		} else {
			k.parked = false
		}
	}
	if !some {
		*n = naive{keys: map[string]*naiveKey{}}
		return
	}
	if !math.IsInf(lowest, 1) {
		n.clock = max(n.clock, lowest)
	}
	for name, k := range n.keys {
		if len(k.items()) == 0 && k.tag <= n.clock {
			delete(n.keys, name)
		}
	}
}

// weights are powers of two, so that sums of their shares have no rounding errors.
var weights = []int{0, 1, 2, 4, 64}

var keys = []string{"", "a", "b", "c", "d"}

func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var real turns.Turns[*item]
		model := naive{keys: map[string]*naiveKey{}}
		entries := map[*item]*turns.Entry[*item]{}
		var in, taken []*item
		ids := 0
		out := func(list *[]*item, it *item) { *list = slices.DeleteFunc(*list, func(o *item) bool { return o == it }) }
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				w := rapid.SampledFrom(weights).Draw(t, "weight")
				it := &item{id: ids, order: ids, key: rapid.SampledFrom(keys).Draw(t, "key"), cost: 1 / float64(max(1, w))}
				ids++
				entries[it] = real.Push(it.key, w, uint64(it.order), it)
				model.push(it)
				in = append(in, it)
			},
			"pop": func(t *rapid.T) {
				want := model.next()
				got := real.Pop()
				if want == nil || got == nil {
					if want != nil || got != nil {
						t.Fatalf("Pop: %v, want %v", got, want)
					}
					return
				}
				if got.Item != want || got != entries[want] {
					t.Fatalf("Pop: item %d of %q, want %d of %q", got.Item.id, got.Item.key, want.id, want.key)
				}
				model.drop(want, true)
				out(&in, want)
				taken = append(taken, want)
			},
			"return": func(t *rapid.T) {
				if len(taken) == 0 {
					t.Skip("nothing is taken")
				}
				it := rapid.SampledFrom(taken).Draw(t, "item")
				real.Return(entries[it])
				model.giveBack(it)
				out(&taken, it)
				in = append(in, it)
			},
			"remove": func(t *rapid.T) {
				if len(in) == 0 {
					t.Skip("nothing is in")
				}
				it := rapid.SampledFrom(in).Draw(t, "item")
				real.Remove(entries[it])
				real.Remove(entries[it])
				model.drop(it, false)
				out(&in, it)
			},
			"park": func(t *rapid.T) {
				key := rapid.SampledFrom(keys).Draw(t, "key")
				real.Park(key)
				model.park(key)
			},
			"unpark": func(t *rapid.T) {
				key := rapid.SampledFrom(keys).Draw(t, "key")
				real.Unpark(key)
				model.unpark(key)
			},
			"weigh": func(t *rapid.T) {
				if len(in)+len(taken) == 0 {
					t.Skip("no items")
				}
				it := rapid.SampledFrom(slices.Concat(in, taken)).Draw(t, "item")
				w := rapid.SampledFrom(weights).Draw(t, "weight")
				real.SetWeight(entries[it], w)
				it.cost = 1 / float64(max(1, w))
			},
			"": func(t *rapid.T) {
				if real.Len() != len(in) || real.Keys() != len(model.keys) {
					t.Fatalf("%d items and %d keys, want %d and %d", real.Len(), real.Keys(), len(in), len(model.keys))
				}
				if e, want := real.Peek(), model.next(); (e == nil) != (want == nil) || e != nil && e.Item != want {
					t.Fatalf("Peek: %v, want %v", e, want)
				}
				checkFronts(t, &real, &model)
			},
		})
		real.UnparkAll()
		checkOrder(t, &real)
	})
}

// checkFronts expects the first items of each key of the model.
func checkFronts(t *rapid.T, real *turns.Turns[*item], model *naive) {
	var want []int
	for _, k := range model.keys {
		if items := k.items(); len(k.back) > 0 {
			want = append(want, items[0].id)
		}
		if len(k.pushed) > 0 {
			want = append(want, k.pushed[0].id)
		}
	}
	var got []int
	for it := range real.Fronts() {
		got = append(got, it.id)
	}
	for key, n := range real.Counts() {
		if items := len(model.keys[key].items()); n != items {
			t.Fatalf("%q has %d items, want %d", key, n, items)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Fatalf("fronts %v, want %v", got, want)
	}
}

// checkOrder expects that All announces the order of Pop, and that nothing is left after the drain.
func checkOrder(t *rapid.T, real *turns.Turns[*item]) {
	announced := slices.Collect(real.All())
	var got []*item
	for e := real.Pop(); e != nil; e = real.Pop() {
		got = append(got, e.Item)
	}
	if !slices.Equal(announced, got) {
		t.Fatalf("All announced %d items, Pop gave %d, in another order", len(announced), len(got))
	}
	if real.Len() != 0 || real.Keys() != 0 {
		t.Fatalf("%d items and %d keys are left", real.Len(), real.Keys())
	}
}

// TestTurnsDiffer compares the starts, divided by the weight, of two keys with items. Since any
// moment they differ by at most a turn of each, whatever the other keys do.
func TestTurnsDiffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all turns.Turns[string]
		order := uint64(0)
		push := func(key string, weight int) {
			all.Push(key, weight, order, key)
			order++
		}
		wa, wb := rapid.IntRange(1, 100).Draw(t, "weight of a"), rapid.IntRange(1, 100).Draw(t, "weight of b")
		steps := rapid.IntRange(1, 400).Draw(t, "steps")
		for range steps + 1 {
			push("a", wa)
			push("b", wb)
		}
		most := 1/float64(wa) + 1/float64(wb) + 1e-9
		var low, high, diff float64
		for range steps {
			if rapid.Bool().Draw(t, "another") {
				push(rapid.SampledFrom([]string{"c", "d", "e"}).Draw(t, "key"), rapid.IntRange(1, 100).Draw(t, "weight"))
			}
			switch e := all.Pop(); e.Item {
			case "a":
				diff += 1 / float64(wa)
			case "b":
				diff -= 1 / float64(wb)
			}
			low, high = min(low, diff), max(high, diff)
			if high-low > most {
				t.Fatalf("the keys differ by %v turns, at most %v are right", high-low, most)
			}
			if first := max(1/float64(wa), 1/float64(wb)) + 1e-9; math.Abs(diff) > first {
				t.Fatalf("since they came together the keys differ by %v turns, at most %v are right", diff, first)
			}
		}
	})
}

// TestWeights shows the shares of keys with the weights 1, 2 and 5.
func TestWeights(t *testing.T) {
	var all turns.Turns[string]
	const starts = 8000
	for i := range starts {
		for key, w := range map[string]int{"one": 1, "two": 2, "five": 5} {
			all.Push(key, w, uint64(i), key)
		}
	}
	got := map[string]int{}
	for range starts {
		got[all.Pop().Item]++
	}
	for key, want := range map[string]int{"one": 1000, "two": 2000, "five": 5000} {
		if d := got[key] - want; d < -1 || d > 1 {
			t.Errorf("%s started %d times, want %d", key, got[key], want)
		}
	}
}

// TestOneAtATime shows that a key with one item at a time gets no more turns than a key with a
// backlog: its tag is kept while it has no item.
func TestOneAtATime(t *testing.T) {
	var all turns.Turns[string]
	for i := range 1000 {
		all.Push("backlog", 1, uint64(i), "backlog")
	}
	got := map[string]int{}
	all.Push("single", 1, 0, "single")
	for i := range 500 {
		key := all.Pop().Item
		if got[key]++; key == "single" {
			all.Push("single", 1, uint64(i), "single")
		}
	}
	if d := got["single"] - got["backlog"]; d < -1 || d > 1 {
		t.Errorf("the starts are %v, want as many of each", got)
	}
}

// TestReturnAfterAPause shows that returned items give back their turns, and no more: the key has
// no credit for the time in which it had no items.
func TestReturnAfterAPause(t *testing.T) {
	var all turns.Turns[string]
	var taken []*turns.Entry[string]
	for i := range 10 {
		all.Push("away", 1, uint64(i), "away")
	}
	for range 10 {
		taken = append(taken, all.Pop())
	}
	for i := range 1000 {
		all.Push("busy", 1, uint64(i), "busy")
	}
	for range 500 {
		all.Pop()
	}
	for i := range 100 {
		all.Push("away", 1, uint64(100+i), "later")
	}
	for _, e := range taken {
		all.Return(e)
	}
	for i := range 10 {
		if e := all.Pop(); e.Item != "away" {
			t.Fatalf("item %d is of %q, want the returned ones first", i, e.Item)
		}
	}
	got := map[string]int{}
	for range 20 {
		got[all.Pop().Item]++
	}
	if got["later"] > 11 {
		t.Errorf("after its returned items the key started %v", got)
	}
}

func BenchmarkTurns(b *testing.B) {
	for _, keys := range []int{1, 10, 1000, 100_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			names := make([]string, keys)
			for i := range names {
				names[i] = fmt.Sprint("customer ", i)
			}
			var all turns.Turns[int]
			for i := range 2 * keys {
				all.Push(names[i%keys], 1, uint64(i), i)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				all.Push(names[i%keys], 1, uint64(i), i)
				all.Pop()
			}
		})
	}
}
