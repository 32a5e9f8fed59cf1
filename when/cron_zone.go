package when

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxUnix is later than all searched times, and far from an overflow of sums.
const maxUnix = 1 << 33

// period is a range of time in which a zone has one offset from UTC. The next period may have the
// same offset.
type period struct {
	start, end int64 // in seconds since 1970 in UTC
	off        int64 // offset from UTC in seconds
}

// periodAt returns the period of loc that contains u, in seconds since 1970 in UTC. Before the
// first change of the offset the period has no start, and after the last change no end: the bound
// is then a very large number.
func periodAt(u int64, loc *time.Location) period {
	t := time.Unix(u, 0).In(loc)
	_, off := t.Zone()
	p := period{-1 << 62, 1 << 62, int64(off)}
	start, end := t.ZoneBounds()
	if !start.IsZero() {
		p.start = start.Unix()
	}
	if !end.IsZero() {
		p.end = end.Unix()
	}
	// on the last day of a leap year: package time ends periods after day 365 of a year
	if p.end <= u {
		p.end += daySeconds
	}
	return p
}

// instantOf returns the first instant at which the clock of loc shows c. Instants are seconds since
// 1970 in UTC; c is seconds since 1970 on the clock. If the clock skips c, it returns the instant
// of the jump.
func instantOf(c int64, loc *time.Location) int64 {
	const aside = 30 * 3600 // more than any offset from UTC
	for p := periodAt(c-aside, loc); ; p = periodAt(p.end, loc) {
		if c < p.start+p.off {
			return p.start
		}
		if c < p.end+p.off {
			return c - p.off
		}
	}
}

// afterByName returns the first matching instant after u for a spec whose hour field does not allow
// all hours. It runs once for each time that it names; see [Cron]. It returns false after the last
// instant.
func (s *search) afterByName(u int64, loc *time.Location) (int64, bool) {
	p := periodAt(u, loc)
	c := u + p.off + 1
	// After the clock was set back it shows times again that have already run.
	c = max(c, p.start+periodAt(p.start-1, loc).off)
	for {
		next, ok := s.from(c)
		if !ok {
			return 0, false
		}
		if found := instantOf(next, loc); found > u {
			return found, true
		}
		c = next + 1
	}
}

// afterByClock returns the first matching instant after u for a spec whose hour field allows all
// hours. It follows the clock; see [Cron]. It returns false after the last instant.
func (s *search) afterByClock(u int64, loc *time.Location) (int64, bool) {
	p := periodAt(u, loc)
	from := u + p.off + 1
	for {
		c, ok := s.from(from)
		if ok && c < p.end+p.off {
			return c - p.off, true
		}
		if p.end > maxUnix {
			return 0, false
		}
		// the clock is set back to before the start of the search
		if q := periodAt(p.end, loc); p.end+q.off < from {
			p, from = q, p.end+q.off
			continue
		}
		if !ok {
			return 0, false
		}
		// The clock shows no matching time before it shows c, if it ever does.
		found := instantOf(c, loc)
		p = periodAt(found, loc)
		if from = found + p.off; from == c {
			return found, true
		}
	}
}

// zonePrefix begins the text of specs in zones other than UTC. Other cron programs know it too.
const zonePrefix = "CRON_TZ="

// namedZone is a zone with a name by which other processes can load it. The zero value is UTC.
type namedZone struct {
	name string
	loc  *time.Location // nil: UTC
}

// namedZoneOf returns the zone of loc with a name that loads the same zone on other machines. nil
// is UTC. A zone of time.FixedZone may have any name; it gets its offset as name, such as "+02:00".
//
// Returns a [SpecError] for time.Local, and for a zone that no name loads.
func namedZoneOf(loc *time.Location) (namedZone, error) {
	if loc == nil || loc == time.UTC {
		return namedZone{}, nil
	}
	name := loc.String()
	if name == "Local" {
		return namedZone{}, &SpecError{
			Input: name, Problem: "the local zone differs between machines; use time.LoadLocation or UTC",
			Nearest: "Europe/Berlin",
		}
	}
	named, err := loadZone(name)
	if err == nil && sameZone(named.loc, loc) {
		return named, nil
	}
	// A fixed offset may have any name.
	_, off := time.Unix(0, 0).In(loc).Zone()
	if name = offsetName(off); name != "" {
		if named, err = loadZone(name); err == nil && sameZone(named.loc, loc) {
			return named, nil
		}
	}
	return namedZone{}, &SpecError{Input: shorten(loc.String()), Problem: "other machines do not know a zone of this name", Nearest: "Europe/Berlin"}
}

// loadZone returns the zone with a name such as "Europe/Berlin" or "+02:00". Returns a [SpecError]
// if the name is empty, "Local" or unknown.
func loadZone(name string) (namedZone, error) {
	switch name {
	case "UTC", "Etc/UTC", "+00:00", "-00:00":
		return namedZone{}, nil
	case "", "Local":
		return namedZone{}, &SpecError{Input: name, Problem: "a zone must have a name that means the same everywhere", Nearest: "Europe/Berlin"}
	}
	if off, ok := parseOffset(name); ok {
		return namedZone{name, time.FixedZone(name, off)}, nil
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return namedZone{}, &SpecError{Input: shorten(name), Problem: "the time zone " + zoneUnknown}
	}
	return namedZone{name, loc}, nil
}

// zoneUnknown ends the problem of a zone that package time does not find: the name is wrong, or the
// machine has no zone files.
const zoneUnknown = `is unknown here: check the name, install the zone files (tzdata), or import _ "time/tzdata" in your program`

// parseOffset parses an offset from UTC, such as "+02:00", and returns it in seconds. It returns
// false for any other form, and beyond 23:59.
func parseOffset(s string) (int, bool) {
	if len(s) != 6 || (s[0] != '+' && s[0] != '-') || s[3] != ':' {
		return 0, false
	}
	h, okH := number(s[1:3], 23)
	m, okM := number(s[4:], 59)
	off := h*3600 + m*60
	if s[0] == '-' {
		off = -off
	}
	return off, okH && okM
}

// offsetName returns an offset from UTC, in seconds, as "+02:00"; "" if it is not whole minutes or
// is 24 hours or more.
func offsetName(off int) string {
	sign := '+'
	if off < 0 {
		sign, off = '-', -off
	}
	if off%60 != 0 || off >= 24*3600 {
		return ""
	}
	return fmt.Sprintf("%c%02d:%02d", sign, off/3600, off/60%60)
}

// sameZone reports whether two zones have the same offset in each quarter of the years 1970 to
// 2099. A nil a is UTC.
func sameZone(a, b *time.Location) bool {
	if a == nil {
		a = time.UTC
	}
	for u := int64(0); u < (lastDay+1)*daySeconds; u += 91 * daySeconds {
		_, offA := time.Unix(u, 0).In(a).Zone()
		_, offB := time.Unix(u, 0).In(b).Zone()
		if offA != offB {
			return false
		}
	}
	return true
}

// cutZone splits the zone, "CRON_TZ=" or "TZ=" and a name, off the start of a spec's text. rest is
// the text after it. found is false if the text has no zone. Returns a [SpecError] if the name is
// unknown or too long; then found is true.
func cutZone(text string) (at namedZone, rest string, found bool, err error) {
	text = strings.TrimSpace(text)
	head, rest, _ := strings.Cut(text, " ")
	name, found := strings.CutPrefix(head, zonePrefix)
	if !found {
		if name, found = strings.CutPrefix(head, "TZ="); !found {
			return namedZone{}, text, false, nil
		}
	}
	if len(name) > 64 {
		return namedZone{}, "", true, &SpecError{Input: shorten(text), Problem: "the name of the zone has " + strconv.Itoa(len(name)) + " bytes, more than 64"}
	}
	at, err = loadZone(name)
	return at, rest, true, err
}
