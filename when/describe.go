package when

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Describe returns a spec in plain English, such as "every weekday at 09:00 UTC". The text is for
// people; Parse does not read it. For specs of other packages it returns String.
func Describe(s Spec) string {
	if d, ok := s.(interface{ describe() string }); ok {
		return d.describe()
	}
	return s.String()
}

// DescribeTime returns an instant in the zone of now, with the time until it, for people: "Sat 21
// Nov 2026 19:00 UTC, in 28h10m". Seconds are shown only if they are not 0. If t is the start of
// the second of now, the text ends with "now".
func DescribeTime(t, now time.Time) string {
	local := t.In(now.Location())
	layout := clockFace
	if local.Second() != 0 {
		layout += ":05"
	}
	s := local.Format(layout + " MST")
	if t.Equal(now.Truncate(time.Second)) {
		return s + ", now"
	}
	return s + ", in " + span(t.Sub(now))
}

// clockFace is the layout of an instant in DescribeTime.
const clockFace = "Mon 2 Jan 2006 15:04"

// span returns a duration, rounded to seconds, without trailing zero units: "28h10m". From a week
// on it returns whole days.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	d = d.Round(time.Second)
	if d >= 7*day {
		return fmt.Sprintf("%d days", d/day)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// describe returns the days and times of c in English, each in the shortest form, and the zone.
func (c *Cron) describe() string {
	f := &c.fields
	zone := "UTC"
	if c.loc != nil {
		zone = c.loc.String()
	}
	years := f.describeYears()
	h, okH := f.hour.single()
	m, okM := f.minute.single()
	s, okS := f.second.single()
	if okH && okM && okS {
		at := two(h) + ":" + two(m)
		if s != 0 {
			at += ":" + two(s)
		}
		if day, ok := f.singleDay(); ok {
			return fmt.Sprintf("once, on %s at %s %s", day, at, zone)
		}
		return f.describeDays("every day") + years + " at " + at + " " + zone
	}
	text := f.describeTimes()
	if days := f.describeDays(""); days != "" {
		text += ", " + days
	}
	return text + years + ", " + zone
}

// single returns the value of a field that allows exactly one value, and false for other fields.
func (f *field) single() (int, bool) {
	return bits.TrailingZeros64(f.mask), bits.OnesCount64(f.mask) == 1 && len(f.nth) == 0
}

// singleDay returns the date, as text, of a spec that allows exactly one day. It returns false for
// other specs, and if that date does not exist.
func (f *fields) singleDay() (string, bool) {
	m, okM := f.month.single()
	d, okD := f.dom.single()
	y, more := f.eachYear()
	if !okM || !okD || !f.dow.any || more != 1 {
		return "", false
	}
	day, ok := dateOf(y, m, d)
	return day.Format("Mon 2 Jan 2006"), ok
}

// eachYear returns the first allowed year and the number of allowed years; 0, 0 if no year is
// allowed.
func (f *fields) eachYear() (first, count int) {
	for n := lastYear - firstYear; n >= 0; n-- {
		if f.years[n/64]>>(n%64)&1 == 1 {
			first = firstYear + n
			count++
		}
	}
	return first, count
}

// describeYears returns the allowed years in English with a leading space or comma; "" if all are
// allowed.
func (f *fields) describeYears() string {
	first, count := f.eachYear()
	switch count {
	case 0:
		return ", in no year"
	case 1:
		return " in " + strconv.Itoa(first)
	case lastYear - firstYear + 1:
		return ""
	}
	var years []string
	for n := range lastYear - firstYear + 1 {
		if f.years[n/64]>>(n%64)&1 == 1 {
			years = append(years, strconv.Itoa(firstYear+n))
		}
	}
	if last := first + count - 1; count > 2 && years[count-1] == strconv.Itoa(last) {
		return fmt.Sprintf(" in %d to %d", first, last)
	}
	return " in " + enumerate(years)
}

// describeDays returns the allowed days and months in English. If all are allowed, it returns the
// text all.
func (f *fields) describeDays(all string) string {
	month := f.month.describe(units[monthField], "in", func(v int) string { return time.Month(v).String() })
	dom := f.dom.describe(units[domField], "on the", ordinal)
	dow := f.dow.describeWeekdays()
	if f.union { // A union with all values of one field matches every day.
		if dom == "" || dow == "" {
			dom, dow = "", ""
		}
	}
	days := all
	switch {
	case dom != "" && dow != "" && f.union:
		days = dom + " and " + dow
	case dom != "" && dow != "":
		days = dow + " that is " + dom
	case dom != "":
		days = dom
		if month == "" {
			days += " of each month"
		}
	case dow != "":
		days = dow
	}
	return strings.TrimSpace(days + " " + month)
}

// describeTimes returns the allowed times of day in English, such as "every 15 minutes". Use it for
// a spec with more than one time of day.
func (f *fields) describeTimes() string {
	second := f.second.describe(units[secondField], "at second", two)
	minute := f.minute.describe(units[minuteField], "at minute", two)
	hour := f.hour.describe(units[hourField], "in the hour", two)
	s, okS := f.second.single()
	m, okM := f.minute.single()
	sharp := okS && s == 0
	var parts []string
	switch {
	case sharp && okM && m == 0 && hour == "":
		return "every hour"
	case sharp && okM && m == 0 && f.hour.every(units[hourField]) > 1:
		return hour
	case sharp && okM && len(f.hour.nth) == 0 && hour != "":
		return f.describeHours(fmt.Sprintf(":%02d", m))
	case sharp && minute == "":
		parts = append(parts, "every minute")
	case sharp:
		parts = append(parts, minute)
	case second == "":
		parts = append(parts, "every second", minute)
	default:
		parts = append(parts, second, minute)
	}
	return enumerateParts(append(parts, hour))
}

// describeHours returns the allowed hours in English, each followed by minute, such as ":30". A run
// of more than two hours becomes "every hour from ... to ...". Items n/m of the field are left out.
func (f *fields) describeHours(minute string) string {
	from := bits.TrailingZeros64(f.hour.mask)
	if n := bits.TrailingZeros64(^(f.hour.mask >> from)); n > 2 && n == bits.OnesCount64(f.hour.mask) {
		return "every hour from " + two(from) + minute + " to " + two(from+n-1) + minute
	}
	var times []string
	for left := f.hour.mask; left != 0; left &= left - 1 {
		times = append(times, two(bits.TrailingZeros64(left))+minute)
	}
	return "at " + enumerate(times)
}

// two returns v with at least two digits: 5 becomes "05".
func two(v int) string { return fmt.Sprintf("%02d", v) }

// enumerateParts joins the parts that are not empty with commas.
func enumerateParts(parts []string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}

// every returns n if the field allows exactly every n-th value from the unit's smallest one.
// Otherwise, and for fields with items n/m, it returns 0.
func (f *field) every(u unit) int {
	if f.mask>>u.min&1 == 0 || len(f.nth) > 0 {
		return 0
	}
	step := bits.TrailingZeros64(f.mask >> (u.min + 1))
	if step++; step > u.max-u.min {
		return 0
	}
	mask := uint64(0)
	for v := u.min; v <= u.max; v += step {
		mask |= 1 << v
	}
	if mask != f.mask {
		return 0
	}
	return step
}

// describe returns the field in English: before, a plural "s" where needed, and the values as name
// writes them. Multiples from 0 become "every 15 minutes". It returns "" if the field allows all
// values.
func (f *field) describe(u unit, before string, name func(int) string) string {
	count := bits.OnesCount64(f.mask)
	if count == u.max-u.min+1 {
		return ""
	}
	if step := f.every(u); step > 1 && count > 2 && u.max < 60 && u.min == 0 {
		return fmt.Sprintf("every %d %ss", step, u.name)
	}
	items := ranges(f.mask, name)
	for _, e := range f.nth {
		text := name(int(e.n))
		if e.m > 1 {
			text += " (every " + ordinal(int(e.m)) + " time)"
		}
		items = append(items, text)
	}
	return before + plural(u, len(items) > 1 || count > 1) + " " + enumerate(items)
}

// plural returns "s" if many is true and the unit is an hour, minute, second or day of the week;
// otherwise "".
func plural(u unit, many bool) string {
	if many && u.max < 60 && u.min == 0 {
		return "s"
	}
	return ""
}

// describeWeekdays returns the days of the week in English, such as "every weekday" or "every 2nd
// Monday"; "" if all are allowed.
func (f *field) describeWeekdays() string {
	name := func(v int) string { return time.Weekday(v).String() }
	var items []string
	switch {
	case f.mask == 1<<7-1:
		return ""
	case f.mask == 0b0111110:
		items = append(items, "every weekday")
	case f.mask != 0:
		items = append(items, "every "+enumerate(ranges(f.mask, name)))
	}
	for _, e := range f.nth {
		if e.m == 1 {
			items = append(items, "every "+name(int(e.n)))
			continue
		}
		items = append(items, "every "+ordinal(int(e.m))+" "+name(int(e.n)))
	}
	return enumerate(items)
}

// ranges returns the values of a set in ascending order, as name writes them. Three or more
// consecutive values become one range, "1 to 5".
func ranges(mask uint64, name func(int) string) []string {
	var items []string
	for mask != 0 {
		from := bits.TrailingZeros64(mask)
		n := bits.TrailingZeros64(^(mask >> from))
		mask &^= 1<<(from+n) - 1
		if n > 2 {
			items = append(items, name(from)+" to "+name(from+n-1))
			continue
		}
		for v := range n {
			items = append(items, name(from+v))
		}
	}
	return items
}

// enumerate joins words with commas and a final "and".
func enumerate(words []string) string {
	switch n := len(words); n {
	case 0:
		return ""
	case 1:
		return words[0]
	default:
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
}
