package natsbroker

import (
	"strconv"
	"testing"
)

// TestRememberKeepsTheNewest shows that the newest acknowledgements are remembered, also after
// those of one queue were dropped from a full list.
func TestRememberKeepsTheNewest(t *testing.T) {
	for _, dropped := range []int{0, 1, 100} {
		var o outbox
		kept, other := &queue{}, &queue{}
		for i := range dropped {
			o.remember(acked{other, strconv.Itoa(i)})
		}
		n := 0
		add := func(count int) {
			for range count {
				o.remember(acked{kept, strconv.Itoa(n)})
				n++
			}
		}
		add(maxRecent - dropped + maxRecent/2) // the list is full, and its beginning was overwritten
		o.remember(acked{other, "last"})
		o.dropQueue(other)
		add(10)
		seen := make(map[string]bool)
		for _, a := range o.recent {
			seen[a.reply] = true
		}
		for i := n - len(o.recent); i < n; i++ {
			if !seen[strconv.Itoa(i)] {
				t.Fatalf("%d dropped: acknowledgement %d of %d was forgotten, and %d are remembered", dropped, i, n, len(o.recent))
			}
		}
	}
}
