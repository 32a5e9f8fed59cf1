package memjobs

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"sort"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// placeOf is where an entry of R stands in an order, which goes by major, then by minor, then by the id. An order that needs less leaves these zero.
type placeOf[R any] struct {
	major, minor int64
	id           jobstore.ID
	rec          R
}

// entry is a job's place in an order.
type entry = placeOf[*record]

func (e placeOf[R]) compare(o placeOf[R]) int {
	if c := cmp.Compare(e.major, o.major); c != 0 {
		return c
	}
	if c := cmp.Compare(e.minor, o.minor); c != 0 {
		return c
	}
	return cmp.Compare(e.id, o.id)
}

// orderOf keeps entries sorted, in blocks: to find one is a search among blocks and then in one, to add or remove one moves some of a
// single block. The zero value is empty.
type orderOf[R any] struct {
	blocks [][]placeOf[R] // none is empty
	n      int
}

// order is an order of jobs.
type order = orderOf[*record]

// fill is how many entries a block has at most.
const fill = 256

// seek returns where e is, or would be put: at the end of the blocks if it comes after all.
func (o *orderOf[R]) seek(e placeOf[R]) (block, i int, found bool) {
	if len(o.blocks) > 0 { // the usual case of who looks for what comes first
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

// add puts e, which is not there, into its place.
func (o *orderOf[R]) add(e placeOf[R]) {
	o.n++
	b, i, _ := o.seek(e)
	if b == len(o.blocks) { // the usual case of what grows
		if b == 0 || len(o.blocks[b-1]) == fill {
			o.blocks = append(o.blocks, []placeOf[R]{e})
			return
		}
		b--
		i = len(o.blocks[b])
	}
	if len(o.blocks[b]) == fill {
		upper := make([]placeOf[R], fill/2, fill)
		copy(upper, o.blocks[b][fill/2:])
		clear(o.blocks[b][fill/2:])
		o.blocks[b] = o.blocks[b][:fill/2]
		o.blocks = slices.Insert(o.blocks, b+1, upper)
		if i > fill/2 {
			b, i = b+1, i-fill/2
		}
	}
	o.blocks[b] = slices.Insert(o.blocks[b], i, e)
}

// remove takes e out, if it is there.
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
	case b+1 < len(o.blocks) && len(o.blocks[b])+len(o.blocks[b+1]) <= fill/2:
		o.blocks[b] = append(o.blocks[b], o.blocks[b+1]...)
		o.blocks = slices.Delete(o.blocks, b+1, b+2)
	}
}

// from yields the entries from e on. The order must not change meanwhile.
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

// start is before every entry.
var start = entry{major: math.MinInt64, minor: math.MinInt64}

// dueBy appends the first records that are due by a time, at most limit of them, of those that want takes; nil takes all. only is the
// one priority that counts, if it is set. The order is one by priority, time and id. It looks at no more than budget entries, and
// reports whether that was enough for the whole answer.
func (o *orderOf[R]) dueBy(found []R, by int64, only *int, limit, budget int, want func(R) bool) (more []R, whole bool) {
	at := placeOf[R]{major: math.MinInt64, minor: math.MinInt64}
	if only != nil {
		at.major = int64(*only)
	}
	return o.dueFrom(at, found, by, only, limit, budget, want)
}

// dueFrom is dueBy from an entry on.
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
			if e.minor > by { // so are all others of this priority
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
