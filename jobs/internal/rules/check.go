package rules

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/when"
)

// The problems of a [jobstore.FieldError].
const (
	Missing   = "missing"
	Malformed = "malformed"
	tooLong   = "too long"
)

// CheckField checks a name or a key, which the error calls field. Returns nil if text has 1 to
// MaxName bytes of UTF-8 without a NUL, or if it is empty and optional. Returns a FieldError
// otherwise.
func CheckField(field, text string, optional bool) error {
	switch {
	case text == "" && optional:
		return nil
	case text == "":
		return &jobstore.FieldError{Field: field, Problem: Missing}
	case jobstore.CheckText(field, text) != nil:
		return &jobstore.FieldError{Field: field, Problem: Malformed}
	}
	return nil
}

// CheckGiven returns data without surrounding white space. nil stays nil. Returns a FieldError
// unless the rest is a JSON object of at most MaxData bytes.
func CheckGiven(data []byte) ([]byte, error) {
	if data == nil {
		return nil, nil
	}
	data = bytes.Trim(data, " \t\r\n")
	switch {
	case len(data) > jobstore.MaxData:
		return nil, LongerThan("data", len(data), jobstore.MaxData)
	case jobstore.CheckData(data) != nil:
		return nil, &jobstore.FieldError{Field: "data", Problem: Malformed, Detail: `want a JSON object, such as {"page": 1}`}
	}
	return data, nil
}

// LongerThan returns the FieldError for a field of n bytes whose limit is most bytes. It compares
// nothing.
func LongerThan(field string, n, most int) error {
	return &jobstore.FieldError{Field: field, Problem: tooLong, Detail: fmt.Sprintf("%d bytes, at most %d", n, most)}
}

// CheckPriority returns a FieldError if p is set and outside -MaxPriority to MaxPriority. An unset
// p is valid.
func CheckPriority(p task.Opt[int]) error {
	if n, set := p.Get(); set && (n < -jobstore.MaxPriority || n > jobstore.MaxPriority) {
		return &jobstore.FieldError{Field: "jobPriority", Problem: Malformed, Detail: fmt.Sprintf("%d is not from %d to %d", n, -jobstore.MaxPriority, jobstore.MaxPriority)}
	}
	return nil
}

// CheckTime returns t in UTC, rounded up to microseconds. A zero time stays zero. Returns a
// FieldError if the year is outside 0000 to 9999.
func CheckTime(field string, t time.Time) (time.Time, error) {
	if t.IsZero() {
		return t, nil
	}
	t = Micros(t)
	if !InRange(t) {
		return t, &jobstore.FieldError{Field: field, Problem: Malformed}
	}
	return t, nil
}

// Micros returns t in UTC, rounded up to microseconds, so that no job is due early. The result has
// no monotonic clock reading.
func Micros(t time.Time) time.Time {
	t = t.UTC()
	if cut := t.Truncate(time.Microsecond); !cut.Equal(t) {
		return cut.Add(time.Microsecond)
	}
	return t.Round(0)
}

// Storable returns t as Micros does, in UTC and rounded up to microseconds. A time after the year
// 9999 becomes the last microsecond of that year.
func Storable(t time.Time) time.Time {
	if last := time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC); t.After(last) {
		return last
	}
	return Micros(t)
}

// InRange reports whether the year of t is in 0000 to 9999, so that a job may contain t.
func InRange(t time.Time) bool { return t.Year() >= 0 && t.Year() <= 9999 }

// Refusal returns the FieldError, Malformed, for a field whose text could not be parsed. err is the
// error of package when. The problem that err names becomes the Detail; for any other error the
// Detail is empty.
func Refusal(field string, err error) error {
	var spec *when.SpecError
	if errors.As(err, &spec) {
		return &jobstore.FieldError{Field: field, Problem: Malformed, Detail: spec.Problem}
	}
	return &jobstore.FieldError{Field: field, Problem: Malformed}
}

// CheckRetryAfter returns the text of a RetryAfter without surrounding white space. "" is valid.
// Returns a FieldError if the text is not one modifier with a sign, such as "+5 MINUTES".
func CheckRetryAfter(text string) (string, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return "", nil
	}
	if _, err := ParseRetryAfter(text); err != nil {
		return "", err
	}
	return text, nil
}

// ParseRetryAfter parses a RetryAfter, which must not be "", into a rule that counts from the start
// of a run. Returns a FieldError if the text is not one modifier with a sign, such as "+5 MINUTES".
func ParseRetryAfter(text string) (*when.Repeat, error) {
	if (text[0] != '+' && text[0] != '-') || strings.Contains(text, ",") {
		return nil, &jobstore.FieldError{Field: "retryAfter", Problem: Malformed, Detail: "it is not one modifier with a sign, as +5 MINUTES"}
	}
	r, err := when.ParseRepeat("STARTED, " + text)
	if err != nil {
		return nil, Refusal("retryAfter", err)
	}
	return r, nil
}

// CutReason returns text as valid UTF-8 without NUL bytes, cut to at most MaxReason bytes at the
// end of a character. Each run of invalid bytes becomes U+FFFD.
func CutReason(text string) string {
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "\uFFFD")
	if len(text) <= jobstore.MaxReason {
		return text
	}
	text = text[:jobstore.MaxReason]
	for len(text) > 0 {
		if r, n := utf8.DecodeLastRuneInString(text); r != utf8.RuneError || n != 1 {
			break
		}
		text = text[:len(text)-1]
	}
	return text
}

// WholeMicros returns d rounded up to microseconds. d must not be negative.
func WholeMicros(d time.Duration) time.Duration {
	if cut := d.Truncate(time.Microsecond); cut != d {
		return cut + time.Microsecond
	}
	return d
}
