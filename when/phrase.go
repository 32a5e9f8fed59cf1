package when

import (
	"fmt"
	"strings"
	"time"
)

// Phrase is the result of [ParsePhrase].
type Phrase struct {
	Spec Spec // the times; a Cron with fixed fields for a single instant
	// Once reports that the phrase is a single instant. At may be the current second. Spec.Next(now)
	// then returns false.
	Once bool
	// At is the instant, or the first run of a recurrence after now, in UTC. It is zero for a
	// recurrence that never runs.
	At time.Time
	// Echo describes for people how the phrase was understood: "Sat 21 Nov 2026 19:00 UTC, in 28h10m".
	Echo string
}

const maxPhrase = 200 // bytes

// ParsePhrase parses a time in English, relative to now. It uses the zone of now, unless the last
// word of the phrase is another zone, such as Europe/Berlin or UTC.
//
//	in DURATION       in 5 minutes; in an hour and 30 seconds; in 2 weeks, 1 day
//	at MOMENT         at 7pm tomorrow; at noon on friday; at nov 21 2026 19:15; at now;
//	                  at 2026-11-21T19:00:00+01:00
//	every RECURRENCE  every 15 minutes; every weekday at 9am; every mon, wed and fri at 8:30;
//	                  every 2nd wednesday at noon; every month on the 1st at 7am;
//	                  every weekday at 9am Europe/Berlin
//	now               the same as at now
//
// A DURATION is a sum of numbers of seconds, minutes, hours, days, weeks, months and years,
// separated by white space, commas or "and". A number is a whole number, "a" or "an".
//
// Days and longer units follow the calendar: the time of day stays. A date after the end of a month
// becomes its last day. The instant is rounded up to the whole second. A sum of 0 is the current
// second.
//
// A MOMENT is a time with an optional day before it ("tomorrow at 7pm") or after it ("7pm on
// friday"). It can also be an ISO date, which is its midnight, or an ISO date and time with an
// optional offset.
//
//   - Times are 7pm, 7:15 pm, 19:15, 23:59:59, noon and midnight.
//   - Days are today, tomorrow, a weekday, "next" and a weekday, dates and ISO dates.
//   - A date is a month and a day in either order, with an optional year.
//   - Weekdays and months may be cut to three letters.
//   - "next" and a weekday is that day of the next week; weeks begin on Monday.
//   - A time alone, a weekday, and a date without a year are the first such moment after now.
//   - With today, a year or an ISO date the day is fixed. A moment in the past is refused.
//   - A moment that the zone's clock skips is refused. If it shows it twice, the first is used.
//
// A RECURRENCE is aligned to the clock, not to now: every 15 minutes is at :00, :15, :30 and :45.
//
//   - A step must divide a minute, an hour or a day.
//   - "every 2nd wednesday" is every 14 days, see [ParseCron].
//   - "every month on the 31st" leaves out months without that day.
//   - Without a time it runs at midnight.
//
// Spec is a [Cron] in UTC if UTC can express the times. Otherwise it is a Cron in the zone of now,
// which must have a name that other machines know.
//
// The whole text must be understood. Otherwise the error is a [SpecError] that contains the nearest
// accepted phrase. Case and repeated white space are ignored.
func ParsePhrase(text string, now time.Time) (Phrase, error) {
	if len(text) > maxPhrase {
		return Phrase{}, &SpecError{Input: shorten(text), Problem: fmt.Sprintf("it is longer than %d bytes", maxPhrase)}
	}
	if y := now.UTC().Year(); y < firstYear || y > lastYear {
		return Phrase{}, &SpecError{Input: shorten(text), Problem: fmt.Sprintf("now is in the year %d; the year must be %d to %d", y, firstYear, lastYear)}
	}
	body, zone := zoneBehind(text)
	if zone != "" {
		at, err := loadZone(zone)
		if err != nil {
			return Phrase{}, &SpecError{
				Input: shorten(text), Understood: body, Problem: fmt.Sprintf("the time zone %q ", zone) + zoneUnknown,
			}
		}
		if now = now.UTC(); at.loc != nil {
			now = now.In(at.loc)
		}
	}
	found, err := understand(body, now)
	if err != nil {
		if err.Nearest == "" {
			err.Nearest = nearest(body, now)
		}
		if zone != "" {
			err.Input, err.Nearest = shorten(text), err.Nearest+" "+zone
		}
		return Phrase{}, err
	}
	return found, nil
}

// zoneBehind splits the name of a zone off the end of a phrase: a last word that is UTC, or
// contains a slash and does not begin with a digit or slash. It returns the whole text and "" if
// the last word is not a zone. It does not check that the zone exists.
func zoneBehind(text string) (body, zone string) {
	text = strings.TrimSpace(text)
	i := strings.LastIndexAny(text, " \t\r\n")
	last := text[i+1:]
	if i < 0 || last != "UTC" && (!strings.Contains(last, "/") || strings.ContainsAny(last[:1], "0123456789/")) {
		return text, ""
	}
	return strings.TrimSpace(text[:i]), last
}

// understand parses a phrase without a zone at its end, relative to now and in the zone of now. Its
// error has a nearest phrase only if the parser knows one at that place; see nearest.
func understand(text string, now time.Time) (Phrase, *SpecError) {
	p := &phrase{input: text, now: now, tokens: tokenize(text)}
	if loc := now.Location(); loc != time.UTC {
		p.loc = loc
	}
	var found Phrase
	var err *SpecError
	switch {
	case p.take("in"):
		found.Once = true
		found.At, err = p.duration()
	case p.take("at"):
		found.Once = true
		found.At, err = p.moment()
	case p.take("now"):
		found.Once = true
		found.At = now.Truncate(time.Second)
	case p.take("every"):
		found.Spec, err = p.recurrence()
	default:
		err = p.refuse(`a phrase begins with "in", "at" or "every"`, "")
	}
	if err == nil && !p.done() {
		err = p.refuse(fmt.Sprintf("%q does not belong here", p.rest()), "")
	}
	if err != nil {
		return Phrase{}, err
	}
	if !found.Once {
		found.At, _ = found.Spec.Next(now)
		found.Echo = Describe(found.Spec)
		if !found.At.IsZero() {
			found.Echo += "; next " + DescribeTime(found.At, now)
		}
		return found, nil
	}
	once, onceErr := Once(found.At)
	if onceErr != nil {
		p.next = len(p.tokens) - 2
		return Phrase{}, p.refuse(fmt.Sprintf("the result is outside the years %d to %d", firstYear, lastYear), "")
	}
	found.Spec = once
	found.At, _ = once.Next(found.At.Add(-time.Second))
	found.Echo = DescribeTime(found.At, now)
	return found, nil
}

// duration parses the text after "in", up to the end of the phrase, and returns the instant,
// counted from p.now. It returns an error if an amount or a unit is missing or the sum is too
// large.
func (p *phrase) duration() (time.Time, *SpecError) {
	const years = lastYear - firstYear + 1
	var months, days, seconds int64
	for {
		n, err := p.amount()
		if err != nil {
			return time.Time{}, err
		}
		switch p.unit() {
		case "second":
			seconds += n
		case "minute":
			seconds += n * 60
		case "hour":
			seconds += n * 3600
		case "day":
			days += n
		case "week":
			days += n * 7
		case "month":
			months += n
		case "year":
			months += n * 12
		default:
			return time.Time{}, p.refuse("seconds, minutes, hours, days, weeks, months or years must follow", "")
		}
		if months > years*12 || days > years*366 || seconds > years*366*daySeconds {
			return time.Time{}, p.refuse(fmt.Sprintf("the result is outside the years %d to %d", firstYear, lastYear), "")
		}
		if p.done() {
			break
		}
		p.joiner()
	}
	t := p.now
	if months > 0 || days > 0 {
		y, m, d := t.Date()
		first := time.Date(y, m+time.Month(months), 1, 0, 0, 0, 0, time.UTC)
		last := first.AddDate(0, 1, -1).Day()
		h, mi, s := t.Clock()
		c := first.AddDate(0, 0, min(d, last)-1+int(days)).Unix() + int64(h*3600+mi*60+s)
		t = time.Unix(p.instant(c), int64(t.Nanosecond()))
	}
	if months+days+seconds == 0 {
		return t.Truncate(time.Second), nil
	}
	return t.Add(time.Duration(seconds) * time.Second), nil
}

// amount parses a whole number, or "a" or "an", which are 1. It skips that token, or returns an
// error and skips nothing.
func (p *phrase) amount() (int64, *SpecError) {
	if p.take("a") || p.take("an") {
		return 1, nil
	}
	t := p.peek()
	if t.kind != digits {
		return 0, p.refuse("a whole number of seconds, minutes, hours, days, weeks, months or years must follow", "")
	}
	n, ok := number(strings.TrimLeft(t.text[:len(t.text)-1], "0")+t.text[len(t.text)-1:], maxStep)
	if !ok {
		return 0, p.refuse(fmt.Sprintf("%s is more than %d", shorten(t.text), maxStep), "")
	}
	if after := p.tokens[p.next+1]; after.glued {
		return 0, p.refuse(fmt.Sprintf("%q must be a whole number, then a space and a unit", t.text+after.text), "")
	}
	p.next++
	return int64(n), nil
}

// unit skips a unit of time in singular or plural, and returns its singular. It returns "" and
// skips nothing if no unit follows.
func (p *phrase) unit() string {
	t := p.peek()
	for _, u := range [...]string{"second", "minute", "hour", "day", "week", "month", "year"} {
		if t.kind == word && (t.text == u || t.text == u+"s") {
			p.next++
			return u
		}
	}
	return ""
}

// joiner skips a comma, "and", or both, between the items of a sum or a list. It reports whether it
// found one.
func (p *phrase) joiner() bool {
	comma := p.take(",")
	return p.take("and") || comma
}

// instant returns the first instant at which the clock of the phrase's zone shows c, both in
// seconds since 1970. If the clock skips c, it returns the instant of the jump.
func (p *phrase) instant(c int64) int64 {
	if p.loc == nil {
		return c
	}
	return instantOf(c, p.loc)
}
