package bursts

import (
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// TestAloneAgain shows that a repeated Take of an unknown message gets the same answer, since the
// first answer may have been lost.
func TestAloneAgain(t *testing.T) {
	for _, burst := range []task.Burst{{Key: "k", Latest: true}, {Key: "k", Quiet: time.Second}} {
		m := &model{now: time.UnixMilli(1_000_000)}
		s := &Store{&values{m: m}, func() time.Time { return m.now }}
		a := Attempt{ID: "old", Name: "task", Mark: NewMark(&burst)}
		for call := range 3 {
			if taken, err := s.Take(t.Context(), a); err != nil || taken.Step != Start || !taken.Alone {
				t.Errorf("Take %d of %+v: %+v, %v; want Start and Alone", call, burst, taken, err)
			}
		}
	}
}
