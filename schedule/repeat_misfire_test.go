package schedule_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/when"
)

// TestScheduledRepeatsKeepTheirBase shows that a late run of a repeat does not move the later ones,
// for any number of missed runs and any policy.
func TestScheduledRepeatsKeepTheirBase(t *testing.T) {
	for _, c := range []struct {
		repeat  string
		policy  schedule.Misfire
		away    time.Duration
		watched time.Duration
		poll    time.Duration // 0: the default
		want    string
	}{
		{"SCHEDULED, +1 MINUTE", schedule.MisfireOnce, 65 * time.Second, 3 * time.Minute, 0, "1m5s 2m0s 3m0s 4m0s"},
		{"SCHEDULED, +1 MINUTE", schedule.MisfireOnce, 365*24*time.Hour + 5*time.Second, 2 * time.Minute, 0, "8760h0m5s 8760h1m0s 8760h2m0s"},
		{"SCHEDULED, +1 MINUTE", schedule.MisfireSkip, 10*time.Minute + 5*time.Second, 2 * time.Minute, 0, "11m0s 12m0s"},
		{"SCHEDULED, +1 MINUTE", schedule.MisfireAll(3), 10*time.Minute + 5*time.Second, 2 * time.Minute, 0, "10m5s 10m5s 10m5s 11m0s 12m0s"},
		{"SCHEDULED, +1 MONTH", schedule.MisfireOnce, 33 * 24 * time.Hour, 60 * 24 * time.Hour, time.Minute, "792h0m0s 1440h0m0s 2184h0m0s"},
		{"STARTED, +1 MINUTE", schedule.MisfireOnce, 65 * time.Second, 2 * time.Minute, 0, "1m5s 2m5s 3m5s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			store, j := memory(t), &journal{}
			s := scheduled(t, schedule.Config{Store: store})
			spec, err := when.ParseRepeat(c.repeat)
			if err != nil {
				t.Fatal(err)
			}
			l := teller(t, j, schedule.ListenerConfig{Store: store, Workers: 1, Poll: c.poll})
			add(t, s, schedule.BySpec(spec), tell.Call("x"), schedule.WithMisfire(c.policy))
			time.Sleep(c.away)
			stop := running(t, l)
			time.Sleep(c.watched + time.Second)
			stop()
			got := strings.ReplaceAll(strings.Join(j.all(), " "), "x at ", "")
			if got != c.want {
				t.Errorf("%s %q, away for %v: ran at %s, want %s", c.repeat, c.policy, c.away, got, c.want)
			}
		})
	}
}
