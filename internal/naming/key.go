package naming

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of fairness: the length of a key in bytes, and the largest weight.
const (
	MaxKey    = 255
	MaxWeight = 100
)

// ValidKey reports whether s may be the fairness key of a task: at most [MaxKey] bytes of UTF-8
// without control characters. "" is valid.
func ValidKey(s string) bool {
	return len(s) <= MaxKey && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
