package resultstoretest

import (
	"context"
	"errors"
	"time"

	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// expireCases returns the cases of the retention of records.
func expireCases() []testCase {
	return []testCase{
		{
			Area: "expire", Name: "a record's time",
			Explain: "TTL is the shortest time for which the record is kept after Save. Later Load returns ErrNotFound, and the expired token refuses no record any more.",
			Needs:   []need{needsRecords, needsTTL},
			Run: func(w *world) {
				a, b := w.Open(), w.Open()
				// a store's clock may count in whole milliseconds
				ttl := w.h.Promises.TTL + 900*time.Microsecond
				r := with(w.succeeded(""), func(r *resultstore.Record) { r.TTL = ttl; r.Generation = 5 })
				unseen := with(r, func(r *resultstore.Record) { r.ID = w.id() })
				stays := with(w.succeeded(""), func(r *resultstore.Record) { r.TTL = time.Hour })
				w.save(a, unseen)
				before := time.Now()
				w.save(a, r, stays)
				after := time.Now()
				w.gone(b, r.ID, before.Add(ttl), after.Add(ttl+w.Slack))
				w.wantLoad(b, stays, "a record with a longer time, after another's is over")
				older := with(r, func(r *resultstore.Record) { r.Generation = 1; r.TTL = time.Hour })
				w.save(b, older) // b has seen the record expire; another store's clock may be slightly behind
				w.wantLoad(a, older, "a record with an older token than one whose time is over")
				older.ID = unseen.ID
				w.save(b, older) // no Load came before, which might have removed the record
				w.wantLoad(a, older, "a record with an older token than one whose time passed unseen")
			},
		},
		{
			Area: "expire", Name: "the time begins with each Save",
			Explain: "TTL counts from the Save of the stored record, so that a result after many slow retries is kept for its whole time.",
			Needs:   []need{needsRecords, needsTTL},
			Run: func(w *world) {
				s := w.Open()
				ttl := w.h.Promises.TTL
				r := with(w.succeeded(""), func(r *resultstore.Record) { r.TTL = ttl })
				retrying := with(r, func(r *resultstore.Record) { r.State = task.StateRetrying })
				final := with(r, func(r *resultstore.Record) { r.TTL = time.Hour; r.Generation = 1 })
				probe := with(w.succeeded(""), func(r *resultstore.Record) { r.TTL = ttl })
				w.save(s, retrying, final, probe)
				// the first record has expired by now
				w.gone(s, probe.ID, time.Time{}, time.Now().Add(ttl+w.Slack))
				w.wantLoad(s, final, "the final record after the time of the retrying one is over")
			},
		},
	}
}

// gone waits until Load returns ErrNotFound, and fails the case if that is before earliest or after
// latest.
func (w *world) gone(s resultstore.ResultStore, id task.ID, earliest, latest time.Time) {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), w.Patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		asked := time.Now()
		_, err := s.Load(ctx, id)
		if errors.Is(err, resultstore.ErrNotFound) {
			if now := time.Now(); now.Before(earliest) {
				w.Errorf("the record of %q was gone %v too early", id, earliest.Sub(now))
			}
			return
		}
		w.Must(err, "Load(%q)", id)
		if asked.After(latest) {
			w.Fatalf("the record of %q was still there %v after its time", id, asked.Sub(latest))
		}
		// without a pause just before the expected expiry
		if d := time.Until(earliest); d < 0 || d > 20*time.Millisecond {
			<-tick.C
		}
	}
}
