package when

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// steps are the units that a recurrence may count, how many of them make up the next larger one, and their seconds.
var steps = [...]struct {
	unit    string
	size    int
	seconds int64
	cron    string // the last fields: hour, minute, second
}{
	{"second", 60, 1, "* * %s"},
	{"minute", 60, 60, "* %s 0"},
	{"hour", 24, 3600, "%s 0 0"},
}

// recurrence reads what follows "every".
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

// step reads a number of seconds, minutes or hours.
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
				fmt.Sprintf("%d %ss do not come out even: it must divide %d", n, unit, s.size),
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
		return nil, p.refuse("weeks are counted by one of their days", "every "+ordinal(int(n))+" monday at 9am")
	}
	return nil, p.refuse("only seconds, minutes and hours are counted", "every "+map[string]string{
		"day": "day at 9am", "week": "monday at 9am", "month": "month on the 1st at 9am", "year": "month on the 1st at 9am",
	}[unit])
}

// divisor returns the divisor of size that is nearest to n; of two the smaller.
func divisor(size int, n int64) string {
	best := int64(2)
	for d := int64(2); d <= int64(size); d++ {
		if int64(size)%d == 0 && max(d-n, n-d) < max(best-n, n-best) {
			best = d
		}
	}
	return strconv.FormatInt(best, 10)
}

// weekdays reads a list of weekdays.
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

// nthWeekday reads an ordinal and a weekday.
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
		return nil, p.refuse("the first one of what? there is no such count; each one is said without it", "every "+weekdayNames[w]+" at 9am")
	}
	p.next++
	return p.timed(fmt.Sprintf("* * %d/%d", w, n))
}

// monthly reads the day of a recurrence by months.
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

// ordinal reads 1st, 2nd, 3rd and so on.
func (p *phrase) ordinal() (int, *SpecError) {
	t, after := p.peek(), p.tokens[p.next+1]
	n, ok := number(t.text, 9999)
	switch {
	case t.kind != digits || !ok || n == 0:
		return 0, p.refuse("1st, 2nd, 3rd or the like must follow", "")
	case !after.glued || t.text+after.text != ordinal(n):
		return 0, p.refuse(fmt.Sprintf("%q is no ordinal", t.text+after.text), "")
	}
	p.next += 2
	return n, nil
}

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

// timed reads the time behind days, which are given as month, day of month and day of week.
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

// cron makes the Spec. What comes in steps of so many seconds, from midnight on, is the same in UTC as in a zone whose distance to UTC
// is always a multiple of them. text lacks the year.
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

// evenFrom tells whether a zone's distance to UTC is a multiple of step from now on.
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
