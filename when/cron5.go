package when

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// units5 are the fields of ordinary cron in their order.
var units5 = [...]unit{
	{name: "minute", min: 0, max: 59},
	{name: "hour", min: 0, max: 23},
	{name: "day of month", min: 1, max: 31},
	{name: "month", min: 1, max: 12, names: []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{name: "day of week", min: 0, max: 7, names: []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
}

// shorthands are the words that ordinary cron knows.
var shorthands = [...]struct{ word, text string }{
	{"@yearly", "0 0 1 1 *"},
	{"@annually", "0 0 1 1 *"},
	{"@monthly", "0 0 1 * *"},
	{"@weekly", "0 0 * * 0"},
	{"@daily", "0 0 * * *"},
	{"@midnight", "0 0 * * *"},
	{"@hourly", "0 * * * *"},
}

// ParseCron5 reads the five fields of ordinary cron, as crontab(5) tells them, for a zone; nil is UTC:
//
//	minute hour day-of-month month day-of-week
//
// A field is a list of numbers, ranges and steps (*/15, 9-17/2). Months and days of the week may be written by their first three letters,
// and Sunday is 0 or 7. @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly stand for their fields. A text that begins with
// "CRON_TZ=" or "TZ=" and the name of a zone names its zone itself, and loc does not matter. For what happens when
// clocks are put forward and back see [Cron].
//
// If neither day of month nor day of week begins with *, a day need match one of them only; else both must match. This is what
// crontab(5) says and differs from [ParseCron] for fields like */2. Steps behind a single value, which here are said as 5-59/15, and the signs
// ?, L, W and # of other schedulers are refused, as is @reboot.
func ParseCron5(text string, loc *time.Location) (*Cron, error) {
	at, rest, found, err := cutZone(text)
	if err == nil && !found {
		at, err = placeOf(loc)
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
	f.dow.mask = (f.dow.mask | f.dow.mask>>7) & (1<<7 - 1) // 7 is Sunday too
	f.second.set(0)
	f.years = [3]uint64{1<<64 - 1, 1<<64 - 1, 1<<(lastYear-firstYear-127) - 1}
	f.union = parts[2][0] != '*' && parts[4][0] != '*'
	f.prepare()
	if c.write(at, parts); c.loc == nil {
		c.text = zonePrefix + "UTC " + c.text
	}
	return c, nil
}

// split5 parts the fields.
func split5(text, rest string) ([]string, error) {
	parts := strings.Fields(rest)
	if len(parts) == 1 && parts[0][0] == '@' {
		for _, s := range shorthands {
			if strings.EqualFold(parts[0], s.word) {
				return strings.Fields(s.text), nil
			}
		}
		return nil, &SpecError{Input: shorten(text), Problem: "there is no such word", Nearest: "@daily"}
	}
	if len(parts) != len(units5) {
		return nil, &SpecError{
			Input:   shorten(text),
			Problem: fmt.Sprintf("it has %d fields instead of the 5: minute, hour, day of month, month, day of week", len(parts)),
			Nearest: "0 9 * * 1-5",
		}
	}
	return parts, nil
}

// Seven returns the seven fields, in UTC, that say the same as c; see [ParseCron]. It answers false if there are none: in a zone, and for some
// specs of ordinary cron that restrict both day of month and day of week.
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

// list writes a set as numbers and ranges.
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
