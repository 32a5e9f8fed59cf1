package when

import (
	"fmt"
	"strings"
	"time"
)

var weekdayNames = [...]string{"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"}

var monthNames = [...]string{
	"january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december",
}

// named returns the index of the name that t is, in full or cut to three letters; -1 if no name
// matches. t.text must be in lower case.
func named(t token, names []string) int {
	if t.kind == word {
		for i, name := range names {
			if t.text == name || t.text == name[:3] {
				return i
			}
		}
	}
	return -1
}

// moment is a day and a time of day.
type moment struct {
	time int64 // seconds since midnight
	// first and more are the days, each as its midnight: the first day, and the next one after a given
	// day. If more is nil, the day is fixed.
	first time.Time
	more  func(time.Time) time.Time
	iso   bool
}

// moment parses the text after "at", and returns the instant: "now", a time alone, a time and a day
// in either order, or an ISO date alone, which is its midnight. It returns an error if the text is
// not understood, a fixed instant is past, or the clock skips it.
func (p *phrase) moment() (time.Time, *SpecError) {
	if p.take("now") {
		return p.now.Truncate(time.Second), nil
	}
	m := moment{}
	var err *SpecError
	if p.atTime() {
		if m.time, err = p.time(); err != nil {
			return time.Time{}, err
		}
		if on := p.take("on"); on || !p.done() {
			err = p.day(&m)
		} else {
			m.first, m.more = p.today(), func(d time.Time) time.Time { return d.AddDate(0, 0, 1) }
		}
		if err != nil {
			return time.Time{}, err
		}
		return p.resolve(&m)
	}
	if err = p.day(&m); err != nil {
		return time.Time{}, err
	}
	if m.iso && p.done() {
		return p.resolve(&m)
	}
	switch t := p.peek(); {
	case m.iso && t.glued && t.text == "t" && p.tokens[p.next+1].glued:
		p.next++
	default:
		p.take("at")
	}
	if !p.atTime() {
		return time.Time{}, p.refuse("a time must follow", "")
	}
	if m.time, err = p.time(); err != nil {
		return time.Time{}, err
	}
	if m.iso && p.tokens[p.next-1].kind == digits {
		if off, ok := p.offset(); ok {
			return p.future(time.Unix(m.first.Unix()+m.time-int64(off), 0))
		}
	}
	return p.resolve(&m)
}

// resolve returns the instant of m: on a fixed day, or else the first one after p.now. It returns
// an error if a fixed instant is past, if the zone's clock skips the time, or if no such moment
// follows.
func (p *phrase) resolve(m *moment) (time.Time, *SpecError) {
	for day := m.first; day.Year() <= lastYear; day = m.more(day) {
		c := day.Unix() + m.time
		at := time.Unix(p.instant(c), 0)
		if m.more != nil && !at.After(p.now) {
			continue
		}
		if p.loc != nil && at.Unix()+periodAt(at.Unix(), p.loc).off != c {
			return time.Time{}, p.refuse(fmt.Sprintf("the clock of %v skips %s", p.loc, time.Unix(c, 0).UTC().Format(clockFace)), "")
		}
		if m.more == nil {
			return p.future(at)
		}
		return at, nil
	}
	return time.Time{}, p.refuse(fmt.Sprintf("there is no such moment up to the year %d", lastYear), "")
}

// future returns at, or an error if it lies before p.now.
func (p *phrase) future(at time.Time) (time.Time, *SpecError) {
	if at.Before(p.now) {
		return time.Time{}, p.refuse("that is in the past: "+at.In(p.now.Location()).Format(clockFace+":05 MST"), "")
	}
	return at, nil
}

// today returns the current day in the zone of p.now. Days are written as their midnights in UTC
// here, whatever the zone.
func (p *phrase) today() time.Time {
	y, m, d := p.now.Date()
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
}

// day parses a day and sets the day of m. It is fixed for "today", "tomorrow", "next" and a
// weekday, a date with a year and an ISO date. For a weekday alone or a date without a year,
// m.first is the next such day, today included. A date may also be past, earlier in this year.
// m.more gives the following days. It returns an error if the next tokens are not a day.
func (p *phrase) day(m *moment) *SpecError {
	today := p.today()
	t, after := p.peek(), p.tokens[p.next+1]
	switch {
	case p.take("today"):
		m.first = today
	case p.take("tomorrow"):
		m.first = today.AddDate(0, 0, 1)
	case p.take("next"):
		w := named(p.peek(), weekdayNames[:])
		if w < 0 {
			return p.refuse("a weekday must follow", "")
		}
		p.next++
		monday := today.AddDate(0, 0, 7-(int(today.Weekday())+6)%7)
		m.first = monday.AddDate(0, 0, (w+6)%7)
	case named(t, weekdayNames[:]) >= 0:
		p.next++
		m.first = today.AddDate(0, 0, (named(t, weekdayNames[:])-int(today.Weekday())+7)%7)
		m.more = func(d time.Time) time.Time { return d.AddDate(0, 0, 7) }
	case named(t, monthNames[:]) >= 0:
		p.next++
		if t := p.peek(); t.kind != digits || len(t.text) > 2 {
			return p.refuse("a day of the month must follow", "")
		}
		p.next++
		return p.date(m, named(t, monthNames[:])+1, after.text)
	case t.kind == digits && len(t.text) <= 2 && named(after, monthNames[:]) >= 0 && !after.glued:
		p.next += 2
		return p.date(m, named(after, monthNames[:])+1, t.text)
	case t.kind == digits && len(t.text) == 4 && after.glued && after.text == "-":
		return p.isoDate(m)
	case t.kind == digits:
		return p.refuse(fmt.Sprintf("%q is neither a time nor a day", p.rest()), "")
	default:
		return p.refuse("a time or a day must follow", "")
	}
	return nil
}

// date parses the optional year after a month and a day of the month, and sets the day of m. With a
// year the day is fixed; without one it is that date of each year. It returns an error if the date
// does not exist.
func (p *phrase) date(m *moment, month int, dom string) *SpecError {
	d, _ := number(dom, 99)
	if t := p.tokens[p.next+1]; p.peek().text == "," && t.kind == digits && len(t.text) == 4 {
		p.next++
	}
	if t := p.peek(); t.kind == digits && len(t.text) == 4 && !p.tokens[p.next+1].glued {
		y, _ := number(t.text, 9999)
		p.next++
		return p.fix(m, y, month, d)
	}
	year := p.today().Year()
	find := func(y int) (time.Time, bool) {
		for ; y <= lastYear; y++ {
			if day, ok := dateOf(y, month, d); ok {
				return day, true
			}
		}
		return time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC), false
	}
	if _, ok := dateOf(2000, month, d); !ok {
		return p.refuse(fmt.Sprintf("%s has no day %d", monthNames[month-1], d), "")
	}
	m.first, _ = find(year)
	m.more = func(day time.Time) time.Time {
		day, _ = find(day.Year() + 1)
		return day
	}
	return nil
}

// isoDate parses a date such as 2026-11-21 and sets the day of m, which is then fixed. It returns
// an error for another form or a date that does not exist.
func (p *phrase) isoDate(m *moment) *SpecError {
	var v [5]token
	for i := range v {
		v[i] = p.tokens[min(p.next+i, len(p.tokens)-1)]
		if i > 0 && !v[i].glued || v[i].kind != [...]kind{digits, sign, digits, sign, digits}[i] {
			return p.refuse("a date must be written as 2026-11-21", "")
		}
	}
	if v[3].text != "-" || len(v[2].text) != 2 || len(v[4].text) != 2 {
		return p.refuse("a date must be written as 2026-11-21", "")
	}
	y, _ := number(v[0].text, 9999)
	month, _ := number(v[2].text, 99)
	d, _ := number(v[4].text, 99)
	p.next += len(v)
	m.iso = true
	return p.fix(m, y, month, d)
}

// fix sets the day of m to a date with a year. It returns an error if the date does not exist or
// the year is not 1970 to 2099.
func (p *phrase) fix(m *moment, y, month, d int) *SpecError {
	day, ok := dateOf(y, month, d)
	if !ok {
		return p.refuse("there is no such day", "")
	}
	if y < firstYear || y > lastYear {
		return p.refuse(fmt.Sprintf("the year must be %d to %d", firstYear, lastYear), "")
	}
	m.first = day
	return nil
}

// dateOf returns the midnight of a date in UTC. It returns false if the date does not exist, such
// as 30 February.
func dateOf(y, month, d int) (time.Time, bool) {
	t := time.Date(y, time.Month(month), d, 0, 0, 0, 0, time.UTC)
	return t, t.Year() == y && int(t.Month()) == month && t.Day() == d
}

// atTime reports whether the next tokens look like a time: noon, midnight, or a number before ":",
// am or pm. It skips nothing.
func (p *phrase) atTime() bool {
	t, after := p.peek(), p.tokens[p.next+1]
	return t.text == "noon" || t.text == "midnight" ||
		t.kind == digits && (after.glued && after.text == ":" || after.text == "am" || after.text == "pm")
}

// time parses a time of day, such as 9am, 19:15, noon or midnight, and returns seconds since
// midnight. It returns an error for anything else and for times that do not exist.
func (p *phrase) time() (int64, *SpecError) {
	switch {
	case p.take("noon"):
		return 12 * 3600, nil
	case p.take("midnight"):
		return 0, nil
	}
	if !p.atTime() {
		return 0, p.refuse("a time must follow, as 9am, 19:15, noon or midnight", "")
	}
	start := p.next
	fail := func(problem string) (int64, *SpecError) {
		p.next = start
		return 0, p.refuse(fmt.Sprintf("%q: %s", p.rest(), problem), "")
	}
	var v [3]int
	for i := range v {
		t := p.peek()
		n, ok := number(t.text, [...]int{23, 59, 59}[i])
		if t.kind != digits || len(t.text) > 2 || i > 0 && (len(t.text) != 2 || !t.glued) || !ok {
			return fail("there is no such time")
		}
		v[i] = n
		p.next++
		if t, after := p.peek(), p.tokens[p.next+1]; i == len(v)-1 || t.text != ":" || !t.glued || after.kind != digits {
			break
		}
		p.next++
	}
	h := v[0]
	for _, half := range [...]struct {
		word string
		add  int
	}{{"am", 0}, {"pm", 12}} {
		if !p.take(half.word) {
			continue
		}
		if h < 1 || h > 12 {
			return fail("with am or pm the hour is 1 to 12")
		}
		h = h%12 + half.add
		break
	}
	if t := p.peek(); t.glued && (t.kind == digits || strings.Contains(":.", t.text)) {
		return fail("there is no such time; times have whole seconds")
	}
	return int64(h*3600 + v[1]*60 + v[2]), nil
}

// offset parses the offset from UTC after an ISO date and time, "Z" or "+01:00", and returns
// seconds. It returns false and skips nothing if no offset follows.
func (p *phrase) offset() (int, bool) {
	if p.take("z") {
		return 0, true
	}
	t := p.peek()
	if t.kind != sign || len(p.tokens) < p.next+4 {
		return 0, false
	}
	var text strings.Builder
	for i, t := range p.tokens[p.next : p.next+4] {
		if i > 0 && !t.glued {
			return 0, false
		}
		text.WriteString(t.text)
	}
	off, ok := parseOffset(text.String())
	if ok {
		p.next += 4
	}
	return off, ok
}
