package schedule

import (
	"fmt"
	"strings"
	"time"
)

// When says when something is to be run, for [Schedule.Add]. The zero value says nothing and is refused.
type When struct {
	make func(now time.Time) (Spec, string, error)
}

// Now is at once.
func Now() When {
	return When{func(now time.Time) (Spec, string, error) {
		s, err := Once(now.Truncate(time.Second)) // the second that has begun, so that it is due
		return s, "", err
	}}
}

// After is once, a time from now. It is rounded up to the whole second, so that it is never early; 0 is [Now].
func After(d time.Duration) When {
	if d == 0 {
		return Now()
	}
	return When{func(now time.Time) (Spec, string, error) {
		if d < 0 {
			return nil, "", fmt.Errorf("%w: %v from now is over", ErrSpec, d)
		}
		s, err := Once(now.Add(d))
		return s, "", err
	}}
}

// AtTime is once, at an instant that is not over, rounded up to the whole second.
func AtTime(t time.Time) When {
	return When{func(time.Time) (Spec, string, error) {
		s, err := Once(t)
		return s, "", err
	}}
}

// ByCron is what seven fields of cron say, the year first, in UTC: ByCron("* * * 1-5 9 0 0"). See [ParseCron].
func ByCron(text string) When {
	return When{func(time.Time) (Spec, string, error) {
		s, err := ParseCron(text)
		return s, "", err
	}}
}

// BySpec is whatever a spec says. A store whose layout has seven fields of UTC refuses those that do not fit ([ErrUnsupported]).
func BySpec(s Spec) When {
	return When{func(time.Time) (Spec, string, error) {
		if s == nil {
			return nil, "", fmt.Errorf("%w: no spec", ErrSpec)
		}
		return s, "", nil
	}}
}

// spec makes the spec at a time, with its first run.
func (w When) spec(now time.Time) (s Spec, first time.Time, said string, err error) {
	if w.make == nil {
		return nil, first, "", fmt.Errorf("%w: no When", ErrSpec)
	}
	if s, said, err = w.make(now); err != nil {
		return nil, first, "", err
	}
	if first = from(s, now); first.IsZero() {
		return nil, first, "", fmt.Errorf("%w: %q: it never runs after %s", ErrSpec, shorten(s.String()), now.UTC().Format(time.RFC3339))
	}
	return s, first, said, nil
}

// echo says when the first run is, and how far from now.
func echo(first, now time.Time, in *time.Location) string {
	d := first.Sub(now)
	if d <= 0 {
		return first.In(in).Format(echoTime) + ", now"
	}
	if d > time.Minute {
		d = d.Round(time.Minute)
	} else {
		d = d.Round(time.Second)
	}
	text := d.String()
	if d >= time.Minute {
		text = strings.TrimSuffix(text, "0s")
	}
	if d >= time.Hour && strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return first.In(in).Format(echoTime) + ", in " + text
}

const echoTime = "Mon 2 Jan 2006 15:04:05 MST"
