package schedule_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/schedule/memschedule"
	"github.com/swarmiji/swarmiji/task"
)

// TestOnlyTheStoresClockCounts runs listeners whose own clocks differ from the store's by hours or
// years. Each second of the store runs once, under the id of that second.
// Promises: W36.
func TestOnlyTheStoresClockCounts(t *testing.T) {
	for _, skew := range []time.Duration{-20 * 365 * 24 * time.Hour, -3*time.Hour - 400*time.Millisecond, 3 * time.Hour, 50 * 365 * 24 * time.Hour} {
		t.Run(fmt.Sprint(skew), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				now := func() time.Time { return time.Now().Add(skew) }
				store, err := memschedule.New(memschedule.Config{Name: "skewed", Now: now})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = store.Close(context.Background()) })
				s := scheduled(t, schedule.Config{Store: store})
				first := now().Truncate(time.Second) // the current second counts
				added, err := s.Add(t.Context(), schedule.ByCron("* * * * * * *"), tell.Call("x"))
				if err != nil {
					t.Fatal(err)
				}
				j := &journal{}
				var stops []func()
				for range 3 {
					stops = append(stops, running(t, teller(t, j, schedule.ListenerConfig{Store: store.View()})))
				}
				time.Sleep(10 * time.Second)
				for _, stop := range stops {
					stop()
				}
				want := map[task.ID]bool{}
				for at := first; !at.After(now()); at = at.Add(time.Second) {
					want[schedule.TickID("skewed", added.ID, at)] = true
				}
				// the last second may just have ended
				if ran := len(j.all()); ran != len(j.ids) || ran < len(want)-1 || ran > len(want) {
					t.Errorf("%d runs of %d ticks; %d seconds passed", ran, len(j.ids), len(want))
				}
				for id := range j.ids {
					if !want[id] {
						t.Errorf("a run that is none of the store's seconds: %s", id)
					}
				}
			})
		})
	}
}
