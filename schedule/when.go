package schedule

import (
	"fmt"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/when"
)

// When holds the times of an entry, for [Schedule.Add]. The zero value is invalid: Add returns an
// error that wraps [when.ErrBadSpec].
type When struct {
	make func(now time.Time) (when.Spec, string, error)
}

// Now runs the entry once, at once: it is due in the current second.
func Now() When {
	return When{func(now time.Time) (when.Spec, string, error) {
		s, err := when.Once(now.Truncate(time.Second)) // the current second, so that the entry is due
		return s, "", err
	}}
}

// After runs the entry once, after d from now, rounded up to the whole second. After(0) is [Now].
// With a negative d, Add returns an error that wraps [when.ErrBadSpec].
func After(d time.Duration) When {
	if d == 0 {
		return Now()
	}
	return When{func(now time.Time) (when.Spec, string, error) {
		if d < 0 {
			return nil, "", fmt.Errorf("%w: After(%v) lies in the past", when.ErrBadSpec, d)
		}
		s, err := when.Once(now.Add(d))
		return s, "", err
	}}
}

// AtTime runs the entry once, at t, rounded up to the whole second. With a time in a past second,
// Add returns an error that wraps [when.ErrBadSpec].
func AtTime(t time.Time) When {
	return When{func(time.Time) (when.Spec, string, error) {
		s, err := when.Once(t)
		return s, "", err
	}}
}

// In runs the entry once, after the duration in text: In("5 minutes"), In("1 hour and 30 minutes").
// See [when.ParsePhrase].
func In(text string) When { return words("in", text) }

// At runs the entry once, at the time in text: At("7pm tomorrow"), At("noon on friday"),
// At("2026-11-21 19:00"). See [when.ParsePhrase].
func At(text string) When { return words("at", text) }

// Every runs the entry repeatedly: Every("15 minutes"), Every("weekday at 9am"). See
// [when.ParsePhrase].
func Every(text string) When { return words("every", text) }

// ByPhrase runs the entry at the times of a whole phrase, including its first word: ByPhrase("in 5
// minutes"). The phrase is parsed by Add, in Config.Location; see [when.ParsePhrase].
func ByPhrase(text string) When {
	return When{func(now time.Time) (when.Spec, string, error) {
		p, err := when.ParsePhrase(text, now)
		if err != nil {
			return nil, "", err
		}
		return p.Spec, p.Echo, nil
	}}
}

// words returns the When of a phrase that begins with the word first, in any case of letters. If
// text does not begin with that word, words adds it.
func words(first, text string) When {
	if head, _, _ := strings.Cut(strings.TrimSpace(text), " "); strings.EqualFold(head, first) {
		return ByPhrase(text)
	}
	return ByPhrase(first + " " + text)
}

// ByCron runs the entry at the times of seven cron fields in UTC, the year first. See
// [when.ParseCron].
//
//	schedule.ByCron("* * * 1-5 9 0 0")
func ByCron(text string) When {
	return When{func(time.Time) (when.Spec, string, error) {
		s, err := when.ParseCron(text)
		return s, "", err
	}}
}

// BySpec runs the entry at the times of a spec. [when.ParseCron5] returns a spec for the usual five
// cron fields in any time zone. With a nil spec, Add returns an error that wraps [when.ErrBadSpec].
func BySpec(s when.Spec) When {
	return When{func(time.Time) (when.Spec, string, error) {
		if s == nil {
			return nil, "", fmt.Errorf("%w: BySpec got nil", when.ErrBadSpec)
		}
		return s, "", nil
	}}
}

// spec returns the spec of w, the spec's first time in the second of now or later, and how a phrase
// was understood; said is "" if w was not made from a phrase.
//
// The error wraps [when.ErrBadSpec]: w is the zero value, its text or time is invalid, or the spec
// has no such time.
func (w When) spec(now time.Time) (s when.Spec, first time.Time, said string, err error) {
	if s, said, err = w.parse(now); err != nil {
		return nil, first, "", err
	}
	if first = from(s, now); first.IsZero() {
		return nil, first, "", errOver(s, now)
	}
	return s, first, said, nil
}

// parse returns the spec of w and how a phrase was understood, as spec does, but accepts a spec
// without a further run.
func (w When) parse(now time.Time) (s when.Spec, said string, err error) {
	if w.make == nil {
		return nil, "", fmt.Errorf("%w: the When is its zero value; use Now, In, At, Every or ByCron", when.ErrBadSpec)
	}
	return w.make(now)
}

// errOver returns the error for a spec that has no run after now.
func errOver(s when.Spec, now time.Time) error {
	return fmt.Errorf("%w: %.120q never runs after %s", when.ErrBadSpec, s.String(), now.UTC().Format(time.RFC3339))
}

// echo returns an English description of a spec and of its first run; for a spec with one run only
// the description of that run. The date of the run is written relative to now, in the time zone of
// now.
func echo(s when.Spec, first, now time.Time) string {
	at := when.DescribeTime(first, now)
	if after(s, first).IsZero() {
		return at
	}
	return when.Describe(s) + "; first " + at
}
