package when

import (
	"errors"
	"strings"
	"testing"
)

func TestSpecErrorSaysAll(t *testing.T) {
	t.Parallel()
	err := error(&SpecError{Input: "every 45 minutes", Understood: "every", Problem: "45 does not divide 60", Nearest: "every 30 minutes"})
	if !errors.Is(err, ErrBadSpec) {
		t.Error("does not wrap ErrBadSpec")
	}
	const want = `when: bad spec "every 45 minutes": understood "every", but 45 does not divide 60; ` +
		`for example, this is accepted: "every 30 minutes"`
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
}

func TestRefusalsRepeatLittle(t *testing.T) {
	t.Parallel()
	for _, in := range []string{strings.Repeat("ü", 1<<20), "\xff\xfe" + strings.Repeat("\xff", 1<<20), "x"} {
		if got := shorten(in); len(got) > quoted+3 || strings.ToValidUTF8(got, "") != got {
			t.Errorf("shorten gave %d bytes, %q", len(got), got)
		}
	}
}
