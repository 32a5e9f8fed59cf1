package sqlschedule

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/schedule"
)

// Claim implements [schedule.Store]: it claims ticks for owner, gives their entries the next due
// time, and returns for each whether owner holds it now. If the lease or a claim is invalid, it
// returns [schedule.ErrBadEntry] and changes nothing. After another error, wrapped by wrap, some
// may be claimed.
func (s *Store) Claim(ctx context.Context, owner string, lease time.Duration, claims []schedule.Claim) ([]bool, error) {
	errs := []error{schedule.CheckLease(owner, lease)}
	for i := range claims {
		errs = append(errs, claims[i].Check())
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return change(ctx, s, "claim", claims, func(c *schedule.Claim) []string { return []string{c.ID} },
		func(w *work, c *schedule.Claim) bool { return w.claim(owner, lease, c) })
}

// Renew implements [schedule.Store]: the owner's claims on ticks end after lease from now, even if
// they have expired. Lease 0 makes the ticks due at once and notifies the watchers. It returns for
// each whether owner held the claim; if not, nothing changes for it. If owner or lease is invalid,
// it returns [schedule.ErrBadEntry]. After another error, wrapped by wrap, some may be renewed.
func (s *Store) Renew(ctx context.Context, owner string, lease time.Duration, ticks []schedule.Tick) ([]bool, error) {
	if err := schedule.CheckLease(owner, lease); err != nil {
		return nil, err
	}
	return change(ctx, s, "renew", ticks, func(k *schedule.Tick) []string { return []string{k.ID} },
		func(w *work, k *schedule.Tick) bool {
			held := w.held(owner, k)
			if held != nil {
				held.until, held.changed = w.now+lease.Milliseconds(), true
				w.wake = w.wake || lease == 0
			}
			return held != nil
		})
}

// Done implements [schedule.Store]: it ends the owner's claims, stores the states and removes
// entries as each Finish says. It returns for each whether owner held the claim; if not, nothing
// changes for it. If an item is invalid, it returns [schedule.ErrBadEntry] and changes nothing.
// After another error, wrapped by wrap, some may be done.
func (s *Store) Done(ctx context.Context, owner string, done []schedule.Finish) ([]bool, error) {
	errs := []error{schedule.CheckLease(owner, 0)}
	for i := range done {
		errs = append(errs, done[i].Check())
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return change(ctx, s, "done", done, func(f *schedule.Finish) []string { return []string{f.ID, cmp.Or(f.StateOf, f.ID)} },
		func(w *work, f *schedule.Finish) bool { return w.done(owner, f) })
}

// change calls decide for each item of a call, in transactions of up to chunk items. Each
// transaction locks the entries of its items, decides, and writes the changes. A transaction that
// was surely not committed may be repeated, and decide with it.
//
// ids returns the ids of an item's entries. decide changes the entries in work and returns the
// item's answer. The result has one answer for each item. After an error the answers are nil;
// earlier transactions are committed, and the last one may be. Errors are those of ready and
// update.
func change[T any](ctx context.Context, s *Store, what string, items []T, ids func(*T) []string, decide func(*work, *T) bool) ([]bool, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	answers := make([]bool, len(items))
	for from := 0; from < len(items); from += chunk {
		to := min(from+chunk, len(items))
		err := s.update(ctx, what, func(ctx context.Context, tx *sqlconn.Tx) error {
			w := &work{store: s, entries: make(map[string]*entry)}
			var about [][]any
			for i := from; i < to; i++ {
				for _, id := range ids(&items[i]) {
					about = append(about, []any{id})
				}
			}
			if err := w.load(ctx, tx, asJSON(about)); err != nil {
				return err
			}
			for i := from; i < to; i++ {
				answers[i] = decide(w, &items[i])
			}
			return w.save(ctx, tx)
		})
		if err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// work holds the locked entries of one transaction, with their claims and pending changes. A claim
// reserves a tick, one run of an entry, for an owner until its lease ends. Times are Unix
// milliseconds of the database's clock. wake means that save notifies the watchers.
type work struct {
	store   *Store
	now     int64
	entries map[string]*entry
	wake    bool
}

// entry is an entry as load read it, with its pending changes; gone marks a deleted one.
type entry struct {
	id      string
	next    *int64
	paused  bool
	version int64
	runs    string
	claims  []*claim

	last    *int64 // the new value; nil: unchanged
	state   []byte // the new value, if stated
	stated  bool
	changed bool // next or last has changed
	gone    bool
}

// claim is a claim on the tick due; its lease ends at until. gone means that save deletes it.
type claim struct {
	due     int64
	owner   string
	until   int64
	changed bool
	gone    bool
}

// load locks the entries with these ids, a JSON list, until the end of the transaction, and reads
// them and their claims into w. Ids that do not exist are left out. It also sets w.now. It locks
// them in the order of their ids, which prevents deadlocks. It waits for other transactions that
// hold them, and returns errors of the database.
func (w *work) load(ctx context.Context, tx *sqlconn.Tx, ids string) error {
	rows, err := tx.Query(ctx, w.store.text.lock, w.store.name, ids)
	if err != nil {
		return err
	}
	for rows.Next() {
		e := &entry{}
		var paused int64
		if err := rows.Scan(&e.id, &e.next, &paused, &e.version, &e.runs); err != nil {
			return err
		}
		e.paused = paused != 0
		w.entries[e.id] = e
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	// A separate statement after the locks sees the changes of the transactions that held them before.
	if rows, err = tx.Query(ctx, w.store.text.claims, w.store.name, ids); err != nil {
		return err
	}
	for rows.Next() {
		var id, owner *string
		var due, until *int64
		if err := rows.Scan(&w.now, &id, &due, &owner, &until); err != nil {
			return err
		}
		if id != nil && w.entries[*id] != nil {
			e := w.entries[*id]
			e.claims = append(e.claims, &claim{due: *due, owner: *owner, until: *until})
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}

// claimed returns the entry of a tick and the claim on the tick. Both are nil if the entry does not
// exist or w deletes it. The claim is nil if the tick is not claimed or w ends its claim.
func (w *work) claimed(k *schedule.Tick) (*entry, *claim) {
	e := w.entries[k.ID]
	if e == nil || e.gone {
		return nil, nil
	}
	for _, c := range e.claims {
		if c.due == k.Due.UnixMilli() && !c.gone {
			return e, c
		}
	}
	return e, nil
}

// held returns the owner's claim on a tick, valid or expired. It is nil if the owner has no claim
// on it.
func (w *work) held(owner string, k *schedule.Tick) *claim {
	if _, c := w.claimed(k); c != nil && c.owner == owner {
		return c
	}
	return nil
}

// claim claims a tick for owner and reports whether the owner holds it now. It changes only w; save
// writes it. The claim ends lease after w.now. It gives the entry its next due time and, with
// c.Remember, adds the tick to its last runs.
//
//   - The owner's own claim is renewed, expired or not, and nothing else changes.
//   - An expired claim of c.Owner is taken over. The entry gets c.Next only if it has no due time.
//   - A tick without a claim must be the entry's due time, and c.Owner must be "".
//
// In all other cases, also if the entry does not exist, it returns false and changes nothing.
func (w *work) claim(owner string, lease time.Duration, c *schedule.Claim) bool {
	e, held := w.claimed(&c.Tick)
	if e == nil {
		return false
	}
	until := w.now + lease.Milliseconds()
	switch {
	case held != nil && held.owner == owner: // a repeated call
		held.until, held.changed = until, true
		return true
	case held != nil:
		if held.owner != c.Owner || held.until > w.now {
			return false
		}
		held.owner, held.until, held.changed = owner, until, true
		if e.next == nil {
			e.schedule(c.Next)
		}
	default:
		if c.Owner != "" || e.next == nil || *e.next != c.Due.UnixMilli() {
			return false
		}
		e.schedule(c.Next)
		e.claims = append(e.claims, &claim{due: c.Due.UnixMilli(), owner: owner, until: until, changed: true})
	}
	if c.Remember {
		e.last, e.runs, e.changed = millis(c.Due), writeRuns(schedule.AddRun(readRuns(e.runs), c.Due)), true
	}
	return true
}

// schedule sets the due time of the entry to next, in place of an earlier one; a zero next only
// removes it. A paused entry gets no due time. It sets e.changed, so that save writes it.
func (e *entry) schedule(next time.Time) {
	e.next, e.changed = nil, true
	if !e.paused {
		e.next = millis(next)
	}
}

// done ends the owner's claim on a tick. It sets f.State in the entry that f.StateOf names (else in
// the tick's entry), if that exists; an empty State deletes the stored one. With f.Remove it
// deletes the tick's entry unless that has a due time or another claim, or was changed since Due
// returned the tick. It reports whether the owner held the claim; otherwise it changes nothing.
// save writes the changes.
func (w *work) done(owner string, f *schedule.Finish) bool {
	held := w.held(owner, &f.Tick)
	if held == nil {
		return false
	}
	held.gone = true
	if of := w.entries[cmp.Or(f.StateOf, f.ID)]; of != nil && !of.gone && f.State != nil {
		of.state, of.stated = f.State, true
	}
	e := w.entries[f.ID]
	if f.Remove && refOf(e.version) == f.Ref && e.next == nil && !slices.ContainsFunc(e.claims, func(c *claim) bool { return !c.gone }) {
		e.gone = true
	}
	return true
}

// save writes all pending changes in the transaction, with one statement for each kind of change.
// Of a deleted entry it writes only the claims and the deletion. Without changes it runs no
// statement. If a tick was released, the watchers of all processes are notified after the commit.
// Returns the first error of the database.
func (w *work) save(ctx context.Context, tx *sqlconn.Tx) error {
	var times, states, entries, claims, ended [][]any
	for _, e := range w.entries {
		for _, c := range e.claims {
			switch {
			case c.gone:
				ended = append(ended, []any{e.id, c.due})
			case c.changed:
				claims = append(claims, []any{e.id, c.due, c.owner, c.until})
			}
		}
		if e.gone {
			entries = append(entries, []any{e.id})
			continue
		}
		if e.changed {
			times = append(times, []any{e.id, e.next, e.last, e.runs})
		}
		if e.stated && len(e.state) > 0 {
			states = append(states, []any{e.id, hex.EncodeToString(e.state)})
		} else if e.stated {
			states = append(states, []any{e.id, nil})
		}
	}
	if w.wake {
		tx.Notify(w.store.topic)
	}
	t := w.store.text
	for _, step := range []struct {
		query string
		rows  [][]any
	}{{t.saveTimes, times}, {t.saveClaims, claims}, {t.saveStates, states}, {t.dropClaims, ended}, {t.drop, entries}} {
		if len(step.rows) == 0 {
			continue
		}
		if _, err := tx.Exec(ctx, step.query, w.store.name, asJSON(step.rows)); err != nil {
			return err
		}
	}
	return nil
}
