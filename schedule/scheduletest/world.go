package scheduletest

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/schedule"
)

// world is the environment of one case: a schedule, the stores opened for it, and bounded waits.
type world struct {
	*suite.World[Store]
	h       *Harness
	lease   time.Duration // a lease that ends during a case
	entries atomic.Int64
	name    string // the schedule's name, in cases with listeners
}

// long is a lease that does not end during a case.
const long = 10 * time.Minute

// newWorld returns the world of a case. Its default lease is 400 ms. It opens no store.
func newWorld(t testing.TB, h *Harness) *world {
	w := &world{h: h, lease: h.Lease, World: suite.NewWorld(t, suite.Config[Store]{
		Port: "Store", Open: h.Open, Secret: h.Secret, Slack: h.Slack, Patience: h.Patience,
	})}
	if w.lease == 0 {
		w.lease = 400 * time.Millisecond
	}
	return w
}

// now returns the store's time. Like all methods of world that call the store, it fails the test
// after an error.
func (w *world) now(s Store) time.Time {
	w.Helper()
	return w.due(s, 0).Now
}

// entry returns a new entry that differs from all others, in the form that Schedule writes.
func (w *world) entry(next time.Time) schedule.Entry {
	payload := fmt.Appendf(nil, `{"args":[%d],"cron":"* * * * 0 0 0","job":"suite"}`, w.entries.Add(1))
	return schedule.Entry{ID: schedule.ID(payload), Payload: payload, Next: next}
}

// add adds entries and fails the test if one of them exists already.
func (w *world) add(s Store, entries ...schedule.Entry) {
	w.Helper()
	for i, added := range w.tryAdd(s, entries...) {
		if !added {
			w.Fatalf("Add: entry %d of %d was there already", i, len(entries))
		}
	}
}

// stray removes the due time of a due entry, with Harness.Stray if the harness has it. Otherwise it
// waits until the entry is due, claims the tick without a next due time, and ends the claim.
func (w *world) stray(s Store, id string) {
	w.Helper()
	if w.h.Stray != nil {
		w.h.Stray(w.TB, id)
		return
	}
	k := w.waitDue(s, id)
	w.claim(s, "an older program", long, k, time.Time{})
	w.finish(s, "an older program", schedule.Finish{Tick: k})
}

// tryAdd adds entries and returns for each whether it is new. It fails the test after an error.
func (w *world) tryAdd(s Store, entries ...schedule.Entry) []bool {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	added, err := s.Add(ctx, entries)
	w.Must(err, "Add")
	if len(added) != len(entries) {
		w.Fatalf("Add of %d entries gave %d answers", len(entries), len(added))
	}
	return added
}

// overdue adds an entry that became due a second ago on the store's clock, and returns it.
func (w *world) overdue(s Store) schedule.Entry {
	w.Helper()
	e := w.entry(w.now(s).Add(-time.Second))
	w.add(s, e)
	return e
}

// due calls Due for up to most ticks and fails the test after an error.
func (w *world) due(s Store, most int) schedule.Batch {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	b, err := s.Due(ctx, most)
	w.Must(err, "Due")
	return b
}

// wantOne fails the test unless exactly one tick is due and belongs to the entry. It returns the
// tick.
func (w *world) wantOne(s Store, id string) schedule.Tick {
	w.Helper()
	ticks := w.due(s, 10).Ticks
	if len(ticks) != 1 || ticks[0].ID != id {
		w.Fatalf("Due: got %v, want the one tick of %s", show(ticks), id)
	}
	return ticks[0]
}

// wantNone fails the test if a tick is due. format and args describe the moment for the failure
// message.
func (w *world) wantNone(s Store, format string, args ...any) {
	w.Helper()
	if ticks := w.due(s, 10).Ticks; len(ticks) > 0 {
		w.Fatalf("%s: Due gives %v", fmt.Sprintf(format, args...), show(ticks))
	}
}

// waitDue waits until a tick of the entry is due, and returns it. It fails the test when the
// patience of the world ends.
func (w *world) waitDue(s Store, id string) schedule.Tick {
	w.Helper()
	var found schedule.Tick
	w.Until("a tick that is due again", func() bool {
		for _, k := range w.due(s, 100).Ticks {
			if k.ID == id {
				found = k
				return true
			}
		}
		return false
	})
	return found
}

// tryClaim claims ticks and returns the results. It fails the test after an error.
func (w *world) tryClaim(s Store, owner string, lease time.Duration, claims ...schedule.Claim) []bool {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	won, err := s.Claim(ctx, owner, lease, claims)
	w.Must(err, "Claim")
	if len(won) != len(claims) {
		w.Fatalf("%d claims got %d answers", len(claims), len(won))
	}
	return won
}

// claim claims one tick and fails the test if the owner does not get it.
func (w *world) claim(s Store, owner string, lease time.Duration, k schedule.Tick, next time.Time) {
	w.Helper()
	if !w.tryClaim(s, owner, lease, schedule.Claim{Tick: k, Next: next})[0] {
		w.Fatalf("%s did not get the tick %v", owner, show([]schedule.Tick{k}))
	}
}

// renew renews claims and returns for each whether the owner held it. It fails the test after an
// error.
func (w *world) renew(s Store, owner string, lease time.Duration, ticks ...schedule.Tick) []bool {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	held, err := s.Renew(ctx, owner, lease, ticks)
	w.Must(err, "Renew")
	if len(held) != len(ticks) {
		w.Fatalf("%d renewals got %d answers", len(ticks), len(held))
	}
	return held
}

// done ends claims and returns for each whether the owner held it. It fails the test after an
// error.
func (w *world) done(s Store, owner string, done ...schedule.Finish) []bool {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	held, err := s.Done(ctx, owner, done)
	w.Must(err, "Done")
	if len(held) != len(done) {
		w.Fatalf("%d finishes got %d answers", len(done), len(held))
	}
	return held
}

// finish ends one claim and fails the test if it was not held.
func (w *world) finish(s Store, owner string, f schedule.Finish) {
	w.Helper()
	if !w.done(s, owner, f)[0] {
		w.Fatalf("Done: %s does not hold %v", owner, show([]schedule.Tick{f.Tick}))
	}
}

// remove removes an entry and returns whether it existed. It fails the test after an error.
func (w *world) remove(s Store, id string) bool {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	there, err := s.Remove(ctx, id)
	w.Must(err, "Remove")
	return there
}

// wantGone fails the test if the entry exists. It checks this by adding the entry for an hour
// later, and removes it again.
func (w *world) wantGone(s Store, e schedule.Entry, format string, args ...any) {
	w.Helper()
	e.Next = w.now(s).Add(time.Hour)
	if !w.tryAdd(s, e)[0] {
		w.Fatalf("%s: the entry is still there", fmt.Sprintf(format, args...))
	}
	w.remove(s, e.ID)
}

// wantExists fails the test if the entry does not exist. It checks this by adding the entry; after
// a failure it is stored.
func (w *world) wantExists(s Store, e schedule.Entry, format string, args ...any) {
	w.Helper()
	e.Next = w.now(s).Add(time.Hour)
	if w.tryAdd(s, e)[0] {
		w.Fatalf("%s: the entry is gone", fmt.Sprintf(format, args...))
	}
}

// wantDue fails the test unless the tick has this instant, in milliseconds.
func (w *world) wantDue(k schedule.Tick, due time.Time, format string, args ...any) {
	w.Helper()
	if k.Due.UnixMilli() != due.UnixMilli() {
		w.Errorf("%s: the tick is due at %v, want %v", fmt.Sprintf(format, args...), k.Due, due)
	}
}

// all reports whether each of the answers is want.
func all(answers []bool, want bool) bool { return !slices.Contains(answers, !want) }

// show returns a short description of ticks for failure messages.
func show(ticks []schedule.Tick) []string {
	names := []string{}
	for _, k := range ticks {
		names = append(names, fmt.Sprintf("%.8s at %s of %q", k.ID, k.Due.UTC().Format("15:04:05.000"), k.Owner))
	}
	return names
}
