// Package utf shortens texts to a number of bytes.
package utf

import (
	"strings"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/internal/naming"
)

// Cut returns s as valid UTF-8 of at most max bytes. It cuts between characters and replaces
// invalid bytes by U+FFFD. A valid text that is short enough is returned unchanged.
func Cut(s string, max int) string {
	if len(s) <= max && naming.ASCII(s) {
		return s
	}
	s = strings.ToValidUTF8(atRune(s, max), "\uFFFD")
	return atRune(s, max) // the replacement may have made it longer
}

// atRune returns at most the first max bytes of s. It leaves out a character that would be cut in
// two.
func atRune(s string, max int) string {
	if len(s) <= max {
		return s
	}
	end := max
	// step back over a character that crosses the limit
	for i := 1; i < utf8.UTFMax && end-i >= 0; i++ {
		if utf8.RuneStart(s[end-i]) {
			if !utf8.FullRuneInString(s[end-i : end]) {
				end -= i
			}
			break
		}
	}
	return s[:end]
}
