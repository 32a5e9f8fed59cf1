package when

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // a zone must not be unknown for want of a file: its entries would wait. It adds 0.4 MB to a program
)

// maxUnix is beyond all that is searched, and far from where sums overflow.
const maxUnix = 1 << 33

// period is a stretch of time in which a zone's clock keeps one distance to UTC. The one that follows may have the same.
type period struct {
	start, end int64 // in seconds since 1970 in UTC
	off        int64 // what the clock shows more than UTC
}

// periodAt returns the period in which u lies.
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
	if p.end <= u { // the last day of a leap year: package time ends periods with the 365th day of a year
		p.end += daySeconds
	}
	return p
}

// instantOf returns the first instant at which the clock shows c; if it never does, the one at which the clock jumps over c.
func instantOf(c int64, loc *time.Location) int64 {
	const aside = 30 * 3600 // more than any distance to UTC
	for p := periodAt(c-aside, loc); ; p = periodAt(p.end, loc) {
		if c < p.start+p.off {
			return p.start
		}
		if c < p.end+p.off {
			return c - p.off
		}
	}
}

// afterByName answers for specs that run once for each time they name.
func (s *search) afterByName(u int64, loc *time.Location) (int64, bool) {
	p := periodAt(u, loc)
	c := u + p.off + 1
	// After the clock was put back it shows times that have been before; these have run.
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

// afterByClock answers for specs that follow the clock as it is.
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
		if q := periodAt(p.end, loc); p.end+q.off < from { // put back behind where the search began
			p, from = q, p.end+q.off
			continue
		}
		if !ok {
			return 0, false
		}
		// The clock shows nothing that matches until it shows c, if it ever does.
		found := instantOf(c, loc)
		p = periodAt(found, loc)
		if from = found + p.off; from == c {
			return found, true
		}
	}
}

// zonePrefix begins the text of specs in zones other than UTC; ordinary cron knows it too.
const zonePrefix = "CRON_TZ="

// place is a zone with a name by which other processes find it. The zero value is UTC.
type place struct {
	name string
	loc  *time.Location // nil: UTC
}

// placeOf finds the name of a zone that somebody hands in, which may have one that says something else.
func placeOf(loc *time.Location) (place, error) {
	if loc == nil || loc == time.UTC {
		return place{}, nil
	}
	name := loc.String()
	if name == "Local" {
		return place{}, &SpecError{
			Input: name, Problem: "what is local differs between machines: name the zone, with time.LoadLocation or UTC",
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
	return place{}, &SpecError{Input: shorten(loc.String()), Problem: "no zone that other machines know by this name", Nearest: "Europe/Berlin"}
}

// loadZone finds a zone by its name, as "Europe/Berlin" or "+02:00".
func loadZone(name string) (place, error) {
	switch name {
	case "UTC", "Etc/UTC", "+00:00", "-00:00":
		return place{}, nil
	case "", "Local":
		return place{}, &SpecError{Input: name, Problem: "a zone must have a name that means the same everywhere", Nearest: "Europe/Berlin"}
	}
	if off, ok := parseOffset(name); ok {
		return place{name, time.FixedZone(name, off)}, nil
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return place{}, &SpecError{Input: shorten(name), Problem: "no zone of this name is known here", Nearest: "Europe/Berlin"}
	}
	return place{name, loc}, nil
}

// parseOffset reads a distance to UTC, as +02:00, in seconds.
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

// offsetName writes a distance to UTC; empty if it is none of whole minutes.
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

// sameZone tells whether two zones have the same clock, by looking at each quarter of the years that matter.
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

// cutZone takes the zone off the front of a spec's text.
func cutZone(text string) (at place, rest string, found bool, err error) {
	text = strings.TrimSpace(text)
	head, rest, _ := strings.Cut(text, " ")
	name, found := strings.CutPrefix(head, zonePrefix)
	if !found {
		if name, found = strings.CutPrefix(head, "TZ="); !found {
			return place{}, text, false, nil
		}
	}
	if len(name) > 64 {
		return place{}, "", true, &SpecError{Input: shorten(text), Problem: "no zone has a name of " + strconv.Itoa(len(name)) + " bytes"}
	}
	at, err = loadZone(name)
	return at, rest, true, err
}
