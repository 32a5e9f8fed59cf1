package helptext

import "testing"

func TestWrap(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", ""},
		{"one two\nthree", "one two\nthree"},
		{"one\ntwo\n\nthree four five", "one two\n\nthree four\nfive"},
		{"a line\n  kept as it is here\nnext", "a line\n  kept as it is here\nnext"},
		{"averylongwordindeed x", "averylongwordindeed\nx"},
		{"äöü äöü äöü", "äöü äöü\näöü"},
	} {
		if got := wrap(tt.text, 10); got != tt.want {
			t.Errorf("wrap(%q) = %q, want %q", tt.text, got, tt.want)
		}
	}
}
