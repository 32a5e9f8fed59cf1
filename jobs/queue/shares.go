package queue

import (
	"context"
	"maps"

	"github.com/swarmiji/swarmiji/jobs/internal/line"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// Shares is a [Throttler] that parts a queue: of each share at most that weight runs at a time, even where others do not use theirs. of tells whose share a job is in; it has
// to be a pure function, and quick, as it is called for each job that may be started. parts are the weights, kept in thousandths; a job of a share that is not among them has only the limit of the
// queue to keep to.
//
// A share that is full holds up no other one. A job that is heavier than its share runs when nothing else of it runs that weighs anything; in a share of 0, or below, only jobs of weight 0 run. A job's share
// is what it was when it was started.
func Shares(of func(jobstore.Job) string, parts map[string]float64) Throttler {
	s := &shares{of: of, parts: make(map[string]int64, len(parts))}
	for name, part := range maps.All(parts) {
		s.parts[name] = line.InThousandths(max(part, 0))
	}
	return s
}

type shares struct {
	of    func(jobstore.Job) string
	parts map[string]int64
}

// Admit implements [Throttler].
func (s *shares) Admit(_ context.Context, l *Look) error {
	taken := make(map[string]int64, len(s.parts))
	for _, r := range l.running.all {
		if r.by != s {
			r.by, r.share = s, s.of(cloneRow(&r.job).Job)
		}
		taken[r.share] += r.job.Weight
	}
	for j := range l.fitting {
		share := s.of(cloneRow(j).Job)
		if s.lets(share, taken[share], j.Weight) && l.Start(j.Job) {
			taken[share] += j.Weight
			l.running.last().by, l.running.last().share = s, share
		}
	}
	return nil
}

// lets reports whether a share of which so much is taken has room for a weight.
func (s *shares) lets(share string, taken, weight int64) bool {
	part, known := s.parts[share]
	switch {
	case !known || weight == 0:
		return true
	case part == 0:
		return false
	}
	g := line.Gauge{Limit: part, Taken: taken}
	return g.Fits(weight)
}
