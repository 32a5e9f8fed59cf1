package naming_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/internal/naming"
)

// every yields texts of all lengths up to a little beyond the limit. Some of them have every byte
// at every position.
func every(yield func(string)) {
	for n := range naming.MaxName + 3 {
		s := strings.Repeat("a", n)
		yield(s)
		if n > 40 && n < naming.MaxName-1 {
			continue
		}
		b := []byte(s)
		for i := range b {
			for c := range 256 {
				b[i] = byte(c)
				yield(string(b))
			}
			b[i] = 'a'
		}
	}
}

func TestNames(t *testing.T) {
	const alphanumeric = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	every(func(s string) {
		want := s != "" && len(s) <= naming.MaxName && strings.Trim(s, alphanumeric+"._-") == "" && strings.Trim(s[:1], alphanumeric) == ""
		if got := naming.ValidName(s); got != want {
			t.Fatalf("ValidName(%q) is %v", s, got)
		}
	})
}

func TestIDs(t *testing.T) {
	every(func(s string) {
		want := s != "" && len(s) <= naming.MaxName && !strings.ContainsFunc(s, func(r rune) bool { return r < 0x21 || r > 0x7e })
		if got := naming.ValidID(s); got != want {
			t.Fatalf("ValidID(%q) is %v", s, got)
		}
	})
}

func TestASCII(t *testing.T) {
	every(func(s string) {
		want := !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf })
		if got := naming.ASCII(s); got != want {
			t.Fatalf("ASCII(%q) is %v", s, got)
		}
	})
}
