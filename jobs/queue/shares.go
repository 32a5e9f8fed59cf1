package queue

import (
	"context"
	"maps"

	"github.com/swarmiji/swarmiji/jobs/internal/line"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// Shares returns a [Throttler] that divides a queue into shares. The jobs of a share never run with
// more than the weight of the share, even if other shares are unused.
//
// of returns the name of a job's share. It must be fast and depend only on the job. It is called
// for each job that may start, and once for each running job. parts contains the weight of each
// share; it is copied and stored in thousandths. For a share that parts lacks, only the limit of
// the queue applies.
//
//   - A full share does not block other shares.
//   - A job heavier than its share runs alone among the jobs of the share that have a weight.
//   - In a share of 0 or below, only jobs of weight 0 run.
//   - A job keeps the share that it had at its start.
func Shares(of func(jobstore.Job) string, parts map[string]float64) Throttler {
	s := &shares{of: of, parts: make(map[string]int64, len(parts))}
	for name, part := range maps.All(parts) {
		s.parts[name] = line.InThousandths(max(part, 0))
	}
	return s
}

// shares implements [Throttler] for [Shares]. parts contains the weight of each share in
// thousandths.
type shares struct {
	of    func(jobstore.Job) string
	parts map[string]int64
}

// Admit starts each due job that fits into its share and into the limit of the queue, in order. It
// computes the share of a running job once. It postpones no job and returns nil. It implements
// [Throttler].
func (s *shares) Admit(_ context.Context, l *Admission) error {
	taken := make(map[string]int64, len(s.parts))
	for _, r := range l.running.all {
		if r.by != s {
			r.by, r.share = s, s.of(cloneRow(&r.job).Job)
		}
		taken[r.share] += r.job.Weight
	}
	for j := range l.fitting {
		share := s.of(cloneRow(j).Job)
		if s.fits(share, taken[share], j.Weight) && l.Start(j.Job) {
			taken[share] += j.Weight
			l.running.last().by, l.running.last().share = s, share
		}
	}
	return nil
}

// fits reports whether a job of this weight fits into a share in which jobs of weight taken run. A
// weight of 0 and an unknown share always fit. A share of 0 admits no weight. A job heavier than
// the share fits if taken is 0.
func (s *shares) fits(share string, taken, weight int64) bool {
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
