package when

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// ErrBadSpec is what every refusal of a spec, a phrase or a zone wraps. Compare with [errors.Is]; the details are a [SpecError].
var ErrBadSpec = errors.New("when: bad spec")

// Spec says when something is to happen: a pure function of time, safe for concurrent use.
type Spec interface {
	// Next returns the first instant strictly after t, in UTC and in whole seconds. It answers false when there is none, and is
	// then never to be asked again. The work is bounded for any spec that was accepted: about a millisecond at most, not
	// a walk through the calendar.
	Next(t time.Time) (next time.Time, ok bool)
	// String is the form that Parse reads back to an equal spec. Two specs with the same text are equal.
	String() string
}

// SpecError is a refusal: what was given, how much of it was understood, what is wrong with the rest, and what would have been
// accepted. It wraps [ErrBadSpec].
type SpecError struct {
	Input      string // what was given, shortened if it was long
	Understood string // how much of it made sense, in the words given; empty: nothing did
	Problem    string // what is wrong
	Nearest    string // the nearest form that is accepted, or an example of one; may be empty
}

// Error says all of it in one sentence.
func (e *SpecError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %q: ", ErrBadSpec, e.Input)
	if e.Understood != "" {
		fmt.Fprintf(&b, "understood %q, but ", e.Understood)
	}
	b.WriteString(e.Problem)
	if e.Nearest != "" {
		fmt.Fprintf(&b, "; accepted is, for example, %q", e.Nearest)
	}
	return b.String()
}

// Unwrap returns [ErrBadSpec].
func (e *SpecError) Unwrap() error { return ErrBadSpec }

// quoted is how much of an input a refusal repeats, in bytes.
const quoted = 120

// shorten cuts what a refusal repeats of an input, which may be long and anything but text.
func shorten(s string) string {
	if len(s) <= quoted {
		return strings.ToValidUTF8(s, "?")
	}
	cut := quoted
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strings.ToValidUTF8(s[:cut], "?") + "..."
}
