package natsschedule

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/swarmiji/swarmiji/internal/natsconn"
	"github.com/swarmiji/swarmiji/schedule"
)

// chunk is the largest number of entries that are changed with one attempt.
const chunk = 1000

// outcome is the result of a decideFunc for one item of a call. answer is the item's result in the
// answer of the call.
type outcome struct {
	answer bool
	change bool // the record was changed and must be stored
}

// decideFunc changes the record of an entry for one item of a call, and returns it with the
// outcome. r is nil if the entry does not exist. It may return another record, but must not block:
// s.mu is held.
type decideFunc func(now int64, r *record, item int) (*record, outcome)

// step is one entry of a call, with the items of the call that concern it.
type step struct {
	id    string
	items []int
	rec   *record // if asked: the record on the server
	seq   uint64
	asked bool
	next  *record // the record to store
}

// change calls decide for each item of a call and stores the changed records, one message for each
// entry. If another process changed an entry meanwhile, it reads the entry again and repeats
// decide. It blocks until all changes are stored or ctx ends. Without items it calls no server, and
// returns only the cause of an ended ctx.
//
// n is the number of items, and id returns the entry's id of an item. The result has one answer for
// each item. After an error the answers are nil, and some changes may have been stored, also one
// whose message got no answer: it is not sent again. Errors are wrapped by wrap.
func (s *Store) change(ctx context.Context, what string, n int, id func(item int) string, decide decideFunc) ([]bool, error) {
	answers := make([]bool, n)
	byID := make(map[string]*step, n)
	var steps []*step
	for i := range n {
		st := byID[id(i)]
		if st == nil {
			st = &step{id: id(i)}
			byID[st.id] = st
			steps = append(steps, st)
		}
		st.items = append(st.items, i)
	}
	for len(steps) > 0 {
		some := steps[:min(chunk, len(steps))]
		again, err := s.tryChange(ctx, some, answers, decide)
		if err != nil {
			return nil, wrap(what, err)
		}
		steps = append(again, steps[len(some):]...)
	}
	if n == 0 && ctx.Err() != nil {
		return nil, wrap(what, context.Cause(ctx))
	}
	return answers, nil
}

// tryChange waits for the cache (sync), decides the items of the steps and sends the changed
// records once. It writes the answers into answers, and applies stored records to the cache.
//
// It returns the steps that must be repeated because another process changed their entries; their
// records are read from the server again. Its error is that of sync or of a read, or joins those of
// the failed messages; the other messages are stored then. It takes s.mu for the decisions.
func (s *Store) tryChange(ctx context.Context, steps []*step, answers []bool, decide decideFunc) ([]*step, error) {
	now, err := s.sync(ctx)
	if err != nil {
		return nil, err
	}
	var stored []*step
	for _, st := range steps {
		if !st.asked {
			st.rec, st.seq = s.cache.get(st.id)
		}
		st.next = nil
		if st.decide(now, answers, decide) {
			stored = append(stored, st)
		}
	}
	s.mu.Unlock()
	pubs := make([]natsconn.Pub, len(stored))
	for i, st := range stored {
		pubs[i].Msg = s.message(st.next, st.seq)
		if st.next.Gone && !s.ttl.Load() {
			delete(pubs[i].Msg.Header, headerTTL)
		}
	}
	s.conn.PublishBatch(ctx, pubs)
	var again []*step
	var errs error
	for i, st := range stored {
		switch err := pubs[i].Err; {
		case err == nil:
			s.applyStored(ctx, st.next, pubs[i].Ack.Sequence)
		case !errors.Is(err, natsconn.ErrWrongSequence):
			errs = errors.Join(errs, err)
		default:
			again = append(again, st)
		}
	}
	for _, st := range again {
		if errs == nil {
			errs = s.readEntry(ctx, st)
		}
	}
	return again, errs
}

// decide calls the decideFunc for each item of a step, on a copy of its record, which becomes
// st.next. It writes the answers into answers and reports whether the record changed. Call it with
// s.mu held.
func (st *step) decide(now int64, answers []bool, decide decideFunc) bool {
	r := st.rec
	if r != nil {
		r = r.clone()
	}
	changed := false
	for _, i := range st.items {
		var v outcome
		r, v = decide(now, r, i)
		answers[i] = v.answer
		changed = changed || v.change
	}
	st.next = r
	return changed
}

// readEntry reads the record of a step's entry and its sequence from the server into st. The record
// is nil if the entry has no message or was removed. The next attempt then uses it in place of the
// cache. Returns errors of the server, and an error if the message is not an entry.
func (s *Store) readEntry(ctx context.Context, st *step) error {
	st.asked, st.rec, st.seq = true, nil, 0
	m, err := s.conn.GetLast(ctx, s.stream, s.subject(st.id))
	if errors.Is(err, natsconn.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	r, err := decode(m.Header, m.Data)
	if err != nil {
		return err
	}
	st.seq = m.Seq
	if !r.Gone {
		st.rec = r
	}
	return nil
}

// applyStored applies a record that this process has stored to the cache, if the cache is up to
// date. It wakes the watchers if something is due earlier. If the server cannot expire messages, it
// first deletes the message of a removed entry; it waits for the server and ignores errors. It
// takes s.mu, but not while it waits.
func (s *Store) applyStored(ctx context.Context, r *record, seq uint64) {
	if r.Gone && !s.ttl.Load() {
		_ = s.conn.DeleteSeq(ctx, s.stream, seq) // after an error the entry still counts as removed
	}
	s.mu.Lock()
	sooner := s.fresh && s.cache.apply(r, seq, false)
	s.mu.Unlock()
	if sooner {
		s.wake()
	}
}

// Add implements [schedule.Store]: it adds entries and returns for each whether it is new. An
// existing entry is not changed, with one exception: if it has no due time and no claim and is not
// paused, it gets its Next.
//
// If an entry is invalid, it adds nothing and returns [schedule.ErrBadEntry]. After another error,
// wrapped by wrap, some may have been added.
func (s *Store) Add(ctx context.Context, entries []schedule.Entry) ([]bool, error) {
	var errs []error
	for i := range entries {
		errs = append(errs, entries[i].Check())
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s.change(ctx, "add", len(entries), func(i int) string { return entries[i].ID }, func(_ int64, r *record, i int) (*record, outcome) {
		e := &entries[i]
		if r != nil {
			return r, outcome{change: r.repair(e.Next)}
		}
		return &record{ID: e.ID, payload: e.Payload, Next: e.Next.UnixMilli(), Timed: true}, outcome{true, true}
	})
}

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
	return s.change(ctx, "claim", len(claims), func(i int) string { return claims[i].ID }, func(now int64, r *record, i int) (*record, outcome) {
		if r == nil {
			return nil, outcome{}
		}
		won := r.claim(now, owner, lease, &claims[i])
		return r, outcome{won, won}
	})
}

// Renew implements [schedule.Store]: the owner's claims on ticks end after lease from now, even if
// they have expired; lease 0 makes the ticks due at once. It returns for each whether owner held
// the claim; if not, nothing changes for it. If owner or lease is invalid, it returns
// [schedule.ErrBadEntry]. After another error, wrapped by wrap, some may be renewed.
func (s *Store) Renew(ctx context.Context, owner string, lease time.Duration, ticks []schedule.Tick) ([]bool, error) {
	if err := schedule.CheckLease(owner, lease); err != nil {
		return nil, err
	}
	return s.change(ctx, "renew", len(ticks), func(i int) string { return ticks[i].ID }, func(now int64, r *record, i int) (*record, outcome) {
		if r == nil {
			return nil, outcome{}
		}
		at := r.held(owner, ticks[i].Due)
		if at < 0 {
			return r, outcome{}
		}
		r.Claims[at].Until = now + lease.Milliseconds()
		return r, outcome{true, true}
	})
}

// Done implements [schedule.Store]: it ends the owner's claims, stores the states and removes
// entries as each Finish says. It returns for each whether owner held the claim; if not, nothing
// changes for it. If an item is invalid, it returns [schedule.ErrBadEntry] and changes nothing.
// After another error, wrapped by wrap, some may be done.
//
// States for other entries (Finish.StateOf) are stored first, in messages of their own.
func (s *Store) Done(ctx context.Context, owner string, done []schedule.Finish) ([]bool, error) {
	errs := []error{schedule.CheckLease(owner, 0)}
	for i := range done {
		errs = append(errs, done[i].Check())
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := s.storeOtherStates(ctx, owner, done); err != nil {
		return nil, err
	}
	return s.change(ctx, "done", len(done), func(i int) string { return done[i].ID }, func(_ int64, r *record, i int) (*record, outcome) {
		f := &done[i]
		if r == nil || r.Gone {
			return r, outcome{}
		}
		at := r.held(owner, f.Due)
		if at < 0 {
			return r, outcome{}
		}
		r.Claims = append(r.Claims[:at], r.Claims[at+1:]...)
		if f.State != nil && cmp.Or(f.StateOf, f.ID) == f.ID {
			r.state = f.State
		}
		r.Gone = f.Remove && !r.Timed && len(r.Claims) == 0 && bytes.Equal(r.payload, f.Payload)
		return r, outcome{true, true}
	})
}

// storeOtherStates stores the states of runs that belong to another entry (Finish.StateOf), if the
// claim of the run is still held and that entry exists. It does not end the claims. It blocks until
// the states are stored or ctx ends. After an error, wrapped by wrap, some may be stored.
func (s *Store) storeOtherStates(ctx context.Context, owner string, done []schedule.Finish) error {
	var others []schedule.Finish
	for _, f := range done {
		if f.State != nil && cmp.Or(f.StateOf, f.ID) != f.ID {
			others = append(others, f)
		}
	}
	if len(others) == 0 {
		return nil
	}
	_, err := s.change(ctx, "done", len(others), func(i int) string { return others[i].StateOf }, func(_ int64, r *record, i int) (*record, outcome) {
		run, _ := s.cache.get(others[i].ID)
		if r == nil || run == nil || run.held(owner, others[i].Due) < 0 {
			return r, outcome{}
		}
		r.state = others[i].State
		return r, outcome{true, true}
	})
	return err
}

// changeOne changes one entry with fn, which reports whether it changed the record; only then the
// record is stored. fn may be called again after a conflict, with s.mu held. what names the
// operation in errors. changeOne reports whether the entry exists, and false after an error.
func (s *Store) changeOne(ctx context.Context, what, id string, fn func(r *record) bool) (bool, error) {
	found, err := s.change(ctx, what, 1, func(int) string { return id }, func(_ int64, r *record, _ int) (*record, outcome) {
		if r == nil {
			return nil, outcome{}
		}
		return r, outcome{true, fn(r)}
	})
	return err == nil && found[0], err
}

// Remove implements [schedule.Store]: it deletes an entry with its claims and state, and reports
// whether it existed. It stores a record that is marked as removed, see message. After an error,
// which is wrapped by wrap, it returns false.
func (s *Store) Remove(ctx context.Context, id string) (bool, error) {
	return s.changeOne(ctx, "remove", id, func(r *record) bool {
		r.Gone = true
		return true
	})
}

// Pause implements [schedule.Pauser]: it removes an entry's due time until Resume. Claims on its
// ticks stay. A paused entry stays as it is. Returns [schedule.ErrNotFound] if the entry does not
// exist. Other errors are wrapped by wrap.
func (s *Store) Pause(ctx context.Context, id string) error {
	found, err := s.changeOne(ctx, "pause", id, func(r *record) bool {
		r.schedule(time.Time{})
		r.Paused = true
		return true
	})
	if err == nil && !found {
		return schedule.ErrNotFound
	}
	return err
}

// Resume implements [schedule.Pauser]: it ends an entry's pause and sets its due time to next; a
// zero next sets no due time. An entry that is not paused stays as it is. Returns
// [schedule.ErrNotFound] if the entry does not exist. Other errors are wrapped by wrap.
func (s *Store) Resume(ctx context.Context, id string, next time.Time) error {
	found, err := s.changeOne(ctx, "resume", id, func(r *record) bool {
		if !r.Paused {
			return false
		}
		r.Paused = false
		r.schedule(next)
		return true
	})
	if err == nil && !found {
		return schedule.ErrNotFound
	}
	return err
}

// Repair implements [schedule.Repairer]: it sets the due time of an entry that has neither a due
// time nor a claim and is not paused. It reports whether it did so. Other entries, and ids that do
// not exist, give false. Errors are wrapped by wrap.
func (s *Store) Repair(ctx context.Context, id string, next time.Time) (bool, error) {
	repaired, err := s.change(ctx, "repair", 1, func(int) string { return id }, func(_ int64, r *record, _ int) (*record, outcome) {
		if r == nil {
			return nil, outcome{}
		}
		is := r.repair(next)
		return r, outcome{is, is}
	})
	return err == nil && repaired[0], err
}
