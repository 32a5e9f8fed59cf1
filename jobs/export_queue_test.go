package jobs

import (
	"context"
	"time"
)

// Lead is a runner's part in serving a queue, for tests.
type Lead = lead

// NewLead makes a lead.
func NewLead(s *Service, q Queue, node string, lease time.Duration, begin func(*Row) error, report func(error)) (*Lead, error) {
	if err := q.complete(); err != nil {
		return nil, err
	}
	return newLead(s, q, node, lease, begin, report), nil
}

func (l *lead) Next(ctx context.Context, room int) ([]Handout, error) { return l.next(ctx, room) }
func (l *lead) Changed()                                              { l.changed() }
func (l *lead) Close(ctx context.Context)                             { l.close(ctx) }
func (l *lead) Fence() int64                                          { return l.fence() }

// Refused is why the attempt cannot begin.
func (h *Handout) Refused() error { return h.refused }

// Die has l be as the lead of a process that was killed: its lease is neither renewed nor given back.
func (l *lead) Die() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
}
