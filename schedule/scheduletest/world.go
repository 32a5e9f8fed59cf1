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

// world is what a case works with: a schedule, the stores opened in it, and bounded waits.
type world struct {
	*suite.World[Store]
	h       *Harness
	lease   time.Duration // one that ends while a case waits
	entries atomic.Int64
	name    string // of the schedule, for cases with listeners
}

// long is a lease that does not end in a case.
const long = 10 * time.Minute

func newWorld(t testing.TB, h *Harness) *world {
	w := &world{h: h, lease: h.Lease, World: suite.NewWorld(t, suite.Config[Store]{
		Port: "Store", Open: h.Open, Secret: h.Secret, Slack: h.Slack, Patience: h.Patience,
	})}
	if w.lease == 0 {
		w.lease = 400 * time.Millisecond
	}
	return w
}

// now is the store's time.
func (w *world) now(s Store) time.Time {
	w.Helper()
	return w.due(s, 0).Now
}

// entry makes an entry that no other call made, as Schedule would write it.
func (w *world) entry(next time.Time) schedule.Entry {
	payload := fmt.Appendf(nil, `{"args":[%d],"cron":"* * * * 0 0 0","job":"suite"}`, w.entries.Add(1))
	return schedule.Entry{ID: schedule.ID(payload), Payload: payload, Next: next}
}

// add adds entries that are new.
func (w *world) add(s Store, entries ...schedule.Entry) {
	w.Helper()
	for i, added := range w.tryAdd(s, entries...) {
		if !added {
			w.Fatalf("Add: entry %d of %d was there already", i, len(entries))
		}
	}
}

// stray takes away the time of an entry that is due.
func (w *world) stray(s Store, id string) {
	w.Helper()
	if w.h.Stray != nil {
		w.h.Stray(w.TB, id)
		return
	}
	k := w.again(s, id)
	w.claim(s, "an older program", long, k, time.Time{})
	w.finish(s, "an older program", schedule.Finish{Tick: k})
}

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

// overdue adds an entry that has been due for a second, and returns it.
func (w *world) overdue(s Store) schedule.Entry {
	w.Helper()
	e := w.entry(w.now(s).Add(-time.Second))
	w.add(s, e)
	return e
}

func (w *world) due(s Store, most int) schedule.Batch {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	b, err := s.Due(ctx, most)
	w.Must(err, "Due")
	return b
}

// one expects that exactly one tick is due, of the entry.
func (w *world) one(s Store, id string) schedule.Tick {
	w.Helper()
	ticks := w.due(s, 10).Ticks
	if len(ticks) != 1 || ticks[0].ID != id {
		w.Fatalf("Due: got %v, want the one tick of %s", show(ticks), id)
	}
	return ticks[0]
}

// none expects that nothing is due.
func (w *world) none(s Store, format string, args ...any) {
	w.Helper()
	if ticks := w.due(s, 10).Ticks; len(ticks) > 0 {
		w.Fatalf("%s: Due gives %v", fmt.Sprintf(format, args...), show(ticks))
	}
}

// again waits until a tick of the entry is due.
func (w *world) again(s Store, id string) schedule.Tick {
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

// try claims and returns the answers.
func (w *world) try(s Store, owner string, lease time.Duration, claims ...schedule.Claim) []bool {
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

// claim claims one tick and expects to get it.
func (w *world) claim(s Store, owner string, lease time.Duration, k schedule.Tick, next time.Time) {
	w.Helper()
	if !w.try(s, owner, lease, schedule.Claim{Tick: k, Next: next})[0] {
		w.Fatalf("%s did not get the tick %v", owner, show([]schedule.Tick{k}))
	}
}

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

// finish ends one claim and expects that it was held.
func (w *world) finish(s Store, owner string, f schedule.Finish) {
	w.Helper()
	if !w.done(s, owner, f)[0] {
		w.Fatalf("Done: %s does not hold %v", owner, show([]schedule.Tick{f.Tick}))
	}
}

func (w *world) remove(s Store, id string) bool {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	there, err := s.Remove(ctx, id)
	w.Must(err, "Remove")
	return there
}

// gone expects that there is no entry of the id: adding it is possible, and undone.
func (w *world) gone(s Store, e schedule.Entry, format string, args ...any) {
	w.Helper()
	e.Next = w.now(s).Add(time.Hour)
	if !w.tryAdd(s, e)[0] {
		w.Fatalf("%s: the entry is still there", fmt.Sprintf(format, args...))
	}
	w.remove(s, e.ID)
}

// there expects that the entry is there.
func (w *world) there(s Store, e schedule.Entry, format string, args ...any) {
	w.Helper()
	e.Next = w.now(s).Add(time.Hour)
	if w.tryAdd(s, e)[0] {
		w.Fatalf("%s: the entry is gone", fmt.Sprintf(format, args...))
	}
}

// wantDue checks the instant of a tick.
func (w *world) wantDue(k schedule.Tick, due time.Time, format string, args ...any) {
	w.Helper()
	if k.Due.UnixMilli() != due.UnixMilli() {
		w.Errorf("%s: the tick is due at %v, want %v", fmt.Sprintf(format, args...), k.Due, due)
	}
}

func all(answers []bool, want bool) bool { return !slices.Contains(answers, !want) }

// show names ticks in failures.
func show(ticks []schedule.Tick) []string {
	names := []string{}
	for _, k := range ticks {
		names = append(names, fmt.Sprintf("%.8s at %s of %q", k.ID, k.Due.UTC().Format("15:04:05.000"), k.Owner))
	}
	return names
}
