package natsschedule

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/swarmiji/swarmiji/internal/natsconn"
	"github.com/swarmiji/swarmiji/schedule"
)

// chunk is how many entries are changed at a time.
const chunk = 1000

// verdict of a decision about one item of a call.
type verdict struct {
	answer bool
	change bool // the record was changed
}

// decision is made about an item and the record of its entry, nil if there is none, which it may change or replace.
type decision func(now int64, r *record, item int) (*record, verdict)

// step is an entry that a call is about, with its items.
type step struct {
	id    string
	items []int
	rec   *record // as the server has it, where that was asked for
	seq   uint64
	asked bool
	next  *record // what is to be stored
}

// change decides about each item of a call and stores what has changed, one message for an entry. Who meets somebody else's change
// looks again.
func (s *Store) change(ctx context.Context, what string, n int, id func(item int) string, decide decision) ([]bool, error) {
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
		again, err := s.try(ctx, some, answers, decide)
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

// try makes one attempt at some steps, and returns those that met another's change.
func (s *Store) try(ctx context.Context, steps []*step, answers []bool, decide decision) ([]*step, error) {
	now, err := s.sync(ctx)
	if err != nil {
		return nil, err
	}
	var stored []*step
	for _, st := range steps {
		if !st.asked {
			st.rec, st.seq = s.copy.get(st.id)
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
			s.stored(ctx, st.next, pubs[i].Ack.Sequence)
		case !errors.Is(err, natsconn.ErrWrongSequence):
			errs = errors.Join(errs, err)
		default:
			again = append(again, st)
		}
	}
	for _, st := range again {
		if errs == nil {
			errs = s.look(ctx, st)
		}
	}
	return again, errs
}

// decide decides about the items of a step, and reports whether there is something to store.
func (st *step) decide(now int64, answers []bool, decide decision) bool {
	r := st.rec
	if r != nil {
		r = r.clone()
	}
	changed := false
	for _, i := range st.items {
		var v verdict
		r, v = decide(now, r, i)
		answers[i] = v.answer
		changed = changed || v.change
	}
	st.next = r
	return changed
}

// look asks the server for the entry of a step.
func (s *Store) look(ctx context.Context, st *step) error {
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

// stored takes what this process has stored into its copy at once.
func (s *Store) stored(ctx context.Context, r *record, seq uint64) {
	if r.Gone && !s.ttl.Load() {
		_ = s.conn.DeleteSeq(ctx, s.stream, seq) // the entry is gone all the same
	}
	s.mu.Lock()
	sooner := s.ready && s.copy.apply(r, seq, false)
	s.mu.Unlock()
	if sooner {
		s.wake()
	}
}

// Add implements [schedule.Store].
func (s *Store) Add(ctx context.Context, entries []schedule.Entry) ([]bool, error) {
	var errs []error
	for i := range entries {
		errs = append(errs, entries[i].Check())
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s.change(ctx, "add", len(entries), func(i int) string { return entries[i].ID }, func(_ int64, r *record, i int) (*record, verdict) {
		e := &entries[i]
		if r != nil {
			return r, verdict{change: r.mend(e.Next)}
		}
		return &record{ID: e.ID, payload: e.Payload, Next: e.Next.UnixMilli(), Timed: true}, verdict{true, true}
	})
}

// Claim implements [schedule.Store].
func (s *Store) Claim(ctx context.Context, owner string, lease time.Duration, claims []schedule.Claim) ([]bool, error) {
	errs := []error{schedule.CheckLease(owner, lease)}
	for i := range claims {
		errs = append(errs, claims[i].Check())
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s.change(ctx, "claim", len(claims), func(i int) string { return claims[i].ID }, func(now int64, r *record, i int) (*record, verdict) {
		if r == nil {
			return nil, verdict{}
		}
		won := r.claim(now, owner, lease, &claims[i])
		return r, verdict{won, won}
	})
}

// Renew implements [schedule.Store].
func (s *Store) Renew(ctx context.Context, owner string, lease time.Duration, ticks []schedule.Tick) ([]bool, error) {
	if err := schedule.CheckLease(owner, lease); err != nil {
		return nil, err
	}
	return s.change(ctx, "renew", len(ticks), func(i int) string { return ticks[i].ID }, func(now int64, r *record, i int) (*record, verdict) {
		if r == nil {
			return nil, verdict{}
		}
		at := r.held(owner, ticks[i].Due)
		if at < 0 {
			return r, verdict{}
		}
		r.Claims[at].Until = now + lease.Milliseconds()
		return r, verdict{true, true}
	})
}

// Done implements [schedule.Store].
func (s *Store) Done(ctx context.Context, owner string, done []schedule.Finish) ([]bool, error) {
	errs := []error{schedule.CheckLease(owner, 0)}
	for i := range done {
		errs = append(errs, done[i].Check())
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := s.carry(ctx, owner, done); err != nil {
		return nil, err
	}
	return s.change(ctx, "done", len(done), func(i int) string { return done[i].ID }, func(_ int64, r *record, i int) (*record, verdict) {
		f := &done[i]
		if r == nil || r.Gone {
			return r, verdict{}
		}
		at := r.held(owner, f.Due)
		if at < 0 {
			return r, verdict{}
		}
		r.Claims = append(r.Claims[:at], r.Claims[at+1:]...)
		if f.State != nil && cmp.Or(f.StateOf, f.ID) == f.ID {
			r.state = f.State
		}
		r.Gone = f.Remove && !r.Timed && len(r.Claims) == 0
		return r, verdict{true, true}
	})
}

// carry stores what runs leave for other entries, as long as their claims are held.
func (s *Store) carry(ctx context.Context, owner string, done []schedule.Finish) error {
	var others []schedule.Finish
	for _, f := range done {
		if f.State != nil && cmp.Or(f.StateOf, f.ID) != f.ID {
			others = append(others, f)
		}
	}
	if len(others) == 0 {
		return nil
	}
	_, err := s.change(ctx, "done", len(others), func(i int) string { return others[i].StateOf }, func(_ int64, r *record, i int) (*record, verdict) {
		run, _ := s.copy.get(others[i].ID)
		if r == nil || run == nil || run.held(owner, others[i].Due) < 0 {
			return r, verdict{}
		}
		r.state = others[i].State
		return r, verdict{true, true}
	})
	return err
}

// one changes one entry, and reports whether there is one.
func (s *Store) one(ctx context.Context, what, id string, fn func(r *record) bool) (bool, error) {
	found, err := s.change(ctx, what, 1, func(int) string { return id }, func(_ int64, r *record, _ int) (*record, verdict) {
		if r == nil {
			return nil, verdict{}
		}
		return r, verdict{true, fn(r)}
	})
	return err == nil && found[0], err
}

// Remove implements [schedule.Store].
func (s *Store) Remove(ctx context.Context, id string) (bool, error) {
	return s.one(ctx, "remove", id, func(r *record) bool {
		r.Gone = true
		return true
	})
}

// Pause implements [schedule.Pauser].
func (s *Store) Pause(ctx context.Context, id string) error {
	found, err := s.one(ctx, "pause", id, func(r *record) bool {
		r.schedule(time.Time{})
		r.Paused = true
		return true
	})
	if err == nil && !found {
		return schedule.ErrNotFound
	}
	return err
}

// Resume implements [schedule.Pauser].
func (s *Store) Resume(ctx context.Context, id string, next time.Time) error {
	found, err := s.one(ctx, "resume", id, func(r *record) bool {
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

// Mend implements [schedule.Mender].
func (s *Store) Mend(ctx context.Context, id string, next time.Time) (bool, error) {
	mended, err := s.change(ctx, "mend", 1, func(int) string { return id }, func(_ int64, r *record, _ int) (*record, verdict) {
		if r == nil {
			return nil, verdict{}
		}
		is := r.mend(next)
		return r, verdict{is, is}
	})
	return err == nil && mended[0], err
}
