package membroker

import (
	"testing"
	"time"
)

// Close of the server may stop the clock while another call removes, adds or replaces a delayed
// message.
func TestClockAfterStop(t *testing.T) {
	var c clock
	first, second := &item{due: time.Now().Add(time.Hour)}, &item{due: time.Now().Add(2 * time.Hour)}
	c.add(first)
	c.add(second)
	c.stop()
	c.remove(second)
	c.add(second)
	c.remove(second)
	if len(c.items) != 0 || c.timer.Stop() {
		t.Errorf("after stop the clock has %d items, or its timer runs", len(c.items))
	}
}
