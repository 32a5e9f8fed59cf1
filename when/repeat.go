package when

import (
	"fmt"
	"strings"
	"time"
)

// Repeat is the [Spec] of Bedrock: a base and what is to be done to it, one after the other.
//
//	FINISHED, +1 DAY, WEEKDAY 1, START OF DAY, +6 HOURS     every Monday at six, in UTC
//
// The next run depends on how the last one went, so that [Repeat.After] takes three times. Read as
// a Spec all three are the same one. In a schedule SCHEDULED counts from when the run was due,
// however late it is, and the others from when it is taken. A Repeat does not change and is safe
// for concurrent use.
type Repeat struct {
	text string
	base RepeatBase
	mods []modifier
}

// RepeatBase is the moment from which a [Repeat] counts.
type RepeatBase int

// The bases.
const (
	Scheduled RepeatBase = iota // when the last run should have started: runs that were missed are made up for, back to back
	Started                     // when it started
	Finished                    // when it ended
)

// String returns the word that stands for the base.
func (b RepeatBase) String() string {
	if b < 0 || int(b) >= len(baseNames) {
		return fmt.Sprintf("RepeatBase(%d)", int(b))
	}
	return baseNames[b]
}

var baseNames = [...]string{"SCHEDULED", "STARTED", "FINISHED"}

// canned are the patterns that have a name, as the documentation has them and as Bedrock's server has them.
var canned = [...]struct{ name, documented, snapped string }{
	{"HOURLY", "FINISHED, +1 HOUR", "FINISHED, +1 HOUR, START OF HOUR"},
	{"DAILY", "FINISHED, +1 DAY", "FINISHED, +1 DAY, START OF DAY"},
	{"WEEKLY", "FINISHED, +7 DAYS", "FINISHED, +1 DAY, WEEKDAY 0, START OF DAY"},
}

// RepeatConfig says how repeats are read. The zero value follows Bedrock's documentation.
type RepeatConfig struct {
	// Snap makes HOURLY, DAILY and WEEKLY what Bedrock's server makes of them: the top of the next hour, the next midnight and the
	// next Sunday's midnight, instead of an hour, a day and seven days after the end. What is read so names its modifiers in String.
	Snap bool
}

// modifier is one step. Exactly one of its kinds applies: an unit that is added, the start of one, or a weekday.
type modifier struct {
	op   op
	unit int // index of repeatUnits
	n    int // how many to add, or the weekday
}

type op int

const (
	opAdd op = iota
	opStart
	opWeekday
)

// repeatUnits are the units of modifiers, in falling order.
var repeatUnits = [...]struct {
	name    string
	seconds int64 // 0: counted in the calendar
	digits  int
	starts  bool // START OF it
}{
	{"YEAR", 0, 3, true},
	{"MONTH", 0, 3, true},
	{"DAY", daySeconds, 3, true},
	{"HOUR", 3600, 3, true},
	{"MINUTE", 60, 3, false},
	{"SECOND", 1, 8, false},
}

// maxRepeat is the length of the longest repeat, in bytes.
const maxRepeat = 1024

// ParseRepeat reads a base and at least one modifier, parted by commas, or HOURLY, DAILY or WEEKLY:
//
//	SCHEDULED, STARTED, FINISHED        the base
//	+1 DAY, -30 MINUTES                 adds or takes off YEARS, MONTHS, DAYS, HOURS or MINUTES, of at most three digits, or SECONDS, of at most eight
//	START OF DAY                        goes back to the start of the DAY, MONTH, YEAR or HOUR
//	WEEKDAY 1                           goes on to that day of the week, 0 (Sunday) to 6; stays if it is that day; keeps the time of day
//
// They are applied from left to right as SQLite's date modifiers are: a month later than 31 January is 3 March, or 2 March. All is in UTC. Case does not
// matter, nor do blanks around commas and behind a sign, and empty items are dropped. HOURLY, DAILY and WEEKLY count from the end of a run, see
// [RepeatConfig]. A refusal is a [SpecError].
func ParseRepeat(text string) (*Repeat, error) { return RepeatConfig{}.Parse(text) }

// Parse is [ParseRepeat] with c.
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
		return refuse("%q is none of SCHEDULED, STARTED, FINISHED, HOURLY, DAILY and WEEKLY", shorten(items[0]))
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

// upper writes ASCII letters large, and nothing else: no other letter is to turn into one that is known.
func upper(s string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' {
			c -= 'a' - 'A'
		}
		return c
	}, s)
}

// parseModifier reads one modifier, which is in capitals and has single blanks. It returns how it is written properly, or what is wrong with it.
func parseModifier(item string) (m modifier, written, problem string) {
	if rest, ok := strings.CutPrefix(item, "START OF "); ok {
		for i, u := range repeatUnits {
			if u.starts && rest == u.name {
				return modifier{op: opStart, unit: i}, item, ""
			}
		}
		return m, "", "is none of START OF DAY, MONTH, YEAR and HOUR"
	}
	if rest, ok := strings.CutPrefix(item, "WEEKDAY "); ok {
		if len(rest) == 1 && rest[0] >= '0' && rest[0] <= '6' {
			return modifier{op: opWeekday, n: int(rest[0] - '0')}, item, ""
		}
		return m, "", "has no day from 0 (Sunday) to 6"
	}
	if item[0] != '+' && item[0] != '-' {
		return m, "", "is none of +N UNITS, -N UNITS, START OF UNIT and WEEKDAY N"
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
	return m, "", "adds none of YEARS, MONTHS, DAYS, HOURS, MINUTES and SECONDS"
}

// wholeNumber reads up to eight digits.
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

// Base is the moment from which r counts.
func (r *Repeat) Base() RepeatBase { return r.base }

// After returns the next run in UTC, wherever it lies, from when the last run was scheduled, started and finished. Fractions of a second are dropped.
// It is an error, a [SpecError], when the way leads out of the years 0000 to 9999.
func (r *Repeat) After(scheduled, started, finished time.Time) (time.Time, error) {
	from := [...]time.Time{scheduled, started, finished}[r.base]
	t := time.Unix(from.Unix(), 0).UTC()
	ok := dated(t)
	for i := 0; ok && i < len(r.mods); i++ {
		t, ok = r.mods[i].apply(t)
	}
	if !ok || t.Year() < 0 || t.Year() > 9999 {
		return time.Time{}, &SpecError{Input: r.text, Understood: r.text, Problem: "from " + from.UTC().Format(time.RFC3339) + " it leads out of the years 0000 to 9999"}
	}
	return t, nil
}

// What SQLite takes for a date, in seconds since 1970.
const (
	earliest = -210866760000 // in November of 4714 before our era, where Julian days begin
	latest   = 253402300799  // 9999-12-31T23:59:59Z
)

// dated tells whether SQLite takes t for a date.
func dated(t time.Time) bool { return t.Unix() >= earliest && t.Unix() <= latest }

// apply takes one step; false if it leads to where SQLite knows no dates.
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

// Next is After with t for all three times. A result that is not after t ends it: such a repeat would run without a pause.
func (r *Repeat) Next(t time.Time) (time.Time, bool) {
	next, err := r.After(t, t, t)
	if err != nil || !next.After(t) {
		return time.Time{}, false
	}
	return next, true
}

// Interval returns what r adds to its base if that is always the same. 0 if it depends on the
// calendar: months, years, weekdays and the start of a unit.
func (r *Repeat) Interval() (d time.Duration) {
	for _, m := range r.mods {
		if m.op != opAdd || repeatUnits[m.unit].seconds == 0 {
			return 0
		}
		d += time.Duration(int64(m.n)*repeatUnits[m.unit].seconds) * time.Second
	}
	return d
}

// String returns the repeat in capitals and with single blanks.
func (r *Repeat) String() string { return r.text }

// describe says the steps one by one.
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

// isRepeat tells whether a text begins like a repeat.
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
