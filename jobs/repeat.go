package jobs

import (
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/when"
)

// reanchorBelow is the interval from which missed runs are always made up for.
const reanchorBelow = 4 * time.Hour

// nextRun returns the next run of a job whose run ends at now. Returns an error if it is outside
// the years 0000 to 9999.
func (s *Service) nextRun(j *Row, now time.Time) (time.Time, error) {
	_, r, err := s.checkRepeat(j.Repeat)
	if err != nil {
		return time.Time{}, err
	}
	return s.repeatFrom(r, j.Scheduled, j.LastRun, now)
}

// repeatFrom returns the next run by r from three times. Zero ones count as now.
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

// exactly applies r to base, to the microsecond. r drops fractions of a second, which would be
// early. They are added again, unless r goes to the start of a unit.
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

// unzero moves the first moment of the year 1, which Go takes for no time.
func unzero(t time.Time) time.Time {
	if t.IsZero() {
		return t.Add(time.Microsecond)
	}
	return t
}

// skipMissed returns the first slot after now, if the interval is fixed and short. next is not
// after now.
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
	for behind := now.Sub(next); behind >= 0; behind = now.Sub(next) { // a Duration ends at 292 years
		next = next.Add(behind - behind%interval + interval)
	}
	return next
}

// checkRepeat returns the repeat as stored, and as read; nil if there is none.
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
