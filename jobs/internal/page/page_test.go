package page

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSize shows that pages of small jobs grow step by step, and that pages of large jobs shrink at
// once.
func TestSize(t *testing.T) {
	s := Size{Bytes: 1000, First: 16, Most: 50}
	var limits []int
	for _, each := range []int{1, 1, 1, 100, 100, 2000, 0, 1} {
		limits = append(limits, s.Limit())
		s.Read(s.Limit(), s.Limit()*each)
	}
	s.Read(0, 0)
	if diff := cmp.Diff([]int{16, 32, 50, 50, 10, 10, 1, 2, 4}, append(limits, s.Limit())); diff != "" {
		t.Error(diff)
	}
}
