package schedule_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/when"
)

// TestWords shows that In, At and Every accept their word and omit it, use the schedule's time
// zone, and refuse other phrases.
// Promises: W3, W4.
func TestWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // starts on Saturday, 2000-01-01T00:00:00Z
		berlin := time.FixedZone("", 3600)
		utc := scheduled(t, schedule.Config{Store: memory(t)})
		there := scheduled(t, schedule.Config{Store: memory(t), Location: berlin})
		time.Sleep(10*time.Second + 300*time.Millisecond)
		for _, c := range []struct {
			s    *schedule.Schedule
			when schedule.When
			want string
		}{
			{utc, schedule.In("5 minutes"), "2000-01-01T00:05:11Z"},
			{utc, schedule.In("in 5 minutes"), "2000-01-01T00:05:11Z"},
			{utc, schedule.In("0 seconds"), "2000-01-01T00:00:10Z"},
			{utc, schedule.At("now"), "2000-01-01T00:00:10Z"},
			{utc, schedule.Now(), "2000-01-01T00:00:10Z"},
			{utc, schedule.After(time.Millisecond), "2000-01-01T00:00:11Z"},
			{utc, schedule.At(" At 7pm"), "2000-01-01T19:00:00Z"},
			{there, schedule.At("7pm"), "2000-01-01T18:00:00Z"},
			{utc, schedule.Every("15 minutes"), "2000-01-01T00:15:00Z"},
			{utc, schedule.ByPhrase("every day"), "2000-01-02T00:00:00Z"},
		} {
			added, err := c.s.Add(t.Context(), c.when, tell.Call(c.want))
			if err != nil || added.Next.UTC().Format(time.RFC3339) != c.want || added.Echo == "" {
				t.Errorf("want %s, got %+v, %v", c.want, added, err)
			}
		}
		for _, w := range []schedule.When{schedule.In("a while"), schedule.At("in 5 minutes"), schedule.Every("day at 25:00"), schedule.ByPhrase("")} {
			if added, err := utc.Add(t.Context(), w, tell.Call("x")); !errors.Is(err, when.ErrBadSpec) {
				t.Errorf("%+v, %v", added, err)
			}
		}
	})
}
