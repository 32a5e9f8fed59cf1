// Package utf cuts texts.
package utf

import (
	"strings"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/internal/keyset"
)

// Cut returns s as valid UTF-8 of at most max bytes, cut at a character's border. What is so already comes back as it is.
func Cut(s string, max int) string {
	if len(s) <= max && keyset.ASCII(s) {
		return s
	}
	s = strings.ToValidUTF8(atRune(s, max), "\uFFFD")
	return atRune(s, max) // what was replaced may have grown
}

// atRune returns at most the first max bytes of s, without a character that would be cut in two.
func atRune(s string, max int) string {
	if len(s) <= max {
		return s
	}
	end := max
	for i := 1; i < utf8.UTFMax && end-i >= 0; i++ { // step back over a character that crosses the border
		if utf8.RuneStart(s[end-i]) {
			if !utf8.FullRuneInString(s[end-i : end]) {
				end -= i
			}
			break
		}
	}
	return s[:end]
}
