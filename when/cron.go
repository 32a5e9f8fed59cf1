package when

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Cron is the [Spec] of times that a calendar can name: seven fields, from the year down to the second. [ParseCron] reads them in
// UTC, [ParseCronIn] in another zone, and [ParseCron5] translates the five fields of ordinary cron. The years are 1970 to 2099; after
// them it never runs.
//
// In a zone whose clock is put forward and back, a Cron follows one of two rules:
//   - One that is meant for certain hours runs once for each time it names. A time that the clock leaves out is made up for at
//     the first instant after the gap, once for all that were left out together. A time that comes twice counts the first time.
//   - One whose hour field takes in every hour follows the clock as it is: what the clock leaves out is left out, and what it
//     shows twice happens twice. "Every 15 minutes" so means each quarter of an hour, in the night of the change too.
//
// A Cron does not change and is safe for concurrent use.
type Cron struct {
	text   string         // what String answers
	loc    *time.Location // nil: UTC
	fields fields
}

// fields are the seven fields, read.
type fields struct {
	years  [3]uint64 // bit n: the year 1970+n
	month  field
	dom    field // day of the month
	dow    field // day of the week
	hour   field
	minute field
	second field

	union    bool     // a day need match one of dom and dow, not both
	everyDay bool     // every day has a matching time
	days     []uint64 // bit n: day n since 1970 has a matching time; unless everyDay
}

// field is what one field allows.
type field struct {
	any  bool   // written as *
	mask uint64 // bit v: value v, always
	nth  []nth
}

// nth allows each m-th occurrence of value n, counted from 1970.
type nth struct{ n, m int64 }

// at returns the values that the field allows in period idx, of those in which each value occurs once: years for a month, days for an
// hour, hours for a minute, minutes for a second. Periods are counted from 0 in 1970.
func (f *field) at(idx int64) uint64 {
	mask := f.mask
	for _, e := range f.nth {
		if (idx+1)%e.m == 0 {
			mask |= 1 << e.n
		}
	}
	return mask
}

// unit is one kind of field.
type unit struct {
	name     string
	min, max int
	names    []string // three letters each, that stand for min, min+1, ...; five fields only
}

// The order of the fields in units and in text.
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

// units are the fields of a Cron in their order.
var units = [fieldCount]unit{
	{name: "year", min: firstYear, max: lastYear},
	{name: "month", min: 1, max: 12},
	{name: "day of month", min: 1, max: 31},
	{name: "day of week", min: 0, max: 6},
	{name: "hour", min: 0, max: 23},
	{name: "minute", min: 0, max: 59},
	{name: "second", min: 0, max: 59},
}

// Bounds of what is read. All of the years, hours, minutes and seconds one by one fit in.
const (
	maxCron = 2048 // bytes
	maxNth  = 16   // items n/m of one spec
	maxStep = 9_999_999
)

// ParseCron reads seven fields in UTC, parted by blanks:
//
//	year month day-of-month day-of-week hour minute second
//
// with the years 1970 to 2099 and the days of the week 0 (Sunday) to 6. A field is a list, parted by commas, of
//
//   - every value
//     7      one value
//     9-17   a range, both ends included
//     */4    the first value and then each 4th, anew in each period: */8 minutes are 0, 8, ... 56, 0
//     9-17/2 the same within a range
//     3/2    every 2nd occurrence of the value 3, counted from 1970-01-01: every 2nd Wednesday, for a day of the week
//
// Occurrences are counted where the field has the value: hours by days, minutes by hours, seconds by minutes, and the 31st by the months
// that have one. A spec has at most 16 such items, and 2,048 bytes. If day of month and day of week are both something else than *,
// a day need match one of them only. A date that never comes, as 30 February, is no error: it never runs.
//
// This is the format of WorkKit. It has the year first; for the five fields of ordinary cron see [ParseCron5]. A refusal is a [SpecError].
func ParseCron(text string) (*Cron, error) { return parseCron(text, place{}) }

// ParseCronIn is [ParseCron] for a zone: the fields are what a clock there shows. Occurrences of n/m are counted on that clock as well.
// The zone must have a name that other machines know, or be UTC or a fixed offset; nil is UTC.
func ParseCronIn(text string, loc *time.Location) (*Cron, error) {
	at, err := placeOf(loc)
	if err != nil {
		return nil, err
	}
	return parseCron(text, at)
}

func parseCron(text string, at place) (*Cron, error) {
	if len(text) > maxCron {
		return nil, &SpecError{Input: shorten(text), Problem: fmt.Sprintf("it is longer than %d bytes", maxCron)}
	}
	parts := strings.Fields(text)
	if len(parts) != fieldCount {
		return nil, &SpecError{
			Input:   shorten(text),
			Problem: fmt.Sprintf("it has %d fields instead of the 7: year, month, day of month, day of week, hour, minute, second", len(parts)),
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
	for _, e := range year.nth { // each year comes once
		if e.m == 1 {
			f.setYear(int(e.n))
		}
	}
	f.union = !f.dom.any && !f.dow.any
	f.prepare()
	c.write(at, parts)
	return &c, nil
}

// write completes c, whose fields are those of a clock there.
func (c *Cron) write(at place, parts []string) {
	c.loc, c.text = at.loc, strings.Join(parts, " ")
	if at.loc != nil {
		c.text = zonePrefix + at.name + " " + c.text
	}
}

func (f *field) set(v int) { f.mask |= 1 << v }

func (f *fields) setYear(v int) { f.years[(v-firstYear)/64] |= 1 << ((v - firstYear) % 64) }

// Once returns the Cron of one instant, rounded up to the whole second: its seven fields are all fixed, as in "2026 11 21 * 19 0 0".
// It is refused outside of the years 1970 to 2099.
func Once(t time.Time) (*Cron, error) {
	u := t.UTC()
	if u.Nanosecond() > 0 {
		u = u.Add(time.Second).Truncate(time.Second)
	}
	if u.Year() < firstYear || u.Year() > lastYear {
		return nil, &SpecError{
			Input:   shorten(t.Format(time.RFC3339)),
			Problem: fmt.Sprintf("schedules know the years %d to %d", firstYear, lastYear),
		}
	}
	return ParseCron(fmt.Sprintf("%d %d %d * %d %d %d", u.Year(), u.Month(), u.Day(), u.Hour(), u.Minute(), u.Second()))
}

// Next returns the first instant strictly after t that the fields name, in UTC.
func (c *Cron) Next(t time.Time) (time.Time, bool) {
	s := search{fields: &c.fields}
	sec, ok := s.after(t.Unix(), c.loc)
	if !ok {
		return time.Time{}, false
	}
	return time.Unix(sec, 0).UTC(), true
}

// String returns the fields as they were given, parted by single blanks; in a zone other than UTC it begins with "CRON_TZ=" and the
// zone's name. What [ParseCron5] reads has five fields and always names its zone.
func (c *Cron) String() string { return c.text }

// A reader reads fields and knows what it reads them from.
type reader struct {
	input string
	nths  int
	plain bool // five fields: no items n/m
}

// refuse says what is wrong with a field.
func (r *reader) refuse(u unit, text, format string, args ...any) *SpecError {
	return &SpecError{Input: shorten(r.input), Problem: u.name + " " + strconv.Quote(shorten(text)) + ": " + fmt.Sprintf(format, args...)}
}

// field reads one field. It calls set with each value that the field always allows.
func (r *reader) field(f *field, text string, u unit, set func(int)) *SpecError {
	f.any = text == "*"
	for item := range strings.SplitSeq(text, ",") {
		if err := r.item(f, item, u, set); err != nil {
			return err
		}
	}
	return nil
}

// item reads one item of the list that a field is.
func (r *reader) item(f *field, item string, u unit, set func(int)) *SpecError {
	span, step, stepped := strings.Cut(item, "/")
	every := 1
	if stepped {
		m, ok := number(step, maxStep)
		if !ok || m == 0 {
			return r.refuse(u, item, "what stands behind / must be a number from 1 to %d", maxStep)
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
				return r.refuse(u, item, "the range ends before it begins; write it as two, parted by a comma")
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

// value reads a single value.
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

// number reads digits, of a number up to the limit, which is below 10 millions.
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
