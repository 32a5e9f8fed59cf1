package when

import (
	"fmt"
	"strings"
	"time"
)

// Repeat is a [Spec] of Bedrock: a base, and modifiers that are applied in order.
//
//	FINISHED, +1 DAY, WEEKDAY 1, START OF DAY, +6 HOURS     every Monday at six, in UTC
//
// The next run depends on the last one, so [Repeat.After] takes three times. Next, as for any Spec,
// uses one time for all three. In a schedule, SCHEDULED counts from when the run was due, however
// late it is, and the other bases from when it is claimed.
//
// A Repeat is immutable and safe for concurrent use.
type Repeat struct {
	text string
	base RepeatBase
	mods []modifier
}

// RepeatBase is the time from which a [Repeat] counts.
type RepeatBase int

// Bases of a Repeat.
const (
	Scheduled RepeatBase = iota // when the last run was due; missed runs follow each other at once
	Started                     // when it started
	Finished                    // when it ended
)

// String returns the name of the base in a repeat's text, such as FINISHED; "RepeatBase(n)" for an
// unknown base.
func (b RepeatBase) String() string {
	if b < 0 || int(b) >= len(baseNames) {
		return fmt.Sprintf("RepeatBase(%d)", int(b))
	}
	return baseNames[b]
}

var baseNames = [...]string{"SCHEDULED", "STARTED", "FINISHED"}

// canned holds the named patterns, as documented and as Bedrock's server executes them.
var canned = [...]struct{ name, documented, snapped string }{
	{"HOURLY", "FINISHED, +1 HOUR", "FINISHED, +1 HOUR, START OF HOUR"},
	{"DAILY", "FINISHED, +1 DAY", "FINISHED, +1 DAY, START OF DAY"},
	{"WEEKLY", "FINISHED, +7 DAYS", "FINISHED, +1 DAY, WEEKDAY 0, START OF DAY"},
}

// RepeatConfig configures the parsing of repeats. The zero value follows Bedrock's documentation.
type RepeatConfig struct {
	// Snap parses HOURLY, DAILY and WEEKLY as Bedrock's server executes them, and String returns their
	// modifiers. They run at the next full hour, the next midnight and the next Sunday's midnight.
	// Without Snap they run an hour, a day and seven days after the end.
	Snap bool
}

// modifier is one step: it adds units, goes to the start of a unit, or goes to a weekday.
type modifier struct {
	op   op
	unit int // index in repeatUnits
	n    int // the number of units, or the weekday
}

// op is the kind of a modifier.
type op int

const (
	opAdd op = iota
	opStart
	opWeekday
)

// repeatUnits are the units of modifiers, the longest first.
var repeatUnits = [...]struct {
	name    string
	seconds int64 // 0: the length depends on the calendar
	digits  int
	starts  bool // START OF it is allowed
}{
	{"YEAR", 0, 3, true},
	{"MONTH", 0, 3, true},
	{"DAY", daySeconds, 3, true},
	{"HOUR", 3600, 3, true},
	{"MINUTE", 60, 3, false},
	{"SECOND", 1, 8, false},
}

// maxRepeat is the maximum length of a repeat, in bytes.
const maxRepeat = 1024

// ParseRepeat parses a base and at least one modifier, separated by commas, or HOURLY, DAILY or
// WEEKLY:
//
//	SCHEDULED, STARTED, FINISHED   the base
//	+1 DAY, -30 MINUTES            adds or subtracts YEARS, MONTHS, DAYS, HOURS or MINUTES with
//	                               up to three digits, or SECONDS with up to eight
//	START OF DAY                   goes back to the start of the DAY, MONTH, YEAR or HOUR
//	WEEKDAY 1                      goes forward to the day 0 (Sunday) to 6, or stays on it;
//	                               keeps the time of day
//
// Modifiers are applied from left to right, like SQLite's date modifiers: a month after 31 January
// is 3 March, or 2 March. All times are in UTC. Case, white space around commas and after a sign,
// and empty items are ignored.
//
// HOURLY, DAILY and WEEKLY count from the end of a run; see [RepeatConfig]. An error is a
// [SpecError].
func ParseRepeat(text string) (*Repeat, error) { return RepeatConfig{}.Parse(text) }

// Parse parses a repeat as [ParseRepeat] does: a base and at least one modifier, or HOURLY, DAILY
// or WEEKLY. With c.Snap, these words stand for the modifiers that Bedrock's server executes. Case,
// additional white space and empty items are ignored.
//
// Its error is a [SpecError] with the part understood so far.
func (c RepeatConfig) Parse(text string) (*Repeat, error) {
	r := &Repeat{}
	refuse := func(format string, args ...any) (*Repeat, error) {
		return nil, &SpecError{Input: shorten(text), Understood: r.text, Problem: fmt.Sprintf(format, args...), Nearest: "FINISHED, +1 DAY"}
	}
	if len(text) > maxRepeat {
		return refuse("it is longer than %d bytes", maxRepeat)
	}
	var items []string
	for item := range strings.SplitSeq(upper(text), ",") {
		if item = strings.Join(strings.Fields(item), " "); item != "" {
			items = append(items, item)
		}
	}
	if len(items) == 0 {
		return refuse("it is empty")
	}
	for _, known := range canned {
		switch {
		case items[0] != known.name:
		case len(items) > 1:
			r.text = known.name
			return refuse("nothing may follow it")
		case c.Snap:
			return ParseRepeat(known.snapped)
		default:
			named, err := ParseRepeat(known.documented)
			if err == nil {
				named.text = known.name
			}
			return named, err
		}
	}
	found := false
	for i, name := range baseNames {
		if items[0] == name {
			r.base, r.text, found = RepeatBase(i), name, true
		}
	}
	if !found {
		return refuse("%q is not SCHEDULED, STARTED, FINISHED, HOURLY, DAILY or WEEKLY", shorten(items[0]))
	}
	for _, item := range items[1:] {
		m, written, problem := parseModifier(item)
		if problem != "" {
			return refuse("%q %s", shorten(item), problem)
		}
		r.mods = append(r.mods, m)
		r.text += ", " + written
	}
	if len(r.mods) == 0 {
		return refuse("at least one modifier must follow")
	}
	return r, nil
}

// upper converts ASCII letters to upper case. Other letters stay, because some would become ASCII
// letters.
func upper(s string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' {
			c -= 'a' - 'A'
		}
		return c
	}, s)
}

// parseModifier parses one modifier in upper case with single spaces. It returns the modifier and
// its canonical text; or a problem that is not "", which follows the item in an error.
func parseModifier(item string) (m modifier, written, problem string) {
	if rest, ok := strings.CutPrefix(item, "START OF "); ok {
		for i, u := range repeatUnits {
			if u.starts && rest == u.name {
				return modifier{op: opStart, unit: i}, item, ""
			}
		}
		return m, "", "is not START OF DAY, MONTH, YEAR or HOUR"
	}
	if rest, ok := strings.CutPrefix(item, "WEEKDAY "); ok {
		if len(rest) == 1 && rest[0] >= '0' && rest[0] <= '6' {
			return modifier{op: opWeekday, n: int(rest[0] - '0')}, item, ""
		}
		return m, "", "has no day from 0 (Sunday) to 6"
	}
	if item[0] != '+' && item[0] != '-' {
		return m, "", "is not +N UNITS, -N UNITS, START OF UNIT or WEEKDAY N"
	}
	count, name, _ := strings.Cut(strings.TrimPrefix(item[1:], " "), " ")
	for i, u := range repeatUnits {
		if name != u.name && name != u.name+"S" {
			continue
		}
		n, ok := wholeNumber(count)
		if !ok || len(count) > u.digits {
			return m, "", fmt.Sprintf("has no number of 1 to %d digits", u.digits)
		}
		if item[0] == '-' {
			n = -n
		}
		return modifier{op: opAdd, unit: i, n: n}, item[:1] + count + " " + name, ""
	}
	return m, "", "has a unit other than YEARS, MONTHS, DAYS, HOURS, MINUTES and SECONDS"
}

// wholeNumber parses one to eight digits. It returns false for anything else.
func wholeNumber(s string) (int, bool) {
	if s == "" || len(s) > 8 {
		return 0, false
	}
	n := 0
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}

// Base returns the time from which r counts.
func (r *Repeat) Base() RepeatBase { return r.base }

// After returns the next run in UTC, calculated from one of three times of the last run: when it
// was scheduled, started or finished, as the base says. The result may lie in the past. Fractions
// of a second are dropped.
//
// Returns a [SpecError] if the result, or a step on the way to it, is outside the years that
// SQLite's dates have. The result must be in the years 0000 to 9999.
func (r *Repeat) After(scheduled, started, finished time.Time) (time.Time, error) {
	from := [...]time.Time{scheduled, started, finished}[r.base]
	t := time.Unix(from.Unix(), 0).UTC()
	ok := dated(t)
	for i := 0; ok && i < len(r.mods); i++ {
		t, ok = r.mods[i].apply(t)
	}
	if !ok || t.Year() < 0 || t.Year() > 9999 {
		return time.Time{}, &SpecError{Input: r.text, Understood: r.text, Problem: "from " + from.UTC().Format(time.RFC3339) + " the result is outside the years 0000 to 9999"}
	}
	return t, nil
}

// Limits of SQLite's dates, in seconds since 1970.
const (
	earliest = -210866760000 // November of 4714 BC, the start of Julian days
	latest   = 253402300799  // 9999-12-31T23:59:59Z
)

// dated reports whether t is within the limits of SQLite's dates.
func dated(t time.Time) bool { return t.Unix() >= earliest && t.Unix() <= latest }

// apply applies the modifier to t and returns the new time. It returns false if t or the result is
// outside SQLite's dates; seconds, minutes, hours and days are added without this check.
func (m *modifier) apply(t time.Time) (time.Time, bool) {
	if m.op == opAdd && repeatUnits[m.unit].seconds > 0 {
		return t.Add(time.Duration(int64(m.n)*repeatUnits[m.unit].seconds) * time.Second), true
	}
	if !dated(t) {
		return t, false
	}
	y, mo, d := t.Date()
	clock := t.Sub(time.Date(y, mo, d, 0, 0, 0, 0, time.UTC))
	switch {
	case m.op == opWeekday:
		return t.AddDate(0, 0, (m.n-int(t.Weekday())+7)%7), true
	case m.op == opStart:
		switch repeatUnits[m.unit].name {
		case "YEAR":
			return time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC), true
		case "MONTH":
			return time.Date(y, mo, 1, 0, 0, 0, 0, time.UTC), true
		case "DAY":
			return time.Date(y, mo, d, 0, 0, 0, 0, time.UTC), true
		default:
			return t.Truncate(time.Hour), true
		}
	case repeatUnits[m.unit].name == "YEAR":
		y += m.n
	default:
		first := time.Date(y, mo+time.Month(m.n), 1, 0, 0, 0, 0, time.UTC)
		y, mo = first.Year(), first.Month()
	}
	return time.Date(y, mo, d, 0, 0, 0, 0, time.UTC).Add(clock), y >= -4713 && y <= 9999
}

// Next returns After with t for all three times. It returns false if the result is not after t,
// because the repeat would then run without a pause, and if After fails.
func (r *Repeat) Next(t time.Time) (time.Time, bool) {
	next, err := r.After(t, t, t)
	if err != nil || !next.After(t) {
		return time.Time{}, false
	}
	return next, true
}

// Interval returns the time between two runs, if it is always the same; it may be negative. It
// returns 0 if it depends on the calendar: with months, years, weekdays or the start of a unit.
func (r *Repeat) Interval() (d time.Duration) {
	for _, m := range r.mods {
		if m.op != opAdd || repeatUnits[m.unit].seconds == 0 {
			return 0
		}
		d += time.Duration(int64(m.n)*repeatUnits[m.unit].seconds) * time.Second
	}
	return d
}

// String returns the repeat in upper case with single spaces; HOURLY, DAILY and WEEKLY without
// their modifiers, unless they were parsed with Snap.
func (r *Repeat) String() string { return r.text }

// describe returns the base and the modifiers in English, and "UTC" at the end.
func (r *Repeat) describe() string {
	text := "from when the last run " + [...]string{"was scheduled", "started", "ended"}[r.base]
	for _, m := range r.mods {
		name := strings.ToLower(repeatUnits[m.unit].name)
		switch {
		case m.op == opStart:
			text += ", back to the start of the " + name
		case m.op == opWeekday:
			text += ", on to " + time.Weekday(m.n).String()
		case m.n == 1 || m.n == -1:
			text += fmt.Sprintf(", %+d %s", m.n, name)
		default:
			text += fmt.Sprintf(", %+d %ss", m.n, name)
		}
	}
	return text + ", UTC"
}

// isRepeat reports whether a text begins with a base or a named pattern such as DAILY, up to the
// first comma, in any case. The rest of the text may be invalid.
func isRepeat(text string) bool {
	first, _, _ := strings.Cut(strings.TrimLeft(text, " \t\r\n,"), ",")
	first = upper(strings.TrimSpace(first))
	for _, name := range baseNames {
		if first == name {
			return true
		}
	}
	for _, known := range canned {
		if first == known.name {
			return true
		}
	}
	return false
}
