package utf_test

import (
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/internal/utf"
)

func TestCutIsBoundedUTF8(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		max := rapid.IntRange(0, 40).Draw(t, "max")
		s := utf.Cut(string(b), max)
		if len(s) > max || !utf8.ValidString(s) {
			t.Fatalf("%q cut to %d gave %q", b, max, s)
		}
		if utf8.Valid(b) && len(b) <= max && s != string(b) {
			t.Fatalf("%q was changed to %q", b, s)
		}
	})
	if s := utf.Cut("añb", 2); s != "a" {
		t.Fatalf("a character was cut in two: %q", s)
	}
}
