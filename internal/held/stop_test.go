package held_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/internal/held"
)

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			ends   time.Duration
			killed time.Duration // time to end after kill
			want   bool
			kills  int
			took   time.Duration
		}{
			{ends: time.Second, want: true, took: time.Second},
			{ends: time.Hour, killed: time.Second, want: true, kills: 1, took: 11 * time.Second},
			{ends: time.Hour, killed: time.Hour, kills: 1, took: 15 * time.Second},
		} {
			var wg sync.WaitGroup
			kill := make(chan struct{})
			wg.Go(func() {
				select {
				case <-time.After(c.ends):
				case <-kill:
					time.Sleep(c.killed)
				}
			})
			began, kills := time.Now(), 0
			ended := held.Over(&wg)
			got := held.Stop(ended, 10*time.Second, func() { kills++; close(kill) }, 5*time.Second)
			if took := time.Since(began); got != c.want || kills != c.kills || took != c.took {
				t.Errorf("%+v: %v after %v, %d kills", c, got, took, kills)
			}
			<-ended
		}
	})
}
