package when

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// ErrBadSpec is wrapped by all errors about a spec, a phrase or a zone. Their details are a
// [SpecError].
var ErrBadSpec = errors.New("when: bad spec")

// Spec is a set of times: a pure function of time. Implementations are safe for concurrent use.
type Spec interface {
	// Next returns the first instant strictly after t, in UTC and in whole seconds. After the last
	// instant it returns false; do not call it again then. A call takes about a millisecond at most.
	Next(t time.Time) (next time.Time, ok bool)
	// String returns a text that [Parse] parses to an equal spec. Specs with the same text are equal.
	String() string
}

// SpecError describes an input that was refused. It wraps [ErrBadSpec].
type SpecError struct {
	Input      string // the input, shortened if it is long
	Understood string // the part that was understood; "": no part
	Problem    string // the problem of the rest
	Nearest    string // the nearest accepted form, or an example; may be ""
}

// Error returns all fields that are set, in one sentence.
func (e *SpecError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %q: ", ErrBadSpec, e.Input)
	if e.Understood != "" {
		fmt.Fprintf(&b, "understood %q, but ", e.Understood)
	}
	b.WriteString(e.Problem)
	if e.Nearest != "" {
		fmt.Fprintf(&b, "; for example, this is accepted: %q", e.Nearest)
	}
	return b.String()
}

// Unwrap returns [ErrBadSpec].
func (e *SpecError) Unwrap() error { return ErrBadSpec }

// quoted is the maximum length of an input in an error, in bytes.
const quoted = 120

// shorten returns an input as errors show it: at most quoted bytes, then "..." if it was cut.
// Invalid UTF-8 becomes "?".
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
