package memjobs

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"sort"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// placeOf is an entry of an order and its sort key: major, then minor, then id. Orders that need
// fewer keys leave the others zero.
type placeOf[R any] struct {
	major, minor int64
	id           jobstore.ID
	rec          R
}

// entry is a job in an order.
type entry = placeOf[*record]

// compare compares the sort keys of two entries, as cmp.Compare does.
func (e placeOf[R]) compare(o placeOf[R]) int {
	if c := cmp.Compare(e.major, o.major); c != 0 {
		return c
	}
	if c := cmp.Compare(e.minor, o.minor); c != 0 {
		return c
	}
	return cmp.Compare(e.id, o.id)
}

// orderOf contains sorted entries in blocks. A search looks for the block, then within the block.
// Adding or removing an entry moves entries of one block. The zero value is empty.
type orderOf[R any] struct {
	blocks [][]placeOf[R] // no block is empty
	n      int            // number of entries
}

// order is an order of jobs.
type order = orderOf[*record]

// blockSize is the maximum number of entries in a block.
const blockSize = 256

// seek returns the block and the index of e, or the position at which it must be inserted. found
// reports whether o contains e. A block of len(o.blocks) means that e sorts after all entries.
func (o *orderOf[R]) seek(e placeOf[R]) (block, i int, found bool) {
	if len(o.blocks) > 0 { // the usual case: a search for the first entry
		if c := o.blocks[0][0].compare(e); c >= 0 {
			return 0, 0, c == 0
		}
	}
	block = sort.Search(len(o.blocks), func(b int) bool {
		last := o.blocks[b][len(o.blocks[b])-1]
		return last.compare(e) >= 0
	})
	if block == len(o.blocks) {
		return block, 0, false
	}
	i, found = slices.BinarySearchFunc(o.blocks[block], e, placeOf[R].compare)
	return block, i, found
}

// add inserts e, which o must not contain. A full block is split in two.
func (o *orderOf[R]) add(e placeOf[R]) {
	o.n++
	b, i, _ := o.seek(e)
	if b == len(o.blocks) { // the usual case: keys that increase
		if b == 0 || len(o.blocks[b-1]) == blockSize {
			o.blocks = append(o.blocks, []placeOf[R]{e})
			return
		}
		b--
		i = len(o.blocks[b])
	}
	if len(o.blocks[b]) == blockSize {
		upper := make([]placeOf[R], blockSize/2, blockSize)
		copy(upper, o.blocks[b][blockSize/2:])
		clear(o.blocks[b][blockSize/2:])
		o.blocks[b] = o.blocks[b][:blockSize/2]
		o.blocks = slices.Insert(o.blocks, b+1, upper)
		if i > blockSize/2 {
			b, i = b+1, i-blockSize/2
		}
	}
	o.blocks[b] = slices.Insert(o.blocks[b], i, e)
}

// remove removes the entry with the sort key of e, and does nothing if o does not contain it. It
// deletes an empty block. It joins a block with the next if both together fill at most half a
// block.
func (o *orderOf[R]) remove(e placeOf[R]) {
	b, i, found := o.seek(e)
	if !found {
		return
	}
	o.n--
	o.blocks[b] = slices.Delete(o.blocks[b], i, i+1)
	switch {
	case len(o.blocks[b]) == 0:
		o.blocks = slices.Delete(o.blocks, b, b+1)
	case b+1 < len(o.blocks) && len(o.blocks[b])+len(o.blocks[b+1]) <= blockSize/2:
		o.blocks[b] = append(o.blocks[b], o.blocks[b+1]...)
		o.blocks = slices.Delete(o.blocks, b+1, b+2)
	}
}

// from yields the entries from e on, in order. o need not contain e. The order must not change
// meanwhile.
func (o *orderOf[R]) from(e placeOf[R]) iter.Seq[placeOf[R]] {
	return func(yield func(placeOf[R]) bool) {
		b, i, _ := o.seek(e)
		for ; b < len(o.blocks); b, i = b+1, 0 {
			for _, e := range o.blocks[b][i:] {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// start sorts before all entries.
var start = entry{major: math.MinInt64, minor: math.MinInt64}

// dueBy appends to found at most limit records with a time up to by that want accepts; a nil want
// accepts all. It returns the longer list, in the order of o. The order must be one by priority,
// time and id. only, if not nil, is the wanted priority.
//
// It reads at most budget entries. whole is false if more would have been needed; the list is then
// incomplete.
func (o *orderOf[R]) dueBy(found []R, by int64, only *int, limit, budget int, want func(R) bool) (more []R, whole bool) {
	at := placeOf[R]{major: math.MinInt64, minor: math.MinInt64}
	if only != nil {
		at.major = int64(*only)
	}
	return o.dueFrom(at, found, by, only, limit, budget, want)
}

// dueFrom is dueBy for the entries from at on: it appends at most limit records with a time up to
// by that want accepts. whole is false if budget entries were not enough. If only is not nil, at
// must have that priority.
func (o *orderOf[R]) dueFrom(at placeOf[R], found []R, by int64, only *int, limit, budget int, want func(R) bool) (more []R, whole bool) {
	limit += len(found)
	for again := true; again; {
		again = false
		for e := range o.from(at) {
			if only != nil && e.major != int64(*only) {
				return found, true
			}
			if budget--; budget < 0 {
				return found, false
			}
			if e.minor > by { // all later entries of this priority are also later
				at = placeOf[R]{major: e.major + 1, minor: math.MinInt64}
				again = only == nil
				break
			}
			if want != nil && !want(e.rec) {
				continue
			}
			if found = append(found, e.rec); len(found) == limit {
				return found, true
			}
		}
	}
	return found, true
}
