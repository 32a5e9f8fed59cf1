package schedule

import (
	"bytes"
	"context"
	"crypto/rand"
	"time"

	"github.com/swarmiji/swarmiji/when"
)

// Remove deletes an entry with its carried state ([SetState]) and reports whether it existed. A run
// that has already started continues. Returns errors of the store.
func (s *Schedule) Remove(ctx context.Context, id string) (bool, error) {
	return s.c.Store.Remove(ctx, id)
}

// Pause stops an entry from becoming due until [Schedule.Resume]. A run that has already started
// continues. Returns [ErrNotFound] if the entry does not exist, and [ErrUnsupported] if the store
// is not a [Pauser].
func (s *Schedule) Pause(ctx context.Context, id string) error {
	p, err := feature[Pauser](s.c.Store, "pause entries")
	if err != nil {
		return err
	}
	return p.Pause(ctx, id)
}

// Resume gives a paused entry a due time again and returns that time. If the entry is not paused,
// Resume changes nothing and returns its due time. If the entry is changed during the call, Resume
// pauses the entry and starts again.
//
//   - A recurring entry continues with its first run from now on. Runs missed during the pause are
//     left out. If it has no further run, it gets no due time, and the result is the zero time.
//   - A one-shot entry whose time has passed becomes due at once. A listener with the policy
//     [MisfireSkip] leaves it out.
//
// Returns [ErrNotFound] if the entry does not exist, and Item.Problem if its times cannot be read.
// Returns [ErrUnsupported] if the store is not a [Pauser] and a [Lister], and other errors of the
// store. Ignore the time if there is an error.
func (s *Schedule) Resume(ctx context.Context, id string) (time.Time, error) {
	p, err := feature[Pauser](s.c.Store, "pause entries")
	if err != nil {
		return time.Time{}, err
	}
	it, err := s.Get(ctx, id)
	switch {
	case err != nil:
		return time.Time{}, err
	case it.Spec == nil:
		return time.Time{}, it.Problem
	case !it.Paused:
		return it.Next, nil
	}
	now, err := s.now(ctx)
	if err != nil {
		return time.Time{}, err
	}
	next := resumed(it.Spec, now)
	if err := p.Resume(ctx, id, next); err != nil {
		return next, err
	}
	if again, err := s.Get(ctx, id); err == nil && !bytes.Equal(again.Payload, it.Payload) {
		// The entry was changed meanwhile, so that next may be none of its times.
		if err := p.Pause(ctx, id); err != nil {
			return time.Time{}, err
		}
		return s.Resume(ctx, id)
	}
	return next, nil
}

// resumed returns the due time for an entry that was without a due time: its first run at now or
// later. If all runs are over, it returns the time of a one-shot entry, although it is past, and
// zero for a recurring entry.
func resumed(spec when.Spec, now time.Time) time.Time {
	if next := from(spec, now); !next.IsZero() {
		return next
	}
	only := from(spec, time.Unix(0, 0))
	if only.IsZero() || !after(spec, only).IsZero() {
		return time.Time{}
	}
	return only
}

// RunNow adds a copy of an entry that is due at once, and returns the copy. It works for paused
// entries too. The original entry is not changed.
//
// The copy has the same task, arguments, metadata and headers, but its own id and task id, and the
// default policies. It reads and writes the carried state ([SetState]) of the original entry. After
// its run the copy is removed. Each call of RunNow adds another copy.
//
// Returns [ErrNotFound] if the entry does not exist, Item.Problem if its payload cannot be read,
// and [ErrUnsupported] if the store is not a [Lister]. After [ErrUnavailable] the copy may have
// been added.
func (s *Schedule) RunNow(ctx context.Context, id string) (Added, error) {
	it, err := s.Get(ctx, id)
	switch {
	case err != nil:
		return Added{}, err
	case it.Content == nil:
		return Added{}, it.Problem
	}
	now, err := s.now(ctx)
	if err != nil {
		return Added{}, err
	}
	spec, first, _, err := Now().spec(now)
	if err != nil {
		return Added{}, err
	}
	c := *it.Content
	if c.From == "" {
		c.From = id
	}
	c.Name, c.Nonce, c.Misfire, c.Overlap = "", rand.Text(), MisfireOnce, OverlapAllow
	payload, err := encode(&c, spec, s.c.EscapeSlashes)
	if err != nil {
		return Added{}, err
	}
	e := Entry{ID: ID(payload), Payload: payload, Next: first, AtOnce: true}
	is, err := s.c.Store.Add(ctx, []Entry{e})
	if err != nil {
		return Added{}, err
	}
	return Added{ID: e.ID, New: is[0], Next: first, Spec: spec, Echo: echo(spec, first, now.In(s.c.Location))}, nil
}
