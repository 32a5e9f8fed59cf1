package when

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// units5 describes the five fields in their order.
var units5 = [...]unit{
	{name: "minute", min: 0, max: 59},
	{name: "hour", min: 0, max: 23},
	{name: "day of month", min: 1, max: 31},
	{name: "month", min: 1, max: 12, names: []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{name: "day of week", min: 0, max: 7, names: []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
}

// shorthands maps the words of crontab(5) to their five fields.
var shorthands = [...]struct{ word, text string }{
	{"@yearly", "0 0 1 1 *"},
	{"@annually", "0 0 1 1 *"},
	{"@monthly", "0 0 1 * *"},
	{"@weekly", "0 0 * * 0"},
	{"@daily", "0 0 * * *"},
	{"@midnight", "0 0 * * *"},
	{"@hourly", "0 * * * *"},
}

// ParseCron5 parses the five fields of crontab(5), in a zone; nil: UTC.
//
//	minute hour day-of-month month day-of-week
//
// A field is a list of numbers, ranges and steps (*/15, 9-17/2). Months and days of the week may be
// written as their first three letters; Sunday is 0 or 7. @yearly, @annually, @monthly, @weekly,
// @daily, @midnight and @hourly replace all fields. A text that begins with "CRON_TZ=" or "TZ=" and
// the name of a zone uses that zone instead of loc. For daylight saving time see [Cron].
//
// If neither day of month nor day of week begins with *, a day must match only one of them;
// otherwise it must match both. This rule of crontab(5) differs from [ParseCron] for fields such as
// */2.
//
// Steps after a single value are refused; write 5-59/15. @reboot and the signs ?, L, W and # of
// other schedulers are refused too. An error is a [SpecError].
func ParseCron5(text string, loc *time.Location) (*Cron, error) {
	at, rest, found, err := cutZone(text)
	if err == nil && !found {
		at, err = namedZoneOf(loc)
	}
	if err != nil {
		return nil, err
	}
	if len(rest) > maxCron {
		return nil, &SpecError{Input: shorten(text), Problem: fmt.Sprintf("it is longer than %d bytes", maxCron)}
	}
	parts, err := split5(text, rest)
	if err != nil {
		return nil, err
	}
	r := reader{input: text, plain: true}
	c := &Cron{}
	f := &c.fields
	for i, to := range [...]*field{&f.minute, &f.hour, &f.dom, &f.month, &f.dow} {
		if err := r.field(to, parts[i], units5[i], to.set); err != nil {
			err.Understood = strings.Join(parts[:i], " ")
			return nil, err
		}
	}
	f.dow.mask = (f.dow.mask | f.dow.mask>>7) & (1<<7 - 1) // 7 is Sunday
	f.second.set(0)
	f.years = [3]uint64{1<<64 - 1, 1<<64 - 1, 1<<(lastYear-firstYear-127) - 1}
	f.union = parts[2][0] != '*' && parts[4][0] != '*'
	f.prepare()
	if c.write(at, parts); c.loc == nil {
		c.text = zonePrefix + "UTC " + c.text
	}
	return c, nil
}

// split5 returns the five fields of rest, or of the shorthand that rest is. text is the whole
// input, for errors. Returns a [SpecError] for another number of fields and for an unknown
// shorthand.
func split5(text, rest string) ([]string, error) {
	parts := strings.Fields(rest)
	if len(parts) == 1 && parts[0][0] == '@' {
		for _, s := range shorthands {
			if strings.EqualFold(parts[0], s.word) {
				return strings.Fields(s.text), nil
			}
		}
		return nil, &SpecError{Input: shorten(text), Problem: "this word is unknown", Nearest: "@daily"}
	}
	if len(parts) != len(units5) {
		return nil, &SpecError{
			Input:   shorten(text),
			Problem: fmt.Sprintf("it has %d fields, not 5: minute, hour, day of month, month, day of week", len(parts)),
			Nearest: "0 9 * * 1-5",
		}
	}
	return parts, nil
}

// Seven returns seven fields in UTC with the same times as c; see [ParseCron]. It returns false if
// c has a zone other than UTC. It also returns false for a spec of [ParseCron5] that restricts both
// day of month and day of week and requires both to match.
func (c *Cron) Seven() (string, bool) {
	if c.loc != nil {
		return "", false
	}
	if !strings.HasPrefix(c.text, zonePrefix) {
		return c.text, true
	}
	f := &c.fields
	const allDoms, allDows = 1<<32 - 2, 1<<7 - 1
	dom, dow := list(f.dom.mask), list(f.dow.mask)
	if !f.union {
		switch {
		case f.dom.mask == allDoms:
			dom = "*"
			if f.dow.mask == allDows {
				dow = "*"
			}
		case f.dow.mask == allDows:
			dow = "*"
		default:
			return "", false
		}
	}
	whole := func(f *field, u unit) string {
		if bits.OnesCount64(f.mask) == u.max-u.min+1 {
			return "*"
		}
		return list(f.mask)
	}
	return strings.Join([]string{
		"*", whole(&f.month, units[monthField]), dom, dow,
		whole(&f.hour, units[hourField]), whole(&f.minute, units[minuteField]), "0",
	}, " "), true
}

// list returns the set of bits of mask as a list of numbers and ranges, such as "1-5,7". Two
// neighbors are written as two numbers.
func list(mask uint64) string {
	var b strings.Builder
	for mask != 0 {
		from := bits.TrailingZeros64(mask)
		n := bits.TrailingZeros64(^(mask >> from))
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(from))
		switch {
		case n > 2:
			b.WriteString("-" + strconv.Itoa(from+n-1))
		case n == 2:
			b.WriteString("," + strconv.Itoa(from+1))
		}
		mask &^= 1<<(from+n) - 1
	}
	return b.String()
}
