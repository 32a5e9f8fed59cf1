package natsbroker

import (
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/connect/natsconnect"
)

// TestServerClock shows that delays use the server's clock, which here is 5 minutes ahead of this
// process's wall clock. The uncertainty of that clock makes no message early.
func TestServerClock(t *testing.T) {
	b, err := New(Config{Connect: natsconnect.Config{URLs: []string{"nats://localhost:1"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	const ahead, trip = 5 * time.Minute, 10 * time.Millisecond
	heard := time.Now().Add(-20 * time.Second)
	c := &serverClock{serverAt: heard.Round(0).Add(ahead), askedAt: heard.Add(-trip), heardAt: heard, checked: heard}
	b.features.Store(&features{})
	b.clock.Store(c)
	before := c.latest()
	got, err := b.dueTime(t.Context(), time.Now().Add(time.Minute))
	if most := c.latest().Add(time.Minute); err != nil || got.Before(before.Add(time.Minute)) || got.After(most) {
		t.Errorf("in a minute is %v, %v; want %v to %v", got, err, before.Add(time.Minute), most)
	}
	wall := time.Now().Round(0).Add(ahead + time.Minute)
	if got, err := b.dueTime(t.Context(), wall); err != nil || !got.Equal(wall) {
		t.Errorf("a time on the wall, %v, became %v, %v", wall, got, err)
	}
	for name, at := range map[string]time.Time{
		"now": time.Now(), "no time": {}, "past for the server alone": time.Now().Round(0).Add(ahead - time.Minute),
	} {
		if got, err := b.dueTime(t.Context(), at); err != nil || !got.IsZero() {
			t.Errorf("%s: due(%v) = %v, %v; want no time", name, at, got, err)
		}
	}
	at := c.latest().Add(time.Minute)
	if got := b.untilDue(at); got > time.Minute+trip || got < at.Sub(c.latest()) {
		t.Errorf("a message that is due in a minute waits %v", got)
	}
}
