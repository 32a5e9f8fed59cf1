package revoke

import (
	"hash/maphash"

	"github.com/swarmiji/swarmiji/task"
)

// Size of a filter: 4 MiB. It gives one wrong answer in 20,000 with 1,000,000 ids, and one in 25
// with 5,000,000 ids.
const (
	filterBits  = 1 << 25
	filterLooks = 5
)

// filter is a Bloom filter: it finds each added id, and rarely reports an id that was not added.
type filter struct {
	seed maphash.Seed
	bits []uint64
	ends int64 // when all its ids are over
}

// newFilter returns an empty filter with a random seed.
func newFilter() *filter {
	return &filter{seed: maphash.MakeSeed(), bits: make([]uint64, filterBits/64)}
}

// place returns the number of the first bit of an id, modulo filterBits, and the distance between
// its bits.
func (f *filter) place(id task.ID) (at, step uint64) {
	h := maphash.String(f.seed, string(id))
	return h, h>>32 | 1
}

// add adds an id that is revoked until ends, in milliseconds since 1970.
func (f *filter) add(id task.ID, ends int64) {
	at, step := f.place(id)
	for range filterLooks {
		bit := at % filterBits
		f.bits[bit/64] |= 1 << (bit % 64)
		at += step
	}
	f.ends = max(f.ends, ends)
}

// has reports whether id was added, with few wrong positive answers.
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
