package when

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Windows are times of the week at which something may happen: times of day, on all days or on some, in one zone. A clock that is put forward or
// back does so in windows too: they are open when the clock shows a time in them.
//
// As a [Spec] it says when a window opens, which is when one opens that was closed just before: windows that touch are one. What is always open never
// opens. Windows do not change and are safe for concurrent use.
type Windows struct {
	text  string
	loc   *time.Location // nil: UTC
	spans []stretch      // of the week, in order, parted
}

// stretch is a part of the week, in seconds from Sunday's midnight; the end is not in it.
type stretch struct{ start, end int64 }

const (
	weekSeconds = 7 * daySeconds
	maxWindows  = 100
	maxText     = 8192 // bytes; what String writes of 100 windows is shorter
)

// ParseWindows reads windows, parted by commas, in a zone; nil is UTC:
//
//	09:00-17:00                              each day, from 09:00 up to, not including, 17:00
//	22:00-06:00                              across midnight
//	Mon-Fri 09:00-12:30, Mon-Fri 13:30-18:00
//	Sat Sun 10:00-14:00:30                   several days; also written as Sat-Sun
//	Fri 22:00-06:00                          from Friday into Saturday
//
// Times have hours and minutes, and seconds if wanted; the end may be 24:00. A window whose end is its start lasts a whole day. Several windows are
// open when any of them is. Days are written by their first three letters or in full, and case does not matter. At most 100 windows, and 8,192
// bytes, are read. The zone must have a name that other machines know, or be UTC or a fixed offset. A refusal is a [SpecError].
func ParseWindows(text string, loc *time.Location) (*Windows, error) {
	at, err := placeOf(loc)
	if err != nil {
		return nil, err
	}
	return readWindows(text, at)
}

func readWindows(text string, at place) (*Windows, error) {
	if len(text) > maxText {
		return nil, &SpecError{Input: shorten(text), Problem: fmt.Sprintf("it is longer than %d bytes", maxText)}
	}
	w := &Windows{loc: at.loc}
	var written []string
	for item := range strings.SplitSeq(text, ",") {
		if len(written) == maxWindows {
			return nil, &SpecError{Input: shorten(text), Problem: fmt.Sprintf("these are more than %d windows", maxWindows)}
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

// windowsPrefix begins the text of windows.
const windowsPrefix = "WINDOWS "

// parseWindows reads what String wrote.
func parseWindows(text string) (*Windows, error) {
	rest := strings.TrimSpace(strings.TrimPrefix(text, windowsPrefix))
	first, windows, _ := strings.Cut(rest, " ")
	isDay := named(token{kind: word, text: strings.ToLower(first[:min(3, len(first))])}, weekdayNames[:]) >= 0
	if first == "" || isDay || first[0] >= '0' && first[0] <= '9' {
		return readWindows(rest, place{})
	}
	at, err := loadZone(first)
	if err != nil {
		return nil, err
	}
	return readWindows(windows, at)
}

// parseWindow reads one window: its days as a set, and its seconds of the day.
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
			return 0, 0, 0, fmt.Sprintf("%q is no day of the week", shorten(part))
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
		return 0, 0, 0, fmt.Sprintf("%q is no time from 00:00 to 23:59:59", shorten(from))
	case !okEnd:
		return 0, 0, 0, fmt.Sprintf("%q is no time from 00:00 to 24:00", shorten(to))
	}
	return days, start, end, ""
}

// timeOfDay reads HH:MM or HH:MM:SS, up to 24:00, in seconds.
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

// writeWindow writes a window as parseWindow reads it.
func writeWindow(days uint64, start, end int64) string {
	var b strings.Builder
	if days != 1<<7-1 {
		monday := days>>1 | days&1<<6 // weeks are written from Monday on
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

// add adds a window on each of its days.
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

// merge orders the stretches and joins those that touch.
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

// Contains tells whether a window is open at t.
func (w *Windows) Contains(t time.Time) bool {
	p := periodOf(t.Unix(), w.loc)
	return w.until(t.Unix()+p.off, true) > 0
}

// until returns for how long from the time c of the clock on the windows are open, or closed; 0 if they are not. It is at least a week
// if they always are.
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
		if first := w.spans[0]; s.end == weekSeconds && first.start == 0 { // on into the next week
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

// turn returns the first instant at or after u at which the windows are open, or closed; false if that is in no week to come.
func (w *Windows) turn(u int64, open bool) (int64, bool) {
	end := u + 2*weekSeconds // a week, and room for clocks that are put back
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

// NextOpen returns t itself if a window is open then, and else the first instant after it at which one is, in UTC.
func (w *Windows) NextOpen(t time.Time) time.Time {
	if w.Contains(t) {
		return t.UTC()
	}
	u, ok := w.turn(t.Unix(), true)
	if !ok { // so far away that no sum can be made
		return t.UTC()
	}
	return time.Unix(u, 0).UTC()
}

// Next returns the first instant strictly after t at which a window opens.
func (w *Windows) Next(t time.Time) (time.Time, bool) {
	u := t.Unix()
	if u < -maxUnix || u > maxUnix {
		return time.Time{}, false
	}
	// One that opens later was closed at some second from t on.
	u, ok := w.turn(u, false)
	if ok {
		u, ok = w.turn(u, true)
	}
	if !ok {
		return time.Time{}, false
	}
	return time.Unix(u, 0).UTC(), true
}

// String returns the windows in the order given, behind the word WINDOWS and, unless it is UTC, the zone.
func (w *Windows) String() string { return w.text }

// describe says the windows much as they are written.
func (w *Windows) describe() string {
	zone := "UTC"
	text := strings.TrimPrefix(w.text, windowsPrefix)
	if w.loc != nil {
		zone = w.loc.String()
		text = strings.TrimPrefix(text, zone+" ")
	}
	return "when one of these opens: " + text + " " + zone
}

// periodOf is periodAt, also for UTC.
func periodOf(u int64, loc *time.Location) period {
	if loc == nil {
		return period{-1 << 62, 1 << 62, 0}
	}
	return periodAt(u, loc)
}
