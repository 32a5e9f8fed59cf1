package when

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Windows is a set of times of the week, in one zone: times of day, on all or some days. With
// daylight saving time a window is open when the clock shows a time in it.
//
// As a [Spec] it returns when a window opens. Windows that touch are one window. Windows that are
// always open never open.
//
// Windows are immutable and safe for concurrent use.
type Windows struct {
	text  string
	loc   *time.Location // nil: UTC
	spans []stretch      // of the week, sorted and not touching
}

// stretch is a range of seconds since Sunday's midnight. The end is exclusive.
type stretch struct{ start, end int64 }

const (
	weekSeconds = 7 * daySeconds
	maxWindows  = 100
	maxText     = 8192 // bytes; the String of 100 windows is shorter
)

// ParseWindows parses windows, separated by commas, in a zone; nil: UTC.
//
//	09:00-17:00                              each day, from 09:00 up to, not including, 17:00
//	22:00-06:00                              across midnight
//	Mon-Fri 09:00-12:30, Mon-Fri 13:30-18:00
//	Sat Sun 10:00-14:00:30                   several days; also written as Sat-Sun
//	Fri 22:00-06:00                          from Friday into Saturday
//
// Times have hours, minutes and optional seconds; the end may be 24:00. A window with equal start
// and end lasts a whole day. Days are written in full or as their first three letters, in any case.
//
// The maximum is 100 windows and 8,192 bytes. The zone must be a named one that other machines
// know, UTC, or a fixed offset. An error is a [SpecError].
func ParseWindows(text string, loc *time.Location) (*Windows, error) {
	at, err := namedZoneOf(loc)
	if err != nil {
		return nil, err
	}
	return readWindows(text, at)
}

// readWindows parses windows, separated by commas, in the zone at, as [ParseWindows] describes. Its
// error is a [SpecError] with the windows understood so far.
func readWindows(text string, at namedZone) (*Windows, error) {
	if len(text) > maxText {
		return nil, &SpecError{Input: shorten(text), Problem: fmt.Sprintf("it is longer than %d bytes", maxText)}
	}
	w := &Windows{loc: at.loc}
	var written []string
	for item := range strings.SplitSeq(text, ",") {
		if len(written) == maxWindows {
			return nil, &SpecError{Input: shorten(text), Problem: fmt.Sprintf("it has more than %d windows", maxWindows)}
		}
		days, start, end, problem := parseWindow(item)
		if problem != "" {
			return nil, &SpecError{
				Input: shorten(text), Understood: shorten(strings.Join(written, ", ")),
				Problem: fmt.Sprintf("%q: %s", shorten(strings.TrimSpace(item)), problem), Nearest: "Mon-Fri 09:00-17:00",
			}
		}
		written = append(written, writeWindow(days, start, end))
		w.add(days, start, end)
	}
	w.merge()
	w.text = windowsPrefix
	if at.loc != nil {
		w.text += at.name + " "
	}
	w.text += strings.Join(written, ", ")
	return w, nil
}

// windowsPrefix begins the text of Windows.
const windowsPrefix = "WINDOWS "

// parseWindows parses the String of Windows: the prefix, a zone unless it is UTC, and the windows.
// An error is a [SpecError].
func parseWindows(text string) (*Windows, error) {
	rest := strings.TrimSpace(strings.TrimPrefix(text, windowsPrefix))
	first, windows, _ := strings.Cut(rest, " ")
	isDay := named(token{kind: word, text: strings.ToLower(first[:min(3, len(first))])}, weekdayNames[:]) >= 0
	if first == "" || isDay || first[0] >= '0' && first[0] <= '9' {
		return readWindows(rest, namedZone{})
	}
	at, err := loadZone(first)
	if err != nil {
		return nil, err
	}
	return readWindows(windows, at)
}

// parseWindow parses one window. It returns its days as a set (bit 0 is Sunday), and its start and
// end in seconds since midnight; or a problem that is not "". Without days in the text the set has
// all days. The end may be at or before the start: then it is on the next day.
func parseWindow(item string) (days uint64, start, end int64, problem string) {
	parts := strings.Fields(item)
	if len(parts) == 0 {
		return 0, 0, 0, "a window is missing"
	}
	for _, part := range parts[:len(parts)-1] {
		from, to, ranged := strings.Cut(strings.ToLower(part), "-")
		if !ranged {
			to = from
		}
		first := named(token{kind: word, text: from}, weekdayNames[:])
		last := named(token{kind: word, text: to}, weekdayNames[:])
		if first < 0 || last < 0 {
			return 0, 0, 0, fmt.Sprintf("%q is not a day of the week", shorten(part))
		}
		for d := first; ; d = (d + 1) % 7 {
			days |= 1 << d
			if d == last {
				break
			}
		}
	}
	if days == 0 {
		days = 1<<7 - 1
	}
	from, to, _ := strings.Cut(parts[len(parts)-1], "-")
	start, okStart := timeOfDay(from)
	end, okEnd := timeOfDay(to)
	switch {
	case !okStart || start == daySeconds:
		return 0, 0, 0, fmt.Sprintf("%q is not a time from 00:00 to 23:59:59", shorten(from))
	case !okEnd:
		return 0, 0, 0, fmt.Sprintf("%q is not a time from 00:00 to 24:00", shorten(to))
	}
	return days, start, end, ""
}

// timeOfDay parses HH:MM or HH:MM:SS, up to 24:00, and returns seconds since midnight. It returns
// false for anything else.
func timeOfDay(s string) (int64, bool) {
	if len(s) != 5 && len(s) != 8 || s[2] != ':' || len(s) == 8 && s[5] != ':' {
		return 0, false
	}
	h, okH := number(s[:2], 24)
	m, okM := number(s[3:5], 59)
	sec, okS := 0, true
	if len(s) == 8 {
		sec, okS = number(s[6:], 59)
	}
	t := int64(h*3600 + m*60 + sec)
	return t, okH && okM && okS && t <= daySeconds
}

// writeWindow returns a window in the form that parseWindow parses. All days are written as no
// days; seconds are written only if they are not 0.
func writeWindow(days uint64, start, end int64) string {
	var b strings.Builder
	if days != 1<<7-1 {
		monday := days>>1 | days&1<<6 // the text begins the week on Monday
		for _, r := range ranges(monday, func(d int) string {
			day := weekdayNames[(d+1)%7]
			return strings.ToUpper(day[:1]) + day[1:3]
		}) {
			b.WriteString(strings.ReplaceAll(r, " to ", "-") + " ")
		}
	}
	for i, t := range [...]int64{start, end} {
		if i > 0 {
			b.WriteByte('-')
		}
		fmt.Fprintf(&b, "%02d:%02d", t/3600, t/60%60)
		if t%60 != 0 {
			fmt.Fprintf(&b, ":%02d", t%60)
		}
	}
	return b.String()
}

// add adds a window on each of its days to w.spans. A window whose end is at or before its start
// ends on the next day. Call merge after the last one.
func (w *Windows) add(days uint64, start, end int64) {
	if end <= start {
		end += daySeconds
	}
	for d := range int64(7) {
		if days>>d&1 == 0 {
			continue
		}
		from, to := d*daySeconds+start, d*daySeconds+end
		w.spans = append(w.spans, stretch{from, min(to, weekSeconds)})
		if to > weekSeconds { // from Saturday into Sunday
			w.spans = append(w.spans, stretch{0, to - weekSeconds})
		}
	}
}

// merge sorts the stretches and joins those that touch.
func (w *Windows) merge() {
	slices.SortFunc(w.spans, func(a, b stretch) int { return int(a.start - b.start) })
	merged := w.spans[:0]
	for _, s := range w.spans {
		if n := len(merged); n > 0 && s.start <= merged[n-1].end {
			merged[n-1].end = max(merged[n-1].end, s.end)
			continue
		}
		merged = append(merged, s)
	}
	w.spans = merged
}

// Contains reports whether a window is open at t.
func (w *Windows) Contains(t time.Time) bool {
	p := periodOf(t.Unix(), w.loc)
	return w.until(t.Unix()+p.off, true) > 0
}

// until returns the number of seconds, from c on, for which the windows stay open (open is true) or
// closed (false). c is the time on the clock. It returns 0 if they are not in that state at c, and
// a week or more if they always are.
func (w *Windows) until(c int64, open bool) int64 {
	// 1970-01-01 was a Thursday.
	c = mod(c+4*daySeconds, weekSeconds)
	for _, s := range w.spans {
		if c < s.start {
			break
		}
		if c >= s.end {
			continue
		}
		if !open {
			return 0
		}
		if first := w.spans[0]; s.end == weekSeconds && first.start == 0 { // continues in the next week
			return s.end - c + first.end
		}
		return s.end - c
	}
	if open {
		return 0
	}
	for _, s := range w.spans {
		if s.start > c {
			return s.start - c
		}
	}
	return weekSeconds - c + w.spans[0].start
}

// nextChange returns the first instant at or after u at which the windows are open (open is true)
// or closed (false): u itself if they are at u. Instants are seconds since 1970 in UTC. It returns
// false if that does not happen within two weeks.
func (w *Windows) nextChange(u int64, open bool) (int64, bool) {
	end := u + 2*weekSeconds // a week, and a margin for clocks that are set back
	for u < end {
		p := periodOf(u, w.loc)
		wait := w.until(u+p.off, !open)
		if wait == 0 {
			return u, true
		}
		u = min(u+wait, p.end)
	}
	return 0, false
}

// NextOpen returns t if a window is open at t, and else the next instant at which one opens, in
// UTC. For times too far in the future to calculate it returns t.
func (w *Windows) NextOpen(t time.Time) time.Time {
	if w.Contains(t) {
		return t.UTC()
	}
	u, ok := w.nextChange(t.Unix(), true)
	if !ok { // too far in the future to calculate
		return t.UTC()
	}
	return time.Unix(u, 0).UTC()
}

// Next returns the first instant strictly after t at which a window opens, in UTC. It returns false
// if the windows are always open, or if t is too far from 1970 to calculate.
func (w *Windows) Next(t time.Time) (time.Time, bool) {
	u := t.Unix()
	if u < -maxUnix || u > maxUnix {
		return time.Time{}, false
	}
	// A window that opens later must be closed at some second from t on.
	u, ok := w.nextChange(u, false)
	if ok {
		u, ok = w.nextChange(u, true)
	}
	if !ok {
		return time.Time{}, false
	}
	return time.Unix(u, 0).UTC(), true
}

// String returns WINDOWS, the zone unless it is UTC, and the windows in the order given.
func (w *Windows) String() string { return w.text }

// describe returns "when one of these opens:" and the windows in the form of their text, with the
// zone at the end.
func (w *Windows) describe() string {
	zone := "UTC"
	text := strings.TrimPrefix(w.text, windowsPrefix)
	if w.loc != nil {
		zone = w.loc.String()
		text = strings.TrimPrefix(text, zone+" ")
	}
	return "when one of these opens: " + text + " " + zone
}

// periodOf returns the period of loc that contains u, in seconds since 1970 in UTC. With a nil loc,
// which is UTC, that is all time.
func periodOf(u int64, loc *time.Location) period {
	if loc == nil {
		return period{-1 << 62, 1 << 62, 0}
	}
	return periodAt(u, loc)
}
