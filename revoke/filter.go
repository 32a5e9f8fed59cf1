package revoke

import (
	"hash/maphash"

	"github.com/swarmiji/swarmiji/task"
)

// Sizes of a filter: 4 MiB, in which 1,000,000 ids leave one false answer in 20,000, and 5,000,000 one in 25.
const (
	filterBits  = 1 << 25
	filterLooks = 5
)

// filter is a Bloom filter: it never misses an id that was added, and seldom claims one that was not.
type filter struct {
	seed maphash.Seed
	bits []uint64
	ends int64 // when the last of what was added is forgotten
}

func newFilter() *filter {
	return &filter{seed: maphash.MakeSeed(), bits: make([]uint64, filterBits/64)}
}

// place returns the first place of an id and the distance to the next ones.
func (f *filter) place(id task.ID) (at, step uint64) {
	h := maphash.String(f.seed, string(id))
	return h, h>>32 | 1
}

func (f *filter) add(id task.ID, ends int64) {
	at, step := f.place(id)
	for range filterLooks {
		bit := at % filterBits
		f.bits[bit/64] |= 1 << (bit % 64)
		at += step
	}
	f.ends = max(f.ends, ends)
}

func (f *filter) has(id task.ID) bool {
	at, step := f.place(id)
	for range filterLooks {
		bit := at % filterBits
		if f.bits[bit/64]&(1<<(bit%64)) == 0 {
			return false
		}
		at += step
	}
	return true
}
