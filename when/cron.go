package when

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Cron is a [Spec] with seven fields, from the year to the second. Make one with [ParseCron] for
// UTC, [ParseCronIn] for another zone, or [ParseCron5] for the usual five fields. It runs only in
// the years 1970 to 2099.
//
// In a zone with daylight saving time a Cron follows one of two rules:
//
//   - If its hour field does not allow all hours, it runs once for each time that it names. A time
//     that the clock skips runs at the first instant after the gap, once for all skipped times. A
//     time that the clock shows twice runs the first time only.
//   - If its hour field allows all hours, it follows the clock: skipped times do not run, and
//     repeated times run twice. So "every 15 minutes" is each quarter of an hour, also when the
//     clock changes.
//
// A Cron is immutable and safe for concurrent use.
type Cron struct {
	text   string         // result of String
	loc    *time.Location // nil: UTC
	fields fields
}

// fields holds the seven parsed fields.
type fields struct {
	years  [3]uint64 // bit n: the year 1970+n
	month  field
	dom    field // day of the month
	dow    field // day of the week
	hour   field
	minute field
	second field

	union    bool     // a day must match dom or dow, not both
	everyDay bool     // each day has a matching time
	days     []uint64 // unless everyDay: bit n is set if day n since 1970 has a matching time
}

// field is the set of values that one field allows.
type field struct {
	any  bool   // the text is *
	mask uint64 // bit v: value v is always allowed
	nth  []nth
}

// nth allows each m-th occurrence of the value n, counted from 1970.
type nth struct{ n, m int64 }

// at returns the set of values that the field allows in the period idx. Each value occurs once in a
// period: a year for months, a day for hours, an hour for minutes, a minute for seconds. Periods
// are numbered from 0 in 1970.
func (f *field) at(idx int64) uint64 {
	mask := f.mask
	for _, e := range f.nth {
		if (idx+1)%e.m == 0 {
			mask |= 1 << e.n
		}
	}
	return mask
}

// unit describes one kind of field.
type unit struct {
	name     string
	min, max int
	names    []string // three-letter names of min, min+1, ...; for five fields only
}

// Indexes of the fields in units and in the text.
const (
	yearField = iota
	monthField
	domField
	dowField
	hourField
	minuteField
	secondField
	fieldCount
)

const firstYear, lastYear = 1970, 2099

// units describes the fields of a Cron in their order.
var units = [fieldCount]unit{
	{name: "year", min: firstYear, max: lastYear},
	{name: "month", min: 1, max: 12},
	{name: "day of month", min: 1, max: 31},
	{name: "day of week", min: 0, max: 6},
	{name: "hour", min: 0, max: 23},
	{name: "minute", min: 0, max: 59},
	{name: "second", min: 0, max: 59},
}

// Limits of the input. A list of all years, hours, minutes and seconds is shorter.
const (
	maxCron = 2048 // bytes
	maxNth  = 16   // items n/m of one spec
	maxStep = 9_999_999
)

// ParseCron parses seven fields in UTC, separated by white space:
//
//	year month day-of-month day-of-week hour minute second
//
// Years are 1970 to 2099, and days of the week 0 (Sunday) to 6. A field is a list of these items,
// separated by commas.
//
//   - * is every value.
//   - 7 is one value.
//   - 9-17 is a range, including both ends.
//   - */4 is every 4th value, starting again in each period: */8 for minutes is 0, 8, ... 56, 0.
//   - 9-17/2 is the same within a range.
//   - 3/2 is every 2nd occurrence of 3, counted from 1970-01-01; as weekday, every 2nd Wednesday.
//
// Occurrences of an hour are counted by days, of a minute by hours, and of a second by minutes. The
// 31st is counted by the months that have one. A spec may have 16 of these items and 2,048 bytes.
//
// If day of month and day of week are both different from *, a day must match only one of them. A
// date that does not exist, such as 30 February, is not an error; it never runs.
//
// This is the format of WorkKit, with the year first. For the usual five fields see [ParseCron5].
// An error is a [SpecError].
func ParseCron(text string) (*Cron, error) { return parseCron(text, namedZone{}) }

// ParseCronIn parses seven fields, as [ParseCron] does, for the clock of a zone. Occurrences of n/m
// are counted on that clock too. The zone must be a named one that other machines know, UTC, or a
// fixed offset. nil: UTC. An error is a [SpecError].
func ParseCronIn(text string, loc *time.Location) (*Cron, error) {
	at, err := namedZoneOf(loc)
	if err != nil {
		return nil, err
	}
	return parseCron(text, at)
}

// parseCron parses seven fields in the zone at, as [ParseCron] describes. Its error is a
// [SpecError] with the fields understood so far. Texts longer than maxCron are refused.
func parseCron(text string, at namedZone) (*Cron, error) {
	if len(text) > maxCron {
		return nil, &SpecError{Input: shorten(text), Problem: fmt.Sprintf("it is longer than %d bytes", maxCron)}
	}
	parts := strings.Fields(text)
	if len(parts) != fieldCount {
		return nil, &SpecError{
			Input:   shorten(text),
			Problem: fmt.Sprintf("it has %d fields, not 7: year, month, day of month, day of week, hour, minute, second", len(parts)),
			Nearest: "* * * 1-5 9 0 0",
		}
	}
	r := reader{input: text}
	c := Cron{}
	f := &c.fields
	var year field
	for i, to := range [fieldCount]*field{&year, &f.month, &f.dom, &f.dow, &f.hour, &f.minute, &f.second} {
		set := to.set
		if i == yearField {
			set = f.setYear
		}
		if err := r.field(to, parts[i], units[i], set); err != nil {
			err.Understood = strings.Join(parts[:i], " ")
			return nil, err
		}
	}
	for _, e := range year.nth { // each year occurs once
		if e.m == 1 {
			f.setYear(int(e.n))
		}
	}
	f.union = !f.dom.any && !f.dow.any
	f.prepare()
	c.write(at, parts)
	return &c, nil
}

// write sets the zone of c and its text, the result of String: the parts with single spaces, after
// "CRON_TZ=" and the zone's name unless that is UTC.
func (c *Cron) write(at namedZone, parts []string) {
	c.loc, c.text = at.loc, strings.Join(parts, " ")
	if at.loc != nil {
		c.text = zonePrefix + at.name + " " + c.text
	}
}

// set allows the value v always.
func (f *field) set(v int) { f.mask |= 1 << v }

// setYear allows the year v, which must be 1970 to 2099.
func (f *fields) setYear(v int) { f.years[(v-firstYear)/64] |= 1 << ((v - firstYear) % 64) }

// Once returns the Cron of a single instant, rounded up to the whole second. Its seven fields are
// all fixed, as in "2026 11 21 * 19 0 0". Returns a [SpecError] for times outside 1970 to 2099.
func Once(t time.Time) (*Cron, error) {
	u := t.UTC()
	if u.Nanosecond() > 0 {
		u = u.Add(time.Second).Truncate(time.Second)
	}
	if u.Year() < firstYear || u.Year() > lastYear {
		return nil, &SpecError{
			Input:   shorten(t.Format(time.RFC3339)),
			Problem: fmt.Sprintf("the year must be %d to %d", firstYear, lastYear),
		}
	}
	return ParseCron(fmt.Sprintf("%d %d %d * %d %d %d", u.Year(), u.Month(), u.Day(), u.Hour(), u.Minute(), u.Second()))
}

// Next returns the first matching instant strictly after t, in UTC and in whole seconds. It returns
// false if no such instant exists up to the end of 2099.
func (c *Cron) Next(t time.Time) (time.Time, bool) {
	s := search{fields: &c.fields}
	sec, ok := s.after(t.Unix(), c.loc)
	if !ok {
		return time.Time{}, false
	}
	return time.Unix(sec, 0).UTC(), true
}

// String returns the fields as they were given, separated by single spaces. In a zone other than
// UTC the text begins with "CRON_TZ=" and the zone's name. A Cron of [ParseCron5] has five fields
// and always has its zone.
func (c *Cron) String() string { return c.text }

// reader parses fields. input is the whole text, for errors.
type reader struct {
	input string
	nths  int
	plain bool // five fields: items n/m are not allowed
}

// refuse returns an error about the text of one field. format and args describe the problem.
func (r *reader) refuse(u unit, text, format string, args ...any) *SpecError {
	return &SpecError{Input: shorten(r.input), Problem: u.name + " " + strconv.Quote(shorten(text)) + ": " + fmt.Sprintf(format, args...)}
}

// field parses one field, a list of items, into f. It calls set for each value that the field
// always allows, and adds items n/m to f.nth. It returns the error of the first bad item, or nil.
func (r *reader) field(f *field, text string, u unit, set func(int)) *SpecError {
	f.any = text == "*"
	for item := range strings.SplitSeq(text, ",") {
		if err := r.item(f, item, u, set); err != nil {
			return err
		}
	}
	return nil
}

// item parses one item of a field's list, as field does: *, a value or a range, each with an
// optional step. A value with a step is an item n/m; with r.plain it is refused, and more than
// maxNth of them are too.
func (r *reader) item(f *field, item string, u unit, set func(int)) *SpecError {
	span, step, stepped := strings.Cut(item, "/")
	every := 1
	if stepped {
		m, ok := number(step, maxStep)
		if !ok || m == 0 {
			return r.refuse(u, item, "the step after / must be a number from 1 to %d", maxStep)
		}
		every = m
	}
	from, to := u.min, u.max
	if span != "*" {
		low, high, ranged := strings.Cut(span, "-")
		var err *SpecError
		if from, err = r.value(low, u); err != nil {
			return err
		}
		switch {
		case ranged:
			if to, err = r.value(high, u); err != nil {
				return err
			}
			if to < from {
				return r.refuse(u, item, "the range ends before it begins; write two ranges, separated by a comma")
			}
		case stepped && r.plain:
			e := r.refuse(u, item, "a single value has no steps here")
			e.Nearest = fmt.Sprintf("%d-%d/%d", from, u.max, every)
			return e
		case stepped:
			if r.nths++; r.nths > maxNth {
				return r.refuse(u, item, "more than %d items n/m", maxNth)
			}
			f.nth = append(f.nth, nth{int64(from), int64(every)})
			return nil
		default:
			to = from
		}
	}
	for v := from; v <= to; v += every {
		set(v)
	}
	return nil
}

// value parses a single number, or a name of the unit in any case. It returns an error if the
// number is outside the unit's range.
func (r *reader) value(text string, u unit) (int, *SpecError) {
	for i, name := range u.names {
		if strings.EqualFold(text, name) {
			return u.min + i, nil
		}
	}
	v, ok := number(text, maxStep)
	if !ok {
		return 0, r.refuse(u, text, "not a number from %d to %d", u.min, u.max)
	}
	if v < u.min || v > u.max {
		e := r.refuse(u, text, "not within %d to %d", u.min, u.max)
		if u.name == units[dowField].name && v == 7 {
			e.Problem += "; Sunday is 0"
		}
		return 0, e
	}
	return v, nil
}

// number parses one to seven digits as a number up to limit. It returns false for anything else.
func number(text string, limit int) (int, bool) {
	if text == "" || len(text) > 7 {
		return 0, false
	}
	v := 0
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return 0, false
		}
		v = v*10 + int(text[i]-'0')
	}
	return v, v <= limit
}
