package when

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Promises: B52, B53, B54, B55, B57, B58, B59.
func TestRepeatTable(t *testing.T) {
	t.Parallel()
	const scheduled, started, finished = "2026-11-20 13:00:00", "2026-11-20 13:15:00", "2026-11-20 13:45:30"
	for _, c := range []struct{ text, want, canonical string }{
		{"SCHEDULED, +1 HOUR", "2026-11-20 14:00:00", ""},
		{"STARTED, +1 HOUR", "2026-11-20 14:15:00", ""},
		{"FINISHED, +1 HOUR", "2026-11-20 14:45:30", ""},
		{"FINISHED, +1 DAY, START OF DAY, +4 HOURS", "2026-11-21 04:00:00", ""},
		{"FINISHED, +1 DAY, WEEKDAY 1, START OF DAY, +6 HOURS", "2026-11-23 06:00:00", ""},
		{"HOURLY", "2026-11-20 14:45:30", ""},
		{"DAILY", "2026-11-21 13:45:30", ""},
		{"WEEKLY", "2026-11-27 13:45:30", ""},
		{"weekly", "2026-11-27 13:45:30", "WEEKLY"},
		{"finished,+ 1 hour", "2026-11-20 14:45:30", "FINISHED, +1 HOUR"},
		{" ,, Scheduled ,, +1  Hours,,", "2026-11-20 14:00:00", "SCHEDULED, +1 HOURS"},
		{"SCHEDULED, -1 HOUR", "2026-11-20 12:00:00", ""},
		{"SCHEDULED, +90 SECONDS", "2026-11-20 13:01:30", ""},
		{"SCHEDULED, +99999999 SECONDS", "2030-01-20 22:46:39", ""},
		{"SCHEDULED, +1 SECOND", "2026-11-20 13:00:01", ""},
		{"SCHEDULED, +999 MINUTES", "2026-11-21 05:39:00", ""},
		{"SCHEDULED, +999 DAYS", "2029-08-15 13:00:00", ""},
		{"SCHEDULED, +999 MONTHS", "2110-02-20 13:00:00", ""},
		{"SCHEDULED, +999 YEARS", "3025-11-20 13:00:00", ""},
		{"SCHEDULED, -0 DAYS", "2026-11-20 13:00:00", ""},
		{"SCHEDULED, +007 DAYS", "2026-11-27 13:00:00", ""},
		{"SCHEDULED, WEEKDAY 5", "2026-11-20 13:00:00", ""}, // already a Friday
		{"SCHEDULED, WEEKDAY 4", "2026-11-26 13:00:00", ""},
		{"SCHEDULED, WEEKDAY 0", "2026-11-22 13:00:00", ""},
		{"FINISHED, START OF HOUR", "2026-11-20 13:00:00", ""},
		{"FINISHED, START OF MONTH, +1 MONTH", "2026-12-01 00:00:00", ""},
		{"FINISHED, START OF YEAR", "2026-01-01 00:00:00", ""},
		{"FINISHED, START OF MONTH, +1 MONTH, -1 DAY", "2026-11-30 00:00:00", ""},
		// 31 October plus a month
		{"FINISHED, START OF MONTH, -1 DAY, +1 MONTH", "2026-12-01 00:00:00", ""},
		{"FINISHED, START OF YEAR, +30 DAYS, +1 MONTH", "2026-03-03 00:00:00", ""},
		{"FINISHED, +2 YEARS, START OF YEAR, +30 DAYS, +1 MONTH", "2028-03-02 00:00:00", ""},
		// 29 February plus a year
		{"FINISHED, +2 YEARS, START OF YEAR, +59 DAYS, +1 YEAR", "2029-03-01 00:00:00", ""},
		{"FINISHED, -11 MONTHS, START OF MONTH", "2025-12-01 00:00:00", ""},
		{"SCHEDULED" + strings.Repeat(", +999 YEARS", 7) + ", +950 YEARS", "9969-11-20 13:00:00", ""},
		{"SCHEDULED" + strings.Repeat(", +999 YEARS", 8), "", ""},
		{"SCHEDULED" + strings.Repeat(", -999 YEARS", 3), "", ""},
		{"SCHEDULED, -999 YEARS, -999 YEARS, -28 YEARS", "0000-11-20 13:00:00", ""},
		{"SCHEDULED, -999 YEARS, -999 YEARS, -29 YEARS", "", ""},
		// a step between may be outside the years
		{"SCHEDULED, -999 YEARS, -999 YEARS, -999 YEARS, +999 YEARS", "0028-11-20 13:00:00", ""},
		{"SCHEDULED" + strings.Repeat(", -999 YEARS", 7) + strings.Repeat(", +999 YEARS", 7), "", ""},
	} {
		r, err := ParseRepeat(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if c.canonical == "" {
			c.canonical = c.text
		}
		if r.String() != c.canonical {
			t.Errorf("%s: written as %s", c.text, r)
		}
		got, err := r.After(at(t, scheduled), at(t, started), at(t, finished).Add(999*time.Millisecond))
		if c.want == "" {
			if !errors.Is(err, ErrBadSpec) {
				t.Errorf("%s: got %s, %v", c.text, got, err)
			}
			continue
		}
		if err != nil || got.Format("2006-01-02 15:04:05") != c.want || got.Location() != time.UTC {
			t.Errorf("%s: got %s, %v; want %s", c.text, got, err, c.want)
		}
	}
}

// Promises: B60.
func TestRepeatRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", ",", " , ", "SCHEDULED", "SCHEDULED,", "+1 HOUR", "HOURLY, +1 HOUR", "DAILY,HOURLY", "NEVER", "MONTHLY", "SCHEDULED +1 HOUR",
		"SCHEDULED, 1 HOUR", "SCHEDULED, +1", "SCHEDULED, +HOUR", "SCHEDULED, + HOUR", "SCHEDULED, +1HOUR", "SCHEDULED, +1 HOURSS", "SCHEDULED, +1 WEEK",
		"SCHEDULED, +1000 HOURS", "SCHEDULED, +100000000 SECONDS", "SCHEDULED, +999999999999 YEARS", "SCHEDULED, +1.5 HOURS", "SCHEDULED, ++1 HOUR",
		"SCHEDULED, +-1 HOUR", "SCHEDULED, +1 HOUR 5 MINUTES", "SCHEDULED, WEEKDAY", "SCHEDULED, WEEKDAY 7", "SCHEDULED, WEEKDAY -1", "SCHEDULED, WEEKDAY 01",
		"SCHEDULED, WEEKDAY MONDAY", "SCHEDULED, START OF WEEK", "SCHEDULED, START OF MINUTE", "SCHEDULED, START DAY", "SCHEDULED, STARTOF DAY",
		"SCHEDULED, STARTED, +1 HOUR", "SCHEDULED, LOCALTIME", "SCHEDULED, +1 HOUR; DROP TABLE jobs", "SCHEDULED, +1 HOUR'", "SCHEDULED, +١ HOUR", "ſCHEDULED, +1 HOUR",
		"SCHEDULED, +1 HOUR\x00", "SCHEDULED" + strings.Repeat(", +1 HOUR", 1000),
	} {
		if r, err := ParseRepeat(text); !errors.Is(err, ErrBadSpec) || r != nil {
			t.Errorf("%q: %v, %v", shorten(text), r, err)
		}
	}
	_, err := ParseRepeat("SCHEDULED, +1 DAY, WEEKDAY 7")
	const want = `when: bad spec "SCHEDULED, +1 DAY, WEEKDAY 7": understood "SCHEDULED, +1 DAY", but "WEEKDAY 7" has no day from 0 (Sunday) to 6; ` +
		`for example, this is accepted: "FINISHED, +1 DAY"`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestRepeatSnaps(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"HOURLY": "2026-11-20 14:00:00", "daily": "2026-11-21 00:00:00", "WEEKLY": "2026-11-22 00:00:00", "FINISHED, +1 HOUR": "2026-11-20 14:45:30",
	} {
		r, err := RepeatConfig{Snap: true}.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		now := at(t, "2026-11-20 13:45:30")
		if got := runs(r, now, 1)[0]; got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
		checkSpec(t, r, now)
	}
	weekly, err := RepeatConfig{Snap: true}.Parse("WEEKLY")
	if err != nil {
		t.Fatal(err)
	}
	if got := runs(weekly, at(t, "2026-11-22"), 1)[0]; got != "2026-11-29 00:00:00" {
		t.Errorf("WEEKLY on a Sunday: %s", got)
	}
}

func TestRepeatAsSpec(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"SCHEDULED, +1 HOUR":                      "2026-11-20 14:00:00, 15:00:00",
		"STARTED, +1 DAY, START OF DAY, +4 HOURS": "2026-11-21 04:00:00, 2026-11-22 04:00:00",
		"FINISHED, -1 HOUR":                       "never",
		"FINISHED, START OF DAY":                  "never",
		"FINISHED, +0 SECONDS":                    "never",
		"SCHEDULED, +999 YEARS":                   "3025-11-20 13:00:00, 4024-11-20 13:00:00, 5023-11-20 13:00:00",
		// then it stays on the same day
		"FINISHED, START OF DAY, +14 HOURS":                 "2026-11-20 14:00:00, never",
		"FINISHED, +1 MONTH, START OF MONTH, +1 MONTH":      "2027-01-01 00:00:00, 2027-03-01 00:00:00",
		"SCHEDULED, +999 YEARS, +999 YEARS, +999 YEARS":     "5023-11-20 13:00:00, 8020-11-20 13:00:00, never",
		"SCHEDULED, +999 YEARS, -999 YEARS, +1 DAY, -1 DAY": "never",
	} {
		r, err := ParseRepeat(text)
		if err != nil {
			t.Fatal(err)
		}
		all := expand(want)
		if got := runs(r, at(t, "2026-11-20 13:00:00"), len(all)); strings.Join(got, ", ") != strings.Join(all, ", ") {
			t.Errorf("%s: got %s, want %s", text, got, all)
		}
	}
	for base, name := range map[RepeatBase]string{Scheduled: "SCHEDULED", Started: "STARTED", Finished: "FINISHED", 7: "RepeatBase(7)"} {
		if base.String() != name {
			t.Errorf("%d is called %s", int(base), base)
		}
	}
	r, err := ParseRepeat("STARTED, +1 DAY, WEEKDAY 1, START OF DAY, -30 MINUTES")
	if err != nil {
		t.Fatal(err)
	}
	const want = "from when the last run started, +1 day, on to Monday, back to the start of the day, -30 minutes, UTC"
	if got := Describe(r); got != want || r.Base() != Started {
		t.Errorf("%s, base %v", got, r.Base())
	}
}

func TestRepeatInterval(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"SCHEDULED, +1 HOUR": time.Hour, "FINISHED, +2 DAYS, -30 MINUTES": 47*time.Hour + 30*time.Minute, "STARTED, -5 SECONDS": -5 * time.Second,
		"HOURLY": time.Hour, "FINISHED, +1 MONTH": 0, "FINISHED, +1 HOUR, START OF HOUR": 0, "FINISHED, WEEKDAY 1": 0, "SCHEDULED, +1 YEAR": 0,
	} {
		r, err := ParseRepeat(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Interval(); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// genRepeat generates valid repeats.
func genRepeat() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		mod := rapid.Custom(func(t *rapid.T) string {
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				return "WEEKDAY " + fmt.Sprint(rapid.IntRange(0, 6).Draw(t, "day"))
			case 1:
				return "START OF " + rapid.SampledFrom([]string{"DAY", "MONTH", "YEAR"}).Draw(t, "unit")
			case 2:
				return fmt.Sprintf("%+d %s", rapid.IntRange(-9999, 99999999).Draw(t, "n"), rapid.SampledFrom([]string{"SECOND", "SECONDS"}).Draw(t, "unit"))
			default:
				return fmt.Sprintf("%+d %s", rapid.IntRange(-999, 999).Draw(t, "n"), rapid.SampledFrom([]string{
					"YEAR", "YEARS", "MONTH", "MONTHS", "DAY", "DAYS", "HOUR", "HOURS", "MINUTE", "MINUTES",
				}).Draw(t, "unit"))
			}
		})
		base := rapid.SampledFrom(baseNames[:]).Draw(t, "base")
		return base + ", " + strings.Join(rapid.SliceOfN(mod, 1, 8).Draw(t, "mods"), ", ")
	})
}

func TestRepeatsReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		text := genRepeat().Draw(r, "repeat")
		spec, err := ParseRepeat(text)
		if err != nil {
			r.Fatal(err)
		}
		if spec.String() != text {
			r.Fatalf("%s is written as %s", text, spec)
		}
		checkSpec(t, spec, time.Unix(rapid.Int64Range(-1<<40, 1<<40).Draw(r, "after"), 0))
	})
}

func FuzzRepeat(f *testing.F) {
	for _, text := range []string{
		"SCHEDULED, +1 HOUR", "FINISHED, +1 DAY, WEEKDAY 1, START OF DAY, +6 HOURS", "hourly", "finished,+ 1 hour,,", "SCHEDULED, +99999999 SECONDS",
		"STARTED, -999 YEARS, START OF MONTH", "SCHEDULED, WEEKDAY 7", "WEEKLY, +1 DAY",
	} {
		f.Add(text, int64(1763596800), true)
	}
	f.Add("DAILY", int64(1<<63-1), false)
	f.Add("SCHEDULED, -1 YEAR", int64(-1<<63), false)
	f.Fuzz(func(t *testing.T, text string, after int64, snap bool) {
		r, err := RepeatConfig{Snap: snap}.Parse(text)
		if err != nil {
			return
		}
		at := time.Unix(after, 1)
		if next, err := r.After(at, at, at); err == nil && (next.Year() < 0 || next.Year() > 9999) {
			t.Fatalf("%q after %s: %s", text, at, next)
		}
		checkSpec(t, r, at)
	})
}
