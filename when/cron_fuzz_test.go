package when

import (
	"testing"
	"time"
)

// checkSpec checks the properties that hold for every spec.
func checkSpec(t *testing.T, s Spec, after time.Time) {
	t.Helper()
	again, err := Parse(s.String())
	if err != nil {
		t.Fatalf("%q does not read back: %v", s, err)
	}
	if again.String() != s.String() {
		t.Fatalf("%q reads back as %q", s, again)
	}
	for range 3 {
		next, ok := s.Next(after)
		same, okSame := again.Next(after)
		if ok != okSame || !next.Equal(same) {
			t.Fatalf("%q after %s: %s %v, but read back %s %v", s, after, next, ok, same, okSame)
		}
		if !ok {
			return
		}
		if !next.After(after) {
			t.Fatalf("%q after %s: %s", s, after, next)
		}
		if next.Location() != time.UTC || next.Nanosecond() != 0 {
			t.Fatalf("%q after %s: %s is not in whole seconds of UTC", s, after, next)
		}
		after = next
	}
}

func FuzzCron(f *testing.F) {
	for _, c := range cronCases {
		f.Add(c.cron, int64(1763596800))
	}
	for _, text := range badCrons {
		if len(text) < 200 {
			f.Add(text, int64(-1<<63))
		}
	}
	f.Add("* * * * * * *", int64(1<<63-1))
	f.Fuzz(func(t *testing.T, text string, after int64) {
		if spec, err := ParseCron(text); err == nil {
			checkSpec(t, spec, time.Unix(after, 1))
		}
	})
}

func FuzzCron5(f *testing.F) {
	for _, c := range cron5Cases {
		f.Add(c.cron, int64(1763596800))
	}
	for _, c := range dstCases {
		f.Add("TZ="+c.zone+" "+c.cron, int64(1774742400))
	}
	f.Fuzz(func(t *testing.T, text string, after int64) {
		if spec, err := ParseCron5(text, nil); err == nil {
			checkSpec(t, spec, time.Unix(after, 1))
		}
	})
}
