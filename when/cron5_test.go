package when

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// cron5Cases holds specs with an instant, the runs after it in UTC, and the seven fields with the
// same times; "" if seven fields cannot express them.
var cron5Cases = []struct{ cron, after, want, seven string }{
	{"0 9 * * 1-5", "2026-11-20 09:00:00", "2026-11-23 09:00:00, 2026-11-24 09:00:00", "* * * 1-5 9 0 0"},
	{"0 9 * * mon-fri", "2026-11-20 09:00:00", "2026-11-23 09:00:00", "* * * 1-5 9 0 0"},
	{"0 9 * * Mon,WED,fri", "2026-11-20 09:00:00", "2026-11-23 09:00:00, 2026-11-25 09:00:00", "* * * 1,3,5 9 0 0"},
	{"*/15 * * * *", "2026-11-20 09:00:00", "2026-11-20 09:15:00, 09:30:00", "* * * * * 0,15,30,45 0"},
	{"* * * * *", "2026-11-20 09:00:59", "2026-11-20 09:01:00, 09:02:00", "* * * * * * 0"},
	{"0 0 * * 0", "2026-11-20", "2026-11-22 00:00:00, 2026-11-29 00:00:00", "* * * 0 0 0 0"},
	{"0 0 * * 7", "2026-11-20", "2026-11-22 00:00:00, 2026-11-29 00:00:00", "* * * 0 0 0 0"},
	{"0 0 * * 5-7", "2026-11-20", "2026-11-21 00:00:00, 2026-11-22 00:00:00, 2026-11-27 00:00:00", "* * * 0,5,6 0 0 0"},
	{"0 0 * * 0-7", "2026-11-20", "2026-11-21 00:00:00, 2026-11-22 00:00:00", "* * * * 0 0 0"},
	{"0 0 13 * 5", "2026-11-01", "2026-11-06 00:00:00, 2026-11-13 00:00:00", "* * 13 5 0 0 0"},
	{"0 0 */2 * 1", "2026-11-01", "2026-11-09 00:00:00, 2026-11-23 00:00:00", ""},
	{"0 0 1 * */2", "2026-11-01", "2026-12-01 00:00:00, 2027-04-01 00:00:00", ""},
	{"0 0 */10 * *", "2026-11-20", "2026-11-21 00:00:00, 2026-12-01 00:00:00", "* * 1,11,21,31 * 0 0 0"},
	{"0 0 1-31 * */3", "2026-11-20", "2026-11-21 00:00:00, 2026-11-22 00:00:00, 2026-11-25 00:00:00", "* * * 0,3,6 0 0 0"},
	{"0 0 1-31 * 1", "2026-11-20", "2026-11-21 00:00:00, 2026-11-22 00:00:00", "* * 1-31 1 0 0 0"},
	{"30 14 29 feb *", "2026-11-20", "2028-02-29 14:30:00", "* 2 29 * 14 30 0"},
	{"0 0 30 2 *", "2026-11-20", "never", "* 2 30 * 0 0 0"},
	{"0 0 1 jan,Jul *", "2026-11-20", "2027-01-01 00:00:00, 2027-07-01 00:00:00", "* 1,7 1 * 0 0 0"},
	{"0 0 1 mar-may *", "2026-11-20", "2027-03-01 00:00:00, 2027-04-01 00:00:00", "* 3-5 1 * 0 0 0"},
	{"0 9-17/4 * * *", "2026-11-20", "2026-11-20 09:00:00, 13:00:00, 17:00:00", "* * * * 9,13,17 0 0"},
	{"5-59/15 * * * *", "2026-11-20", "2026-11-20 00:05:00, 00:20:00", "* * * * * 5,20,35,50 0"},
	{"@hourly", "2026-11-20", "2026-11-20 01:00:00", "* * * * * 0 0"},
	{"@daily", "2026-11-20", "2026-11-21 00:00:00", "* * * * 0 0 0"},
	{"@Midnight", "2026-11-20", "2026-11-21 00:00:00", "* * * * 0 0 0"},
	{"@weekly", "2026-11-20", "2026-11-22 00:00:00", "* * * 0 0 0 0"},
	{"@monthly", "2026-11-20", "2026-12-01 00:00:00", "* * 1 * 0 0 0"},
	{"@yearly", "2026-11-20", "2027-01-01 00:00:00, 2028-01-01 00:00:00", "* 1 1 * 0 0 0"},
	{"@annually", "2026-11-20", "2027-01-01 00:00:00", "* 1 1 * 0 0 0"},
	{"CRON_TZ=Europe/Berlin 0 9 * * *", "2026-11-20", "2026-11-20 08:00:00, 2026-11-21 08:00:00", ""},
	{"TZ=Asia/Kathmandu @daily", "2026-11-20", "2026-11-20 18:15:00", ""},
	{"CRON_TZ=UTC 0 9 * * *", "2026-11-20", "2026-11-20 09:00:00", "* * * * 9 0 0"},
	{"CRON_TZ=+02:00 0 9 * * *", "2026-11-20", "2026-11-20 07:00:00", ""},
	{"CRON_TZ=-05:30 0 9 * * *", "2026-11-20", "2026-11-20 14:30:00", ""},
	{"59 23 31 12 *", "2099-12-30", "2099-12-31 23:59:00, never", "* 12 31 * 23 59 0"},
}

func TestCron5Table(t *testing.T) {
	t.Parallel()
	for _, c := range cron5Cases {
		spec, err := ParseCron5(c.cron, nil)
		if err != nil {
			t.Errorf("%s: %v", c.cron, err)
			continue
		}
		want := expand(c.want)
		if got := runs(spec, at(t, c.after), len(want)); !slices.Equal(got, want) {
			t.Errorf("%s after %s:\ngot  %s\nwant %s", c.cron, c.after, got, want)
		}
		seven, ok := spec.Seven()
		if ok != (c.seven != "") || seven != c.seven {
			t.Errorf("%s: seven fields %q, %v; want %q", c.cron, seven, ok, c.seven)
		}
		if !ok {
			continue
		}
		same, err := ParseCron(seven)
		if err != nil {
			t.Errorf("%s: its seven fields %q: %v", c.cron, seven, err)
		} else if got := runs(same, at(t, c.after), len(want)); !slices.Equal(got, want) {
			t.Errorf("%s as %s:\ngot  %s\nwant %s", c.cron, seven, got, want)
		}
	}
}

func TestCron5Refused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "* * * *", "* * * * * *", "* * * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 0 *", "* * * 13 *",
		"* * * * 8", "* * * * fri-mon", "* * * * 6-5", "* * * jam *", "* * * * monday", "5/15 * * * *", "* * * * 3/2", "*/0 * * * *",
		"? * * * *", "* * ? * 1", "* * L * *", "* * 15W * *", "* * * * 5#2", "* * * * 5L", "@reboot", "@every 5m", "@", "@daily @daily",
		"mon * * * *", "* jan * * *", "CRON_TZ= * * * * *", "CRON_TZ=Local * * * * *", "CRON_TZ=Nowhere/Land * * * * *",
		"CRON_TZ=../../etc/passwd * * * * *", "CRON_TZ=/etc/localtime * * * * *", "CRON_TZ=UTC", "CRON_TZ=UTC CRON_TZ=UTC * * * * *",
		"CRON_TZ=+25:00 * * * * *", "CRON_TZ=+02:60 * * * * *", "CRON_TZ=+2 * * * * *", "CRON_TZ=" + strings.Repeat("A", 100) + " * * * * *",
		"TZ=Europe/Berlin", strings.Repeat("* ", 1<<19), strings.Repeat("1,", 1<<19) + "1 * * * *",
	} {
		if spec, err := ParseCron5(text, nil); !errors.Is(err, ErrBadSpec) {
			t.Errorf("%q: %v, %v", shorten(text), spec, err)
		}
	}
	_, err := ParseCron5("5/15 * * * *", nil)
	const want = `when: bad spec "5/15 * * * *": minute "5/15": a single value has no steps here; for example, this is accepted: "5-59/15"`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// dstCases are days on which clocks are set forward or back, in zones of both hemispheres. Instants
// are in UTC.
var dstCases = []struct{ zone, cron, after, want string }{
	// Berlin, 2026-03-29: at 01:00 UTC the clock is set from 02:00 to 03:00.
	{"Europe/Berlin", "30 2 * * *", "2026-03-28", "2026-03-28 01:30:00, 2026-03-29 01:00:00, 2026-03-30 00:30:00"},
	{"Europe/Berlin", "0 2 * * *", "2026-03-29", "2026-03-29 01:00:00, 2026-03-30 00:00:00"},
	{"Europe/Berlin", "0 3 * * *", "2026-03-29", "2026-03-29 01:00:00, 2026-03-30 01:00:00"},
	{"Europe/Berlin", "0 2,3 * * *", "2026-03-29", "2026-03-29 01:00:00, 2026-03-30 00:00:00, 2026-03-30 01:00:00"},
	{"Europe/Berlin", "*/20 1-3 * * *", "2026-03-29 00:20:00", "2026-03-29 00:40:00, 01:00:00, 01:20:00, 01:40:00, 2026-03-29 23:00:00"},
	{"Europe/Berlin", "*/30 * * * *", "2026-03-29 00:00:00", "2026-03-29 00:30:00, 01:00:00, 01:30:00"},
	{"Europe/Berlin", "45 * * * *", "2026-03-29 00:00:00", "2026-03-29 00:45:00, 01:45:00, 02:45:00"},
	{"Europe/Berlin", "0 2 29 3 *", "2026-01-01", "2026-03-29 01:00:00, 2027-03-29 00:00:00"},
	{"Europe/Berlin", "30 1 * * *", "2026-03-28 12:00:00", "2026-03-29 00:30:00, 2026-03-29 23:30:00"},
	// Berlin, 2026-10-25: at 01:00 UTC the clock is set back from 03:00 to 02:00.
	{"Europe/Berlin", "30 2 * * *", "2026-10-24 12:00:00", "2026-10-25 00:30:00, 2026-10-26 01:30:00"},
	{"Europe/Berlin", "30 2 * * *", "2026-10-25 01:00:00", "2026-10-26 01:30:00"},
	{"Europe/Berlin", "30 2 * * *", "2026-10-25 01:29:59", "2026-10-26 01:30:00"},
	{"Europe/Berlin", "0 3 * * *", "2026-10-25 00:00:00", "2026-10-25 02:00:00"},
	{"Europe/Berlin", "*/30 2 * * *", "2026-10-24 23:00:00", "2026-10-25 00:00:00, 00:30:00, 2026-10-26 01:00:00"},
	{"Europe/Berlin", "*/30 * * * *", "2026-10-25 00:00:00", "2026-10-25 00:30:00, 01:00:00, 01:30:00, 02:00:00"},
	{"Europe/Berlin", "45 * * * *", "2026-10-25 00:00:00", "2026-10-25 00:45:00, 01:45:00, 02:45:00"},
	// Santiago, 2026-09-06: at 04:00 UTC the clock is set from midnight to 01:00. 2026-04-05: at 03:00
	// UTC it is set back from midnight to 23:00.
	{"America/Santiago", "0 0 * * *", "2026-09-05 12:00:00", "2026-09-06 04:00:00, 2026-09-07 03:00:00"},
	{"America/Santiago", "30 0 * * 0", "2026-09-05 12:00:00", "2026-09-06 04:00:00, 2026-09-13 03:30:00"},
	{"America/Santiago", "0 1 * * *", "2026-09-05 12:00:00", "2026-09-06 04:00:00, 2026-09-07 04:00:00"},
	{"America/Santiago", "30 23 * * *", "2026-04-04 12:00:00", "2026-04-05 02:30:00, 2026-04-06 03:30:00"},
	{"America/Santiago", "30 23 * * 6", "2026-04-05 02:30:00", "2026-04-12 03:30:00"},
	{"America/Santiago", "0 0 * * *", "2026-04-04 12:00:00", "2026-04-05 04:00:00, 2026-04-06 04:00:00"},
	{"America/Santiago", "0 * * * *", "2026-04-05 01:30:00", "2026-04-05 02:00:00, 03:00:00, 04:00:00"},
	{"America/Santiago", "0 * * * *", "2026-09-06 02:30:00", "2026-09-06 03:00:00, 04:00:00, 05:00:00"},
	// Lord Howe changes by half an hour. 2026-10-03 15:30 UTC: from 02:00 to 02:30. 2026-04-04 15:00
	// UTC: back from 02:00 to 01:30.
	{"Australia/Lord_Howe", "15 2 * * *", "2026-10-03 12:00:00", "2026-10-03 15:30:00, 2026-10-04 15:15:00"},
	{"Australia/Lord_Howe", "45 1 * * *", "2026-04-04 12:00:00", "2026-04-04 14:45:00, 2026-04-05 15:15:00"},
	{"Australia/Lord_Howe", "45 * * * *", "2026-04-04 14:00:00", "2026-04-04 14:45:00, 15:15:00, 16:15:00"},
	{"Australia/Lord_Howe", "0 * * * *", "2026-10-03 14:00:00", "2026-10-03 14:30:00, 2026-10-03 16:00:00"},
	{"Australia/Lord_Howe", "*/15 * * * *", "2026-10-03 15:15:00", "2026-10-03 15:30:00, 15:45:00"},
	// New York, 2026-03-08 07:00 UTC: from 02:00 to 03:00. 2026-11-01 06:00 UTC: back from 02:00 to
	// 01:00.
	{"America/New_York", "30 2 * * *", "2026-03-07 12:00:00", "2026-03-08 07:00:00, 2026-03-09 06:30:00"},
	{"America/New_York", "30 1 * * *", "2026-10-31 12:00:00", "2026-11-01 05:30:00, 2026-11-02 06:30:00"},
	{"America/New_York", "59 23 31 12 *", "2099-01-02", "2100-01-01 04:59:00, never"},
	// Apia skipped a whole day, 2011-12-30.
	{"Pacific/Apia", "0 9 * * *", "2011-12-29 12:00:00", "2011-12-29 19:00:00, 2011-12-30 10:00:00, 2011-12-30 19:00:00"},
	{"Pacific/Apia", "0 9 30 12 *", "2011-12-01", "2011-12-30 10:00:00, 2012-12-29 19:00:00"},
}

func TestCronInTheNightOfAChange(t *testing.T) {
	t.Parallel()
	for _, c := range dstCases {
		spec, err := ParseCron5(c.cron, zone(t, c.zone))
		if err != nil {
			t.Errorf("%s %s: %v", c.zone, c.cron, err)
			continue
		}
		want := expand(c.want)
		if got := runs(spec, at(t, c.after), len(want)); !slices.Equal(got, want) {
			t.Errorf("%s %s after %s:\ngot  %s\nwant %s", c.zone, c.cron, c.after, got, want)
		}
	}
}

// TestCronAgainstClock checks each minute around clock changes against a literal implementation of
// the rules of Cron.
func TestCronAgainstClock(t *testing.T) {
	t.Parallel()
	changes := []struct{ zone, from string }{
		{"Europe/Berlin", "2026-03-28"},
		{"Europe/Berlin", "2026-10-24"},
		{"America/Santiago", "2026-04-04"},
		{"America/Santiago", "2026-09-05"},
		{"Australia/Lord_Howe", "2026-04-04"},
		{"Australia/Lord_Howe", "2026-10-03"},
		{"America/St_Johns", "2006-10-28"},
		{"Africa/Casablanca", "2026-02-14"},
		{"Pacific/Apia", "2011-12-29"},
		{"Asia/Kathmandu", "1985-12-31"},
		{"UTC", "2026-02-28"},
	}
	few := func(least, most int) *rapid.Generator[string] {
		return rapid.Map(rapid.SliceOfN(rapid.IntRange(least, most), 1, 4), func(v []int) string {
			mask := uint64(0)
			for _, v := range v {
				mask |= 1 << v
			}
			return list(mask)
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		change := rapid.SampledFrom(changes).Draw(t, "change")
		hours := rapid.OneOf(few(0, 23), few(0, 4), rapid.SampledFrom([]string{"*", "*", "0-23", "1-23", "*/2"})).Draw(t, "hours")
		minutes := rapid.OneOf(few(0, 59), rapid.SampledFrom([]string{"0", "30", "*/7", "*/15", "*"})).Draw(t, "minutes")
		days := rapid.SampledFrom([]string{"* * *", "* * *", "* * 0", "30 * *", "1-5 * *"}).Draw(t, "days")
		loc, err := time.LoadLocation(change.zone)
		if err != nil {
			t.Fatal(err)
		}
		text := minutes + " " + hours + " " + days
		spec, err := ParseCron5(text, loc)
		if err != nil {
			t.Fatal(err)
		}
		from, err := time.Parse("2006-01-02", change.from)
		if err != nil {
			t.Fatal(err)
		}
		u, end := from.Unix(), from.Unix()+3*daySeconds
		clock := func(u int64) int64 {
			_, off := time.Unix(u, 0).In(loc).Zone()
			return u + int64(off)
		}
		s := search{fields: &spec.fields}
		shown := clock(u - 60) // the latest time that the clock has shown
		for before := u - daySeconds; before < u; before += 60 {
			shown = max(shown, clock(before))
		}
		for next, ok := spec.Next(time.Unix(u-1, 0)); u < end; u += 60 {
			now := clock(u)
			first := now // the earliest time that runs at u
			if s.hour.mask != 1<<24-1 {
				first = shown + 1 // skipped times run too, unless the clock has shown them before
			}
			shown = max(shown, now)
			c, found := s.from(first)
			want := found && c <= now
			if got := ok && next.Unix() == u; got != want {
				t.Fatalf("%s in %s at %s: runs %v, want %v; next is %v", text, loc, time.Unix(u, 0).UTC(), got, want, next)
			}
			if want {
				next, ok = spec.Next(next)
			}
		}
	})
}

// TestNextIsTheSameFromAnywhere shows that Next returns the same run from any instant between that
// run and the one before.
func TestNextIsTheSameFromAnywhere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"Europe/Berlin", "America/Santiago", "Australia/Lord_Howe", "UTC", "+05:45"}).Draw(t, "zone")
		loc, err := location(name)
		if err != nil {
			t.Fatal(err)
		}
		text := genCron(t)
		spec, err := ParseCronIn(text, loc)
		if err != nil {
			t.Fatal(err)
		}
		after := time.Unix(rapid.Int64Range(1767225600, 1893456000).Draw(t, "after"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns"))
		next, ok := spec.Next(after)
		if !ok {
			return
		}
		if !next.After(after) {
			t.Fatalf("%s after %s: %s", spec, after, next)
		}
		between := after.Add(time.Duration(rapid.Int64Range(0, int64(next.Sub(after))-1).Draw(t, "between")))
		if again, ok := spec.Next(between); !ok || !again.Equal(next) {
			t.Fatalf("%s: after %s it is %s, but after %s it is %s", spec, after, next, between, again)
		}
	})
}

// TestPeriods checks the periods of zones against their clocks, hour by hour.
func TestPeriods(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Europe/Berlin", "America/Santiago", "Australia/Lord_Howe", "Africa/Casablanca", "America/New_York", "Asia/Tokyo", "UTC"} {
		loc := zone(t, name)
		clock := func(u int64) int64 {
			_, off := time.Unix(u, 0).In(loc).Zone()
			return int64(off)
		}
		u := at(t, "2024-01-01").Unix()
		p := periodAt(u, loc)
		for end := at(t, "2034-01-01").Unix(); u < end; u += 3600 {
			if u >= p.end {
				if p = periodAt(p.end, loc); p.start > u || p.end <= u {
					t.Fatalf("%s at %s: the period is %+v", name, time.Unix(u, 0).UTC(), p)
				}
			}
			if p.off != clock(u) {
				t.Fatalf("%s at %s: %+v, but the clock says %d", name, time.Unix(u, 0).UTC(), p, clock(u))
			}
		}
	}
	// leap years
	for _, after := range []string{"2028-12-30 12:00", "2028-12-31", "2028-12-31 12:00", "2096-12-31"} {
		for _, text := range []string{"0 * * * *", "0 9 * * *", "0 0 1 1 *"} {
			spec, err := ParseCron5(text, zone(t, "Europe/Berlin"))
			if err != nil {
				t.Fatal(err)
			}
			next, ok := spec.Next(at(t, after))
			if local := next.In(spec.loc); !ok || local.Minute() != 0 || next.Sub(at(t, after)) > 48*time.Hour {
				t.Errorf("%s after %s: %s, %v", spec, after, local, ok)
			}
		}
	}
}

func TestZones(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		loc  *time.Location
		want string // start of the text; "": refused
	}{
		{nil, "* *"},
		{time.UTC, "* *"},
		{zone(t, "Etc/UTC"), "* *"},
		{time.FixedZone("", 0), "* *"},
		{time.FixedZone("UTC", 3600), "CRON_TZ=+01:00 *"},
		{time.FixedZone("CET", 3600), "CRON_TZ=+01:00 *"}, // the zone CET has summer time
		{time.FixedZone("x y", -34200), "CRON_TZ=-09:30 *"},
		{time.FixedZone("", 3601), ""},
		{zone(t, "Europe/Berlin"), "CRON_TZ=Europe/Berlin *"},
		{time.Local, ""},
	} {
		spec, err := ParseCronIn("* * * * 9 0 0", c.loc)
		switch {
		case c.loc == time.Local && time.Local.String() == "UTC": // a machine without a zone
		case c.want == "":
			if !errors.Is(err, ErrBadSpec) {
				t.Errorf("%v: %v, %v", c.loc, spec, err)
			}
		case err != nil || !strings.HasPrefix(spec.String(), c.want):
			t.Errorf("%v: %v, %v", c.loc, spec, err)
		}
	}
}

func TestCronReadsBack(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"2014 3 * 0/2,3 9-17 * */5", "CRON_TZ=Europe/Berlin * * * 3/2 9 0 0", "CRON_TZ=Europe/Berlin 0 9 * * Mon-fri", "CRON_TZ=UTC 0 9 * * 7",
		"CRON_TZ=+05:45 0 9 * * 7",
	} {
		spec, err := Parse(text)
		if err != nil || spec.String() != text {
			t.Errorf("%s: %v, %v", text, spec, err)
		}
	}
	for text, want := range map[string]string{
		"TZ=Europe/Berlin   @daily": "CRON_TZ=Europe/Berlin 0 0 * * *", "CRON_TZ=UTC * * * * 9 0 0": "* * * * 9 0 0", "TZ=Etc/UTC 0 9 * * *": "CRON_TZ=UTC 0 9 * * *",
	} {
		spec, err := Parse(text)
		if err != nil || spec.String() != want {
			t.Errorf("%s: %v, %v", text, spec, err)
		}
	}
	for _, text := range []string{"", "0 9 * * *", "@daily", "CRON_TZ=Nowhere * * * * * * *", "CRON_TZ=UTC", "x"} {
		if spec, err := Parse(text); !errors.Is(err, ErrBadSpec) || spec != nil {
			t.Errorf("%q: %v, %v", text, spec, err)
		}
	}
}

// location returns a zone by its name; nil for UTC.
func location(name string) (*time.Location, error) {
	at, err := loadZone(name)
	return at.loc, err
}
