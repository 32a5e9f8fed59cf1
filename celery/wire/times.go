package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// The layout of a time in a header. Python refuses more than six digits of a second.
const timeLayout = "2006-01-02T15:04:05.000000-07:00"

// The layout of a time in a result: UTC, without an offset.
const naiveLayout = "2006-01-02T15:04:05.000000"

// layouts are those of the times that are read. Go reads a fraction of a second in each of them.
var layouts = []string{
	"2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05",
	"2006-01-02T15:04:05Z0700", "2006-01-02T15:04Z07:00", "2006-01-02T15:04", "2006-01-02",
}

// FormatTime returns t as Celery writes the times of headers: in UTC with an offset and
// microseconds.
func FormatTime(t time.Time) string { return t.UTC().Format(timeLayout) }

// ParseTime returns the time that s means, in whole milliseconds. A time without an offset is UTC,
// as older producers write it. Times outside the years 1970 to 9998 are clamped. Returns
// [serializer.ErrMalformed] for another text.
func ParseTime(s string) (time.Time, error) {
	if len(s) <= 64 {
		for _, layout := range layouts {
			if t, err := time.Parse(layout, s); err == nil {
				return serializer.FromMilli(serializer.Milli(t)), nil
			}
		}
	}
	return time.Time{}, fmt.Errorf("%w: %q is not an ISO 8601 time", serializer.ErrMalformed, utf.Cut(s, 64))
}

// number returns the number v, of any type that a broker or a decoder gives. It returns false for
// another value.
func number(v any) (float64, bool) {
	switch n := v.(type) {
	case int:
		return float64(n), true
	case int8:
		return float64(n), true
	case int16:
		return float64(n), true
	case int32:
		return float64(n), true
	case int64:
		return float64(n), true
	case uint8:
		return float64(n), true
	case uint16:
		return float64(n), true
	case uint32:
		return float64(n), true
	case uint64:
		return float64(n), true
	case float32:
		return float64(n), true
	case float64:
		return n, !math.IsNaN(n)
	case json.Number:
		f, err := n.Float64()
		return f, err == nil
	}
	return 0, false
}

// count returns the whole number v, clamped by [serializer.Count]. nil is 0.
func count(v any) (int, error) {
	if v == nil {
		return 0, nil
	}
	f, ok := number(v)
	if !ok || f != math.Trunc(f) || f < 0 {
		return 0, errors.New("want a whole number")
	}
	return serializer.Count(int64(min(f, math.MaxInt32))), nil
}

// seconds returns v seconds as a duration, rounded up to milliseconds and at most
// [task.MaxTimeLimit].
func seconds(v any) (time.Duration, error) {
	f, ok := number(v)
	if !ok || f < 0 {
		return 0, errors.New("want a number of seconds")
	}
	return serializer.FromMillis(int64(math.Ceil(min(f, task.MaxTimeLimit.Seconds()) * 1000))), nil
}

// inSeconds returns d as a number of seconds: a whole one as an int64.
func inSeconds(d time.Duration) any {
	if d%time.Second == 0 {
		return int64(d / time.Second)
	}
	return float64(serializer.Millis(d)) / 1000
}
