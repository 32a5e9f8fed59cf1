package sqljobs

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestClockIsALowerBound shows that the clock is never ahead of the server's clock, whatever the
// answers and their delays. It also follows a server whose clock is set back.
func TestClockIsALowerBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		start := time.Now()
		offset := 17 * time.Hour // of the server's clock from the local clock
		server := func() int64 { return time.Now().Add(offset).UnixMicro() }
		ask := func(there, back time.Duration) {
			asked := time.Now()
			time.Sleep(there)
			us := server()
			time.Sleep(back)
			c.set(us, asked)
		}
		check := func(what string, behind time.Duration) {
			t.Helper()
			if late := time.Duration(server()-c.now()) * time.Microsecond; late < 0 || late > behind {
				t.Errorf("%s, after %v: %v behind the server", what, time.Since(start), late)
			}
		}
		for range 2 {
			if !c.old() {
				t.Error("a clock that was never set is not old")
			}
		}
		ask(time.Millisecond, 3*time.Millisecond)
		c.askEnded()
		check("the first answer", 4*time.Millisecond)
		if c.old() {
			t.Error("a fresh answer is old")
		}
		time.Sleep(900 * time.Millisecond)
		check("with the drift", 5*time.Millisecond)
		time.Sleep(200 * time.Millisecond)
		if !c.old() || c.old() {
			t.Error("an old answer is to be asked for by one, and by one alone")
		}
		before := c.now()
		ask(0, 40*time.Millisecond) // a slow answer is lower than the known bound
		c.askEnded()
		check("a slow answer", 6*time.Millisecond)
		if c.now() < before {
			t.Error("the clock went back")
		}
		c.note(server())
		check("a time that came with another answer", 0)
		offset -= time.Minute
		ask(time.Millisecond, time.Millisecond)
		check("a server that was set back", 2*time.Millisecond)
		offset += time.Hour
		ask(time.Millisecond, time.Millisecond)
		check("a server that was set forward", 2*time.Millisecond)
	})
}
