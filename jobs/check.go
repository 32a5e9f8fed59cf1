package jobs

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/when"
)

// The problems of a [FieldError].
const (
	missing   = "missing"
	malformed = "malformed"
	tooLong   = "too long"
)

// checkField looks at a name or a key, which may be empty if it is optional.
func checkField(field, text string, optional bool) error {
	switch {
	case text == "" && optional:
		return nil
	case text == "":
		return &FieldError{Field: field, Problem: missing}
	case checkText(field, text) != nil:
		return &FieldError{Field: field, Problem: malformed}
	}
	return nil
}

// checkGiven looks at data and returns them without the blanks around; nil stays nil.
func checkGiven(data []byte) ([]byte, error) {
	if data == nil {
		return nil, nil
	}
	data = bytes.Trim(data, " \t\r\n")
	switch {
	case len(data) > MaxData:
		return nil, longerThan("data", len(data), MaxData)
	case CheckData(data) != nil:
		return nil, &FieldError{Field: "data", Problem: malformed}
	}
	return data, nil
}

// longerThan refuses a field for its bytes.
func longerThan(field string, n, most int) error {
	return &FieldError{Field: field, Problem: tooLong, Detail: fmt.Sprintf("%d bytes, at most %d", n, most)}
}

// checkPriority looks at a priority that may be unset.
func checkPriority(p task.Opt[int]) error {
	if n, set := p.Get(); set && (n < -MaxPriority || n > MaxPriority) {
		return &FieldError{Field: "jobPriority", Problem: malformed}
	}
	return nil
}

// checkTime looks at a time that may be zero and returns it in UTC and whole microseconds, never earlier.
func checkTime(field string, t time.Time) (time.Time, error) {
	if t.IsZero() {
		return t, nil
	}
	t = micros(t)
	if !inRange(t) {
		return t, &FieldError{Field: field, Problem: malformed}
	}
	return t, nil
}

// micros returns t in UTC and in microseconds, rounded up: nothing is to be due early.
func micros(t time.Time) time.Time {
	t = t.UTC()
	if cut := t.Truncate(time.Microsecond); !cut.Equal(t) {
		return cut.Add(time.Microsecond)
	}
	return t.Round(0)
}

// storable is micros, or the last time that a job may hold where t is later.
func storable(t time.Time) time.Time {
	if last := time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC); t.After(last) {
		return last
	}
	return micros(t)
}

// inRange tells whether a job may hold t.
func inRange(t time.Time) bool { return t.Year() >= 0 && t.Year() <= 9999 }

func refusal(field string, err error) error {
	var spec *when.SpecError
	if errors.As(err, &spec) {
		return &FieldError{Field: field, Problem: malformed, Detail: spec.Problem}
	}
	return &FieldError{Field: field, Problem: malformed}
}

// checkRetryAfter returns a RetryAfter as it is kept: one modifier with a sign.
func checkRetryAfter(text string) (string, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return "", nil
	}
	if _, err := parseRetryAfter(text); err != nil {
		return "", err
	}
	return text, nil
}

func parseRetryAfter(text string) (*when.Repeat, error) {
	if (text[0] != '+' && text[0] != '-') || strings.Contains(text, ",") {
		return nil, &FieldError{Field: "retryAfter", Problem: malformed, Detail: "it is not one modifier with a sign, as +5 MINUTES"}
	}
	r, err := when.ParseRepeat("STARTED, " + text)
	if err != nil {
		return nil, refusal("retryAfter", err)
	}
	return r, nil
}

// cutReason makes a text one that a job may hold as its Reason.
func cutReason(text string) string {
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "\uFFFD")
	if len(text) <= MaxReason {
		return text
	}
	text = text[:MaxReason]
	for len(text) > 0 {
		if r, n := utf8.DecodeLastRuneInString(text); r != utf8.RuneError || n != 1 {
			break
		}
		text = text[:len(text)-1]
	}
	return text
}

// wholeMicros rounds d up.
func wholeMicros(d time.Duration) time.Duration {
	if cut := d.Truncate(time.Microsecond); cut != d {
		return cut + time.Microsecond
	}
	return d
}
