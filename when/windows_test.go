package when

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Promises: Q28, Q32, Q33, Q34.
func TestWindowsTable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		windows, zone, text string // text: as String returns it; "": as given
		now                 string
		open                bool
		next                string // result of NextOpen
		opens               string // as a Spec
	}{
		{"09:00-17:00", "", "", "2026-11-20 12:00:00", true, "2026-11-20 12:00:00", "2026-11-21 09:00:00, 2026-11-22 09:00:00"},
		{"09:00-17:00", "", "", "2026-11-20 08:59:59", false, "2026-11-20 09:00:00", "2026-11-20 09:00:00"},
		{"09:00-17:00", "", "", "2026-11-20 09:00:00", true, "2026-11-20 09:00:00", "2026-11-21 09:00:00"},
		{"09:00-17:00", "", "", "2026-11-20 16:59:59", true, "2026-11-20 16:59:59", "2026-11-21 09:00:00"},
		{"09:00-17:00", "", "", "2026-11-20 17:00:00", false, "2026-11-21 09:00:00", "2026-11-21 09:00:00"},
		{"22:00-06:00", "", "", "2026-11-20 23:00:00", true, "2026-11-20 23:00:00", "2026-11-21 22:00:00"},
		{"22:00-06:00", "", "", "2026-11-20 05:59:59", true, "2026-11-20 05:59:59", "2026-11-20 22:00:00"},
		{"22:00-06:00", "", "", "2026-11-20 06:00:00", false, "2026-11-20 22:00:00", "2026-11-20 22:00:00"},
		{"09:00-09:00", "", "", "2026-11-20 09:00:00", true, "2026-11-20 09:00:00", "never"},
		{"00:00-24:00", "", "", "2026-11-20 09:00:00", true, "2026-11-20 09:00:00", "never"},
		{"00:00-00:00", "", "", "2026-11-20 09:00:00", true, "2026-11-20 09:00:00", "never"},
		{"18:00-24:00", "", "", "2026-11-20 23:59:59", true, "2026-11-20 23:59:59", "2026-11-21 18:00:00"},
		{"18:00-24:00", "", "", "2026-11-21 00:00:00", false, "2026-11-21 18:00:00", "2026-11-21 18:00:00"},
		{"18:00-24:00,00:00-02:00", "", "WINDOWS 18:00-24:00, 00:00-02:00", "2026-11-21 01:00:00", true, "2026-11-21 01:00:00", "2026-11-21 18:00:00"},
		{"09:00-12:00, 12:00-13:00, 14:00-15:00:30", "", "", "2026-11-20 11:00:00", true, "2026-11-20 11:00:00", "2026-11-20 14:00:00, 2026-11-21 09:00:00"},
		{"09:00-12:00, 10:00-11:00", "", "", "2026-11-20 11:30:00", true, "2026-11-20 11:30:00", "2026-11-21 09:00:00"},
		{"09:00:15-09:00:45", "", "", "2026-11-20 09:00:14", false, "2026-11-20 09:00:15", "2026-11-20 09:00:15"},
		{"mon-fri 09:00-17:00", "", "WINDOWS Mon-Fri 09:00-17:00", "2026-11-20 17:00:00", false, "2026-11-23 09:00:00", "2026-11-23 09:00:00"},
		{"Fri 22:00-06:00", "", "", "2026-11-21 05:00:00", true, "2026-11-21 05:00:00", "2026-11-27 22:00:00"},
		{"Fri 22:00-06:00", "", "", "2026-11-20 05:00:00", false, "2026-11-20 22:00:00", "2026-11-20 22:00:00"},
		{"Sat 22:00-06:00", "", "", "2026-11-22 05:00:00", true, "2026-11-22 05:00:00", "2026-11-28 22:00:00"},
		{"Saturday Sunday 10:00-14:00", "", "WINDOWS Sat Sun 10:00-14:00", "2026-11-20 12:00:00", false, "2026-11-21 10:00:00", "2026-11-21 10:00:00, 2026-11-22 10:00:00, 2026-11-28 10:00:00"},
		{"Fri-Mon 10:00-14:00", "", "WINDOWS Mon Fri-Sun 10:00-14:00", "2026-11-23 15:00:00", false, "2026-11-27 10:00:00", "2026-11-27 10:00:00"},
		{"Mon 09:00-09:00", "", "", "2026-11-24 08:59:59", true, "2026-11-24 08:59:59", "2026-11-30 09:00:00"},
		{"Mon-Sun 09:00-17:00", "", "WINDOWS 09:00-17:00", "2026-11-20 17:00:00", false, "2026-11-21 09:00:00", "2026-11-21 09:00:00"},
		{"09:00-17:00", "+02:00", "WINDOWS +02:00 09:00-17:00", "2026-11-20 07:00:00", true, "2026-11-20 07:00:00", "2026-11-21 07:00:00"},
		{"09:00-17:00", "Europe/Berlin", "WINDOWS Europe/Berlin 09:00-17:00", "2026-11-20 07:00:00", false, "2026-11-20 08:00:00", "2026-11-20 08:00:00"},
		// Set forward: at 01:00 UTC from 02:00 to 03:00.
		{"02:30-05:00", "Europe/Berlin", "", "2026-03-29 00:00:00", false, "2026-03-29 01:00:00", "2026-03-29 01:00:00, 2026-03-30 00:30:00"},
		{"02:10-02:50", "Europe/Berlin", "", "2026-03-29 00:00:00", false, "2026-03-30 00:10:00", "2026-03-30 00:10:00"},
		{"Sun 02:10-02:50", "Europe/Berlin", "", "2026-03-29 00:00:00", false, "2026-04-05 00:10:00", "2026-04-05 00:10:00"},
		{"01:00-02:00, 03:00-04:00", "Europe/Berlin", "", "2026-03-29 00:30:00", true, "2026-03-29 00:30:00", "2026-03-29 23:00:00, 2026-03-30 01:00:00"},
		// Set back: at 01:00 UTC from 03:00 to 02:00.
		{"02:30-02:45", "Europe/Berlin", "", "2026-10-25 00:00:00", false, "2026-10-25 00:30:00", "2026-10-25 00:30:00, 2026-10-25 01:30:00, 2026-10-26 01:30:00"},
		{"02:30-03:30", "Europe/Berlin", "", "2026-10-25 00:30:00", true, "2026-10-25 00:30:00", "2026-10-25 01:30:00"},
		{"01:00-02:30", "Europe/Berlin", "", "2026-10-25 00:45:00", false, "2026-10-25 01:00:00", "2026-10-25 01:00:00, 2026-10-26 00:00:00"},
		// Southern hemisphere: Lord Howe is set from 02:00 to 02:30 at 15:30 UTC.
		{"02:10-02:40", "Australia/Lord_Howe", "", "2026-10-03 15:00:00", false, "2026-10-03 15:30:00", "2026-10-03 15:30:00, 2026-10-04 15:10:00"},
	} {
		var loc *time.Location
		if c.zone != "" {
			var err error
			if loc, err = location(c.zone); err != nil {
				t.Fatal(err)
			}
		}
		w, err := ParseWindows(c.windows, loc)
		if err != nil {
			t.Errorf("%s: %v", c.windows, err)
			continue
		}
		want := c.text
		if want == "" {
			want = strings.TrimSpace("WINDOWS "+c.zone) + " " + c.windows
		}
		if w.String() != want {
			t.Errorf("%s is written as %q, want %q", c.windows, w, want)
		}
		now := at(t, c.now)
		if got := w.Contains(now); got != c.open {
			t.Errorf("%s at %s: open %v", w, c.now, got)
		}
		if got := w.NextOpen(now).Format("2006-01-02 15:04:05"); got != c.next {
			t.Errorf("%s at %s: open at %s, want %s", w, c.now, got, c.next)
		}
		opens := expand(c.opens)
		if got := runs(w, now, len(opens)); strings.Join(got, ", ") != strings.Join(opens, ", ") {
			t.Errorf("%s after %s: opens at %s, want %s", w, c.now, got, opens)
		}
		checkSpec(t, w, now)
	}
	w, err := ParseWindows("Mon-Fri 09:00-17:00", zone(t, "Europe/Berlin"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := Describe(w), "when one of these opens: Mon-Fri 09:00-17:00 Europe/Berlin"; got != want {
		t.Errorf("described as %q", got)
	}
	half := at(t, "2026-11-20 12:00:00").Add(time.Second / 2)
	if got := w.NextOpen(half); !got.Equal(half) {
		t.Errorf("open at %s, but next at %s", half, got)
	}
}

func TestWindowsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", ",", "09:00-17:00,", "09:00", "09:00-", "-17:00", "9:00-17:00", "09:00-25:00", "24:00-25:00", "24:00-06:00", "09:00-24:00:01", "09:00-24:01",
		"09:60-17:00", "09:00:60-17:00", "09:00 - 17:00", "09-17", "0900-1700", "9am-5pm", "09:00-17:00 Mon", "Mon", "Monn 09:00-17:00", "Mon- 09:00-17:00",
		"Mon-Xyz 09:00-17:00", "Mon,Tue 09:00-17:00", "1 09:00-17:00", "weekday 09:00-17:00", "09:00-17:00-18:00", "09:00:00.5-17:00", "٠٩:00-17:00",
		"09:00-17:00; 18:00-19:00", strings.Repeat("09:00-17:00,", 100) + "09:00-17:00", strings.Repeat("x", 1<<20),
	} {
		if w, err := ParseWindows(text, nil); !errors.Is(err, ErrBadSpec) || w != nil {
			t.Errorf("%q: %v, %v", shorten(text), w, err)
		}
	}
	for _, text := range []string{"WINDOWS ", "WINDOWS Europe/Berlin", "WINDOWS Nowhere 09:00-17:00", "WINDOWS Local 09:00-17:00", "WINDOWS", "windows 09:00-17:00"} {
		if s, err := Parse(text); !errors.Is(err, ErrBadSpec) || s != nil {
			t.Errorf("%q: %v, %v", text, s, err)
		}
	}
	if w, err := ParseWindows("09:00-17:00", time.FixedZone("", 1)); !errors.Is(err, ErrBadSpec) {
		t.Errorf("a zone without a name: %v, %v", w, err)
	}
}

func TestManyWindowsReadBack(t *testing.T) {
	t.Parallel()
	text := strings.TrimSuffix(strings.Repeat("Fri-Wed 09:00:01-17:00:01,", maxWindows), ",")
	w, err := ParseWindows(text, zone(t, "Europe/Berlin"))
	if err != nil {
		t.Fatal(err)
	}
	checkSpec(t, w, at(t, "2026-11-20"))
}

// genWindows generates windows on whole minutes.
func genWindows() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		one := rapid.Custom(func(t *rapid.T) string {
			clock := func(minute int) string { return fmt.Sprintf("%02d:%02d", minute/60, minute%60) }
			minute := rapid.OneOf(rapid.IntRange(0, 1439), rapid.IntRange(0, 300))
			days := rapid.SampledFrom([]string{"", "", "Mon-Fri ", "Sun ", "Sat ", "Sat Sun ", "Fri-Tue "}).Draw(t, "days")
			return days + clock(minute.Draw(t, "start")) + "-" + clock(minute.Draw(t, "end"))
		})
		return strings.Join(rapid.SliceOfN(one, 1, 3).Draw(t, "windows"), ", ")
	})
}

// TestWindowsAgainstClock checks each minute around clock changes: whether a window is open must
// agree with the time that the clock shows.
// Promises: Q34.
func TestWindowsAgainstClock(t *testing.T) {
	t.Parallel()
	starts := []struct{ zone, from string }{
		{"Europe/Berlin", "2026-03-28"},
		{"Europe/Berlin", "2026-10-24"},
		{"America/Santiago", "2026-04-04"},
		{"America/Santiago", "2026-09-05"},
		{"Australia/Lord_Howe", "2026-04-04"},
		{"Australia/Lord_Howe", "2026-10-03"},
		{"Pacific/Apia", "2011-12-29"},
		{"UTC", "2026-11-20"},
	}
	open := func(windows string, t time.Time) bool {
		now := t.Format("15:04")
		for item := range strings.SplitSeq(windows, ", ") {
			parts := strings.Fields(item)
			from, to, _ := strings.Cut(parts[len(parts)-1], "-")
			on := func(day time.Weekday) bool {
				if len(parts) == 1 {
					return true
				}
				switch parts[0] {
				case "Mon-Fri":
					return day >= 1 && day <= 5
				case "Fri-Tue":
					return day >= 5 || day <= 2
				default:
					return strings.Contains(item, day.String()[:3])
				}
			}
			yesterday := (t.Weekday() + 6) % 7
			switch {
			case from < to && on(t.Weekday()) && now >= from && now < to:
				return true
			case from >= to && (on(t.Weekday()) && now >= from || on(yesterday) && now < to):
				return true
			}
		}
		return false
	}
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.SampledFrom(starts).Draw(t, "start")
		text := genWindows().Draw(t, "windows")
		loc, err := time.LoadLocation(start.zone)
		if err != nil {
			t.Fatal(err)
		}
		w, err := ParseWindows(text, loc)
		if err != nil {
			t.Fatal(err)
		}
		from, err := time.Parse("2006-01-02", start.from)
		if err != nil {
			t.Fatal(err)
		}
		opens, next := time.Time{}, from.Add(-time.Minute)
		before := open(text, next.In(loc))
		ok := true
		for u := from; u.Before(from.Add(38 * time.Hour)); u = u.Add(time.Minute) {
			now := open(text, u.In(loc))
			if w.Contains(u) != now || w.NextOpen(u).Equal(u) != now {
				t.Fatalf("%s at %s: open %v, want %v; next %s", w, u.In(loc), !now, now, w.NextOpen(u))
			}
			if ok && !next.After(u.Add(-time.Minute)) {
				opens, ok = w.Next(next)
				next = opens
			}
			if got := ok && opens.Equal(u); got != (now && !before) {
				t.Fatalf("%s at %s: opens %v, want %v; next opens at %v", w, u.In(loc), got, !got, opens)
			}
			before = now
		}
	})
}

func FuzzWindows(f *testing.F) {
	for _, text := range []string{
		"09:00-17:00", "22:00-06:00, Mon-Fri 09:00:30-12:00", "Sat Sun 00:00-24:00", "Fri-Mon 10:00-10:00", "24:00-06:00",
	} {
		f.Add(text, "Europe/Berlin", int64(1774742400))
	}
	f.Add("09:00-17:00", "+05:45", int64(1<<63-1))
	f.Add("09:00-17:00", "UTC", int64(-1<<63))
	f.Fuzz(func(t *testing.T, text, name string, after int64) {
		loc, err := location(name)
		if err != nil {
			loc = nil
		}
		w, err := ParseWindows(text, loc)
		if err != nil {
			return
		}
		at := time.Unix(after, 1)
		if open := w.NextOpen(at); after > -maxUnix && after < maxUnix && (open.Before(at) || !w.Contains(open)) {
			t.Fatalf("%s at %s: next open %s", w, at, open)
		}
		checkSpec(t, w, at)
	})
}
