package schedule

import (
	"fmt"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/when"
)

// When says when something is to be run, for [Schedule.Add]. The zero value says nothing and is refused.
type When struct {
	make func(now time.Time) (when.Spec, string, error)
}

// Now is at once.
func Now() When {
	return When{func(now time.Time) (when.Spec, string, error) {
		s, err := when.Once(now.Truncate(time.Second)) // the second that has begun, so that it is due
		return s, "", err
	}}
}

// After is once, a time from now. It is rounded up to the whole second, so that it is never early; 0 is [Now].
func After(d time.Duration) When {
	if d == 0 {
		return Now()
	}
	return When{func(now time.Time) (when.Spec, string, error) {
		if d < 0 {
			return nil, "", fmt.Errorf("%w: %v from now is over", when.ErrBadSpec, d)
		}
		s, err := when.Once(now.Add(d))
		return s, "", err
	}}
}

// AtTime is once, at an instant that is not over, rounded up to the whole second.
func AtTime(t time.Time) When {
	return When{func(time.Time) (when.Spec, string, error) {
		s, err := when.Once(t)
		return s, "", err
	}}
}

// In is once, after what the words say: In("5 minutes"), In("1 hour and 30 minutes"). See [when.ParsePhrase].
func In(text string) When { return words("in", text) }

// At is once, at the moment that the words name: At("7pm tomorrow"), At("noon on friday"), At("2026-11-21 19:00"). See [when.ParsePhrase].
func At(text string) When { return words("at", text) }

// Every is again and again: Every("15 minutes"), Every("weekday at 9am"). See [when.ParsePhrase].
func Every(text string) When { return words("every", text) }

// ByPhrase is what a whole phrase says, its first word included: ByPhrase("in 5 minutes").
func ByPhrase(text string) When {
	return When{func(now time.Time) (when.Spec, string, error) {
		p, err := when.ParsePhrase(text, now)
		if err != nil {
			return nil, "", err
		}
		return p.Spec, p.Echo, nil
	}}
}

// words is a phrase whose first word is known; the text may begin with it or not.
func words(first, text string) When {
	if head, _, _ := strings.Cut(strings.TrimSpace(text), " "); strings.EqualFold(head, first) {
		return ByPhrase(text)
	}
	return ByPhrase(first + " " + text)
}

// ByCron is what seven fields of cron say, the year first, in UTC: ByCron("* * * 1-5 9 0 0"). See [when.ParseCron].
func ByCron(text string) When {
	return When{func(time.Time) (when.Spec, string, error) {
		s, err := when.ParseCron(text)
		return s, "", err
	}}
}

// BySpec is whatever a spec says, such as one of [when.ParseCron5], which reads the five fields of ordinary cron, in any zone.
func BySpec(s when.Spec) When {
	return When{func(time.Time) (when.Spec, string, error) {
		if s == nil {
			return nil, "", fmt.Errorf("%w: no spec", when.ErrBadSpec)
		}
		return s, "", nil
	}}
}

// spec makes the spec at a time, with its first run.
func (w When) spec(now time.Time) (s when.Spec, first time.Time, said string, err error) {
	if w.make == nil {
		return nil, first, "", fmt.Errorf("%w: no When", when.ErrBadSpec)
	}
	if s, said, err = w.make(now); err != nil {
		return nil, first, "", err
	}
	if first = from(s, now); first.IsZero() {
		return nil, first, "", fmt.Errorf("%w: %.120q: it never runs after %s", when.ErrBadSpec, s.String(), now.UTC().Format(time.RFC3339))
	}
	return s, first, said, nil
}

// echo says how a spec was understood, and when its first run is.
func echo(s when.Spec, first, now time.Time) string {
	at := when.DescribeTime(first, now)
	if after(s, first).IsZero() {
		return at
	}
	return when.Describe(s) + "; first " + at
}
