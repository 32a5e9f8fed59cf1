package when

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// steps are the units of "every N units": the size of the next larger unit, and the seconds of one
// unit.
var steps = [...]struct {
	unit    string
	size    int
	seconds int64
	cron    string // the fields hour, minute, second
}{
	{"second", 60, 1, "* * %s"},
	{"minute", 60, 60, "* %s 0"},
	{"hour", 24, 3600, "%s 0 0"},
}

// recurrence parses the text after "every" and returns its spec. It returns an error, often with a
// nearest phrase, if the text is not understood.
func (p *phrase) recurrence() (Spec, *SpecError) {
	t, after := p.peek(), p.tokens[p.next+1]
	switch {
	case t.kind == digits && after.glued && after.kind == word:
		return p.nthWeekday()
	case t.kind == digits:
		return p.step()
	case named(t, weekdayNames[:]) >= 0:
		return p.weekdays()
	case p.take("day"):
		return p.timed("* * *")
	case p.take("weekday"):
		return p.timed("* * 1-5")
	case p.take("month"):
		return p.monthly()
	}
	for _, s := range steps {
		if p.take(s.unit) {
			return p.cron("* * * "+fmt.Sprintf(s.cron, "*"), s.seconds)
		}
	}
	return nil, p.refuse("a number of seconds, minutes or hours, a day, weekdays or a month must follow", "")
}

// step parses a number of seconds, minutes or hours, and returns the spec. It returns an error for
// other units, and for a number that does not divide the next larger unit.
func (p *phrase) step() (Spec, *SpecError) {
	n, err := p.amount()
	if err != nil {
		return nil, err
	}
	unit := p.unit()
	for _, s := range steps {
		switch {
		case s.unit != unit:
		case n == 0 || int64(s.size)%n != 0:
			p.next -= 2
			return nil, p.refuse(
				fmt.Sprintf("%d does not divide %d", n, s.size),
				"every "+divisor(s.size, n)+" "+unit+"s",
			)
		case n == int64(s.size):
			return p.cron("* * * "+fmt.Sprintf(s.cron, "0"), s.seconds*n)
		case n == 1:
			return p.cron("* * * "+fmt.Sprintf(s.cron, "*"), s.seconds)
		default:
			return p.cron("* * * "+fmt.Sprintf(s.cron, "*/"+strconv.FormatInt(n, 10)), s.seconds*n)
		}
	}
	switch {
	case unit == "":
		return nil, p.refuse("seconds, minutes or hours must follow", "")
	case unit == "week" && n > 1:
		return nil, p.refuse("name a day of the week instead", "every "+ordinal(int(n))+" monday at 9am")
	}
	return nil, p.refuse("only seconds, minutes and hours can have a number", "every "+map[string]string{
		"day": "day at 9am", "week": "monday at 9am", "month": "month on the 1st at 9am", "year": "month on the 1st at 9am",
	}[unit])
}

// divisor returns the divisor of size, from 2 on, that is nearest to n; the smaller of two.
func divisor(size int, n int64) string {
	best := int64(2)
	for d := int64(2); d <= int64(size); d++ {
		if int64(size)%d == 0 && max(d-n, n-d) < max(best-n, n-best) {
			best = d
		}
	}
	return strconv.FormatInt(best, 10)
}

// weekdays parses a list of weekdays and an optional time, and returns the spec. Without a time it
// runs at midnight. It returns an error if a name is missing after "and" or a comma, or the time is
// not valid.
func (p *phrase) weekdays() (Spec, *SpecError) {
	var days []int
	for {
		w := named(p.peek(), weekdayNames[:])
		if w < 0 {
			return nil, p.refuse("a weekday must follow", "")
		}
		p.next++
		days = append(days, w)
		if !p.joiner() {
			break
		}
	}
	mask := uint64(0)
	for _, w := range days {
		mask |= 1 << w
	}
	return p.timed("* * " + list(mask))
}

// nthWeekday parses an ordinal from 2nd on, a weekday and an optional time, and returns the spec:
// every n-th such weekday. Without a time it runs at midnight. It returns an error for "1st", for
// another word than a weekday, and for a time that is not valid.
func (p *phrase) nthWeekday() (Spec, *SpecError) {
	n, err := p.ordinal()
	if err != nil {
		return nil, err
	}
	w := named(p.peek(), weekdayNames[:])
	if w < 0 {
		return nil, p.refuse("a weekday must follow", "every "+ordinal(n)+" monday at 9am")
	}
	if n == 1 {
		return nil, p.refuse("1st is not a count here; leave it out", "every "+weekdayNames[w]+" at 9am")
	}
	p.next++
	return p.timed(fmt.Sprintf("* * %d/%d", w, n))
}

// monthly parses "on the", an ordinal up to 31st, which is the day of the month, and an optional
// time. It returns the spec; without a time it runs at midnight. It returns an error for any other
// text.
func (p *phrase) monthly() (Spec, *SpecError) {
	if !p.take("on") || !p.take("the") {
		return nil, p.refuse("the day of the month must follow", "every month on the 1st at 9am")
	}
	n, err := p.ordinal()
	if err != nil {
		return nil, err
	}
	if n > 31 {
		p.next -= 2
		return nil, p.refuse("no month has so many days", "every month on the 31st")
	}
	return p.timed(fmt.Sprintf("* %d *", n))
}

// ordinal parses 1st, 2nd, 3rd and so on, up to 9999th. It returns an error for other text, and for
// a wrong ending such as "2th".
func (p *phrase) ordinal() (int, *SpecError) {
	t, after := p.peek(), p.tokens[p.next+1]
	n, ok := number(t.text, 9999)
	switch {
	case t.kind != digits || !ok || n == 0:
		return 0, p.refuse("1st, 2nd, 3rd or the like must follow", "")
	case !after.glued || t.text+after.text != ordinal(n):
		return 0, p.refuse(fmt.Sprintf("%q is not an ordinal such as 1st", t.text+after.text), "")
	}
	p.next += 2
	return n, nil
}

// ordinal returns a number as 1st, 2nd, 3rd, 4th, 11th, 21st and so on.
func ordinal(n int) string {
	suffix := "th"
	if n/10%10 != 1 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return strconv.Itoa(n) + suffix
}

// timed parses an optional time, "at 9am", and returns the spec of the given days at that time, or
// at midnight. days are the cron fields month, day of month and day of week. It returns an error if
// the time is not valid or other machines do not know the zone.
func (p *phrase) timed(days string) (Spec, *SpecError) {
	sec := int64(0)
	if p.take("at") {
		var err *SpecError
		if sec, err = p.time(); err != nil {
			return nil, err
		}
	}
	return p.cron(fmt.Sprintf("%s %d %d %d", days, sec/3600, sec/60%60, sec%60), 0)
}

// cron returns the spec of the fields text, which lacks the year, in the zone of the phrase. step
// is the interval in seconds from midnight, or 0. If the zone's offset is always a multiple of
// step, the spec is the same in UTC, and cron returns it in UTC.
//
// It returns an error if other machines do not know the zone.
func (p *phrase) cron(text string, step int64) (Spec, *SpecError) {
	loc := p.loc
	if loc != nil && step > 0 && evenFrom(p.now.Unix(), loc, step) {
		loc = nil
	}
	c, err := ParseCronIn("* "+text, loc)
	if err != nil {
		var refusal *SpecError
		if !errors.As(err, &refusal) {
			refusal = p.refuse(err.Error(), "")
		}
		refusal.Problem = "its zone, " + shorten(refusal.Input) + ", cannot be used: " + refusal.Problem
		refusal.Input, refusal.Understood = shorten(p.input), shorten(p.input)
		return nil, refusal
	}
	return c, nil
}

// evenFrom reports whether a zone's offset from UTC is a multiple of step seconds at all times from
// u on.
func evenFrom(u int64, loc *time.Location, step int64) bool {
	for u < maxUnix {
		p := periodAt(u, loc)
		if p.off%step != 0 {
			return false
		}
		u = p.end
	}
	return true
}
