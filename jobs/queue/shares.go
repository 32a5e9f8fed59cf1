package queue

import (
	"context"
	"maps"

	"github.com/swarmiji/swarmiji/jobs/internal/line"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// Shares returns a [Throttler] that divides a queue into shares. At most the weight of a share runs
// at a time, even if other shares are not used up.
//
// of returns the name of a job's share. It is called for each job that may be started, so it has to
// be quick, and a pure function. parts holds the weight of each share, kept in thousandths. For a
// share without a part only the limit of the queue counts.
//
//   - A full share blocks no other share.
//   - A job heavier than its share runs alone among jobs of the share with a weight.
//   - In a share of 0 or below only jobs of weight 0 run.
//   - A job keeps the share that it had when it was started.
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

// lets reports whether a share has room for a weight; taken is the weight that runs in it.
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
