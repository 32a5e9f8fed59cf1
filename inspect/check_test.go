package inspect

import (
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/control"
)

// TestClocks: a clock outside of the interval of the question is reported.
func TestClocks(t *testing.T) {
	now := time.Now()
	for off, want := range map[time.Duration]Outcome{
		0: Fine, -time.Hour: Warn, time.Hour: Warn, -3 * time.Second: Warn, 3 * time.Second: Warn, 500 * time.Millisecond: Fine,
	} {
		var f findings
		checkClocks(&f, []control.Reply{{Node: "n", At: now.Add(off)}}, now, now)
		if len(f.list) != 1 || f.list[0].Outcome != want {
			t.Errorf("off by %v: %+v, want %s", off, f.list, want)
		}
	}
}
