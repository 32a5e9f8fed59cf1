package jobs

import (
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/when"
)

// reanchorBelow is the interval from which on missed runs are always made up for, also with
// Config.Reanchor.
const reanchorBelow = 4 * time.Hour

// nextRun returns the next run of a job that repeats and whose current run ends at now. It counts
// from Scheduled, LastRun or now, as the repeat says, and may skip missed runs (Config.Reanchor).
// It does not change j. Returns an error if the next run is outside the years 0000 to 9999.
func (s *Service) nextRun(j *Row, now time.Time) (time.Time, error) {
	_, r, err := s.checkRepeat(j.Repeat)
	if err != nil {
		return time.Time{}, err
	}
	return s.repeatFrom(r, j.Scheduled, j.LastRun, now)
}

// repeatFrom returns the next run of the rule r. It counts from scheduled, started or now, as r
// says; a zero scheduled or started means now. The result may be in the past.
//
// With Config.Reanchor, a rule that counts from SCHEDULED skips missed runs, as skipMissed says.
// Returns an error if the next run is outside the years 0000 to 9999.
func (s *Service) repeatFrom(r *when.Repeat, scheduled, started, now time.Time) (time.Time, error) {
	base := now
	switch {
	case r.Base() == when.Scheduled && !scheduled.IsZero():
		base = scheduled
	case r.Base() == when.Started && !started.IsZero():
		base = started
	}
	next, err := exactly(r, base)
	if err == nil && s.c.Reanchor && r.Base() == when.Scheduled && !next.After(now) {
		next, err = skipMissed(r, base, next, now), nil
	}
	return next, err
}

// exactly applies the modifiers of r to base, even if r counts from another time. It keeps the
// fraction of a second of base, which r itself drops and which would make a job due early. It drops
// the fraction if r moves to the start of a unit. The result is never the zero time. Returns the
// error of r for a time out of range.
func exactly(r *when.Repeat, base time.Time) (time.Time, error) {
	next, err := r.After(base, base, base)
	if err != nil {
		return time.Time{}, err
	}
	if fraction := base.Sub(time.Unix(base.Unix(), 0)); fraction > 0 && !strings.Contains(r.String(), "START OF") {
		next = next.Add(fraction)
	}
	return unzero(next), nil
}

// unzero returns t, or the zero time plus a microsecond for the zero time, since Go treats that
// time as unset.
func unzero(t time.Time) time.Time {
	if t.IsZero() {
		return t.Add(time.Microsecond)
	}
	return t
}

// skipMissed returns the first slot of r after now. The slots are next, and further ones at the
// interval between base and next. next is the slot after base and is not after now.
//
// It returns next unchanged unless the interval is positive and below reanchorBelow, and r consists
// of additions and subtractions only, such as "+1 HOUR".
func skipMissed(r *when.Repeat, base, next, now time.Time) time.Time {
	interval := next.Sub(base)
	for item := range strings.SplitSeq(r.String(), ",") {
		item = strings.TrimSpace(item)
		if item != when.Scheduled.String() && item[0] != '+' && item[0] != '-' {
			return next
		}
	}
	if interval <= 0 || interval >= reanchorBelow {
		return next
	}
	// It takes several steps: a Duration is limited to 292 years.
	for behind := now.Sub(next); behind >= 0; behind = now.Sub(next) {
		next = next.Add(behind - behind%interval + interval)
	}
	return next
}

// checkRepeat parses the text of a repeat. It returns the text without surrounding white space, as
// it is stored, and the parsed rule. An empty text gives "" and a nil rule. Returns a FieldError if
// the text cannot be parsed.
func (s *Service) checkRepeat(text string) (string, *when.Repeat, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return "", nil, nil
	}
	r, err := s.c.Repeats.Parse(text)
	if err != nil {
		return "", nil, rules.Refusal("repeat", err)
	}
	return text, r, nil
}
