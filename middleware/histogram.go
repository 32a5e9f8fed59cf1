package middleware

import (
	"iter"
	"math"
	"math/bits"
	"sync/atomic"
)

// subBuckets is the number of buckets for each power of two. The relative error of a percentile is
// at most 1/subBuckets.
const (
	subBits    = 4
	subBuckets = 1 << subBits
	buckets    = (64 - subBits + 1) * subBuckets
)

// Histogram counts non-negative values. Count, sum, minimum and maximum are exact. Percentiles come
// from buckets and are at most 6.25 % too high. The standard deviation comes from the middles of
// the buckets. Negative values count as 0. The zero value is empty and ready for use. Safe for
// concurrent use. It must not be copied.
//
// The histogram of go-metrics keeps only a sample of the values, so its sum is not exact. It also
// needs ten times as much time.
type Histogram struct {
	sum    atomic.Int64
	max    atomic.Int64
	below  atomic.Int64 // math.MaxInt64 minus the smallest value
	bucket [buckets]atomic.Int64
}

// bucketOf returns the index of the bucket for v. Each value below subBuckets has its own bucket.
// Larger values with the same subBits+1 highest bits share a bucket.
func bucketOf(v int64) int {
	if v < subBuckets {
		return int(v)
	}
	shift := bits.Len64(uint64(v)) - subBits - 1
	return shift*subBuckets + int(uint64(v)>>shift)
}

// bucketTop returns the largest value of a bucket.
func bucketTop(i int) int64 {
	if i < 2*subBuckets {
		return int64(i)
	}
	shift := i/subBuckets - 1
	top := uint64(i-shift*subBuckets+1)<<shift - 1
	return int64(min(top, math.MaxInt64))
}

// Update records v. Every task calls it several times, so it writes as few shared words as it can:
// all that the buckets tell is computed from them when it is asked for.
func (h *Histogram) Update(v int64) {
	v = max(v, 0)
	raise(&h.below, math.MaxInt64-v)
	raise(&h.max, v)
	h.sum.Add(v)
	h.bucket[bucketOf(v)].Add(1)
}

// raise sets n to v if v is larger.
func raise(n *atomic.Int64, v int64) {
	for old := n.Load(); v > old && !n.CompareAndSwap(old, v); old = n.Load() {
	}
}

// Clear removes all values. Parts of concurrent updates may remain.
func (h *Histogram) Clear() {
	for i := range h.bucket {
		h.bucket[i].Store(0)
	}
	h.sum.Store(0)
	h.max.Store(0)
	h.below.Store(0)
}

// Count returns the number of values.
func (h *Histogram) Count() int64 {
	var n int64
	for i := range h.bucket {
		n += h.bucket[i].Load()
	}
	return n
}

// Sum returns the sum of all values.
func (h *Histogram) Sum() int64 { return h.sum.Load() }

// Max returns the largest value, or 0 without values.
func (h *Histogram) Max() int64 { return h.max.Load() }

// Min returns the smallest value, or 0 without values.
func (h *Histogram) Min() int64 {
	if h.Count() == 0 {
		return 0
	}
	return math.MaxInt64 - h.below.Load()
}

// Mean returns the mean, or 0 without values.
func (h *Histogram) Mean() float64 {
	n := h.Count()
	if n == 0 {
		return 0
	}
	return float64(h.sum.Load()) / float64(n)
}

// Variance returns the variance of the values, as if each were the middle of its bucket. Without
// values it returns 0.
func (h *Histogram) Variance() float64 {
	s := h.Snapshot() // both loops need the same counts
	n, mean := float64(s.Count()), 0.0
	if n == 0 {
		return 0
	}
	for top, count := range s.Buckets() {
		mean += middle(top) * float64(count) / n
	}
	variance := 0.0
	for top, count := range s.Buckets() {
		variance += (middle(top) - mean) * (middle(top) - mean) * float64(count) / n
	}
	return variance
}

// middle returns the middle of the bucket whose largest value is top.
func middle(top int64) float64 {
	bottom := bucketTop(bucketOf(top)-1) + 1
	return (float64(bottom) + float64(top)) / 2
}

// StdDev returns the square root of Variance.
func (h *Histogram) StdDev() float64 { return math.Sqrt(h.Variance()) }

// Percentile returns the smallest value that at least the fraction p (0 to 1) of all values do not
// exceed. It may be 6.25 % too high. Without values it returns 0.
func (h *Histogram) Percentile(p float64) float64 { return h.Percentiles([]float64{p})[0] }

// Percentiles returns the percentile of each p in ps, in their order, as Percentile does.
func (h *Histogram) Percentiles(ps []float64) []float64 {
	var counts [buckets]int64
	var total int64
	for i := range h.bucket {
		counts[i] = h.bucket[i].Load()
		total += counts[i]
	}
	out := make([]float64, len(ps))
	if total == 0 {
		return out
	}
	largest := h.max.Load()
	for k, p := range ps {
		want := int64(math.Ceil(p * float64(total)))
		var seen int64
		for i, n := range counts {
			if seen += n; n > 0 && seen >= want {
				out[k] = float64(min(bucketTop(i), largest))
				break
			}
		}
	}
	return out
}

// Buckets iterates over the buckets with values in ascending order: the largest value of the
// bucket, and its number of values. The number of values up to v is exact if v is the largest value
// of a bucket, such as 2^n-1.
func (h *Histogram) Buckets() iter.Seq2[int64, int64] {
	return func(yield func(top, count int64) bool) {
		for i := range h.bucket {
			if n := h.bucket[i].Load(); n > 0 && !yield(bucketTop(i), n) {
				return
			}
		}
	}
}

// Snapshot returns a copy of the histogram. It may contain parts of concurrent updates.
func (h *Histogram) Snapshot() *Histogram {
	s := new(Histogram)
	for i := range h.bucket {
		s.bucket[i].Store(h.bucket[i].Load())
	}
	s.sum.Store(h.sum.Load())
	s.below.Store(h.below.Load())
	s.max.Store(h.max.Load())
	return s
}
