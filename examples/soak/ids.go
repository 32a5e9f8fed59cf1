package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/internal/ledger"
	"github.com/swarmiji/swarmiji/task"
)

// unknownOutcomes returns the ids of tasks that an earlier producer of this name submitted without
// recording the outcome. It returns nil without CHAOS_RESUME, and for tasks that run at most once.
// Returns an error if the ledger cannot be read.
func unknownOutcomes(s *settings) ([]task.ID, error) {
	if !s.resume || s.atMostOnce {
		return nil, nil
	}
	h, err := ledger.Load(s.ledger)
	if err != nil {
		return nil, err
	}
	var ids []task.ID
	for _, t := range h.Lacking(ledger.Submitted, ledger.Confirmed) {
		if t.Count(ledger.Failed) == 0 && strings.HasPrefix(t.ID, s.id+"-") {
			ids = append(ids, task.ID(t.ID))
		}
	}
	return ids, nil
}

// longestLag limits how much of the missed rate a late producer submits afterwards.
const longestLag = time.Second

// feed sends first the given ids, then new ones at the configured rate. It returns when ctx ends or
// the configured number of new ids was sent. New ids differ from those of any other process.
func feed(ctx context.Context, s *settings, first []task.ID, ids chan<- task.ID) {
	send := func(id task.ID) bool {
		select {
		case ids <- id:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for _, id := range first {
		if !send(id) {
			return
		}
	}
	prefix := s.id + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	chance := rand.New(rand.NewPCG(s.seed, 0))
	next := time.Now()
	for n := 1; s.count == 0 || n <= s.count; n++ {
		if s.rate > 0 {
			// Random gaps, because a regular rhythm would always meet the same moments of other regular
			// events.
			next = next.Add(time.Duration(chance.ExpFloat64() / s.rate * float64(time.Second)))
			if late := time.Since(next); late > longestLag {
				next = next.Add(late - longestLag)
			}
			select {
			case <-time.After(time.Until(next)):
			case <-ctx.Done():
				return
			}
		}
		if ctx.Err() != nil || !send(task.ID(fmt.Sprintf("%s-%d", prefix, n))) {
			return
		}
	}
}
