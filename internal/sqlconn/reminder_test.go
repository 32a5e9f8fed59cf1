package sqlconn

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Every call is followed by sends after at least 5, 50 and 500 ms. Many calls share them.
func TestReminder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		sends := make(map[string][]time.Duration)
		r := newReminder(func(topics []string) {
			for _, topic := range topics {
				sends[topic] = append(sends[topic], time.Since(begun))
			}
		})
		r.add([]string{"a"})
		time.Sleep(time.Second)
		synctest.Wait()
		if want := remindAfter[:]; !slices.Equal(sends["a"], want) {
			t.Errorf("one call sends at %v, want %v", sends["a"], want)
		}
		begun = time.Now()
		calls := make([]time.Duration, 0, 2000)
		for range 2000 {
			r.add([]string{"b"})
			calls = append(calls, time.Since(begun))
			time.Sleep(time.Millisecond / 2)
		}
		r.add([]string{"c"})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if most := int(time.Second/remindAfter[0] + time.Second/remindAfter[1] + 20); len(sends["b"]) > most {
			t.Errorf("2,000 calls within a second send %d times, want at most %d", len(sends["b"]), most)
		}
		for _, after := range remindAfter {
			for _, call := range calls {
				if !slices.ContainsFunc(sends["b"], func(at time.Duration) bool { return at >= call+after && at <= call+2*after }) {
					t.Fatalf("no send in the time from %v to %v after the call at %v: %v", after, 2*after, call, sends["b"])
				}
			}
		}
		if len(sends["c"]) != len(remindAfter) {
			t.Errorf("another topic is sent at %v", sends["c"])
		}
		r.add([]string{"d"})
		r.close()
		r.close()
		r.add([]string{"e"})
		time.Sleep(time.Second)
		if len(sends["d"]) != 0 || len(sends["e"]) != 0 {
			t.Error("topics are sent after close")
		}
	})
}
