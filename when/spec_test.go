package when

import (
	"errors"
	"strings"
	"testing"
	"time"
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

// TestHintKeepsThePlural: the example for a misspelt unit is good English.
func TestHintKeepsThePlural(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"in 5 minuts": "in 5 minutes", "in 1 minut": "in 1 minute", "in 2 dayes": "in 2 days"} {
		_, err := ParsePhrase(text, time.Now())
		var spec *SpecError
		if !errors.As(err, &spec) || spec.Nearest != want {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

// TestUnknownZone shows that each form with an unknown zone is refused. The error names the zone
// and the next step.
func TestUnknownZone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"CRON_TZ=Mars/Olympus * * * * 9 0 0", "TZ=Mars/Olympus 0 9 * * *", "WINDOWS Mars/Olympus 09:00-17:00", "every day at 9am Mars/Olympus",
	} {
		_, err := Parse(text)
		if strings.HasPrefix(text, "TZ=") {
			_, err = ParseCron5(text, nil)
		} else if strings.HasPrefix(text, "every") {
			_, err = ParsePhrase(text, time.Now())
		}
		const next = `is unknown here: check the name, install the zone files (tzdata), or import _ "time/tzdata" in your program`
		if !errors.Is(err, ErrBadSpec) || !strings.Contains(err.Error(), `"Mars/Olympus"`) || !strings.HasSuffix(err.Error(), next) {
			t.Errorf("%q: %v", text, err)
		}
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
