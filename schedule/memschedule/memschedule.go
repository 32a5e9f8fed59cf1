// Package memschedule stores a schedule in the memory of the process. Use it for tests, examples,
// and programs that add their entries at each start. All entries are lost when the process ends.
package memschedule

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/schedule"
)

// Config configures a [Store]. The zero value is valid.
type Config struct {
	// Name is the schedule's name. Default: "default".
	Name string
	// Now returns the current time of the store. Default: time.Now. The timers of listeners always use
	// the clock of the process.
	Now func() time.Time
}

// Store is one view of a schedule in memory, as one process would have it. Make the first with
// [New] and further ones with [Store.View]. Safe for concurrent use.
type Store struct {
	table  *table
	name   string
	closed atomic.Bool
}

var (
	_ schedule.Store    = (*Store)(nil)
	_ schedule.Lister   = (*Store)(nil)
	_ schedule.Pauser   = (*Store)(nil)
	_ schedule.Repairer = (*Store)(nil)
	_ schedule.Watcher  = (*Store)(nil)
	_ schedule.Changer  = (*Store)(nil)
	_ schedule.Named    = (*Store)(nil)
)

// New returns a view of a new, empty schedule. An empty Name becomes "default", a nil Now time.Now.
// Returns an error that wraps [schedule.ErrBadEntry] if the name is invalid.
func New(c Config) (*Store, error) {
	if c.Name == "" {
		c.Name = "default"
	}
	if err := schedule.CheckName(c.Name); err != nil {
		return nil, fmt.Errorf("memschedule: %w", err)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Store{table: newTable(c.Now), name: c.Name}, nil
}

// View returns another view of the same schedule, as another process would have it. Each view is
// closed separately; the new one is open even if s is closed.
func (s *Store) View() *Store { return &Store{table: s.table, name: s.name} }

// Name returns the schedule's name. See [schedule.Named].
func (s *Store) Name() string { return s.name }

// Close closes this view: later calls return [schedule.ErrClosed]. It waits for no call. The
// schedule and its other views stay open. Close is idempotent and never returns an error.
func (s *Store) Close(context.Context) error {
	s.closed.Store(true)
	return nil
}

// ready returns [schedule.ErrClosed] if the view is closed, or the cause if ctx has ended. All
// calls of a view but Watch return these errors before they change anything.
func (s *Store) ready(ctx context.Context) error {
	if s.closed.Load() {
		return schedule.ErrClosed
	}
	return context.Cause(ctx)
}

// Add implements [schedule.Store]: it adds entries and returns for each whether it is new. An
// existing entry is not changed, with one exception: if it has no due time and no claim and is not
// paused, it gets its Next. If it changed something, it wakes the watchers. If an entry is invalid,
// it adds nothing and returns [schedule.ErrBadEntry]. Returns [schedule.ErrClosed] after Close, and
// the cause of an ended ctx.
func (s *Store) Add(ctx context.Context, entries []schedule.Entry) ([]bool, error) {
	var errs []error
	for i := range entries {
		errs = append(errs, entries[i].Check())
	}
	if err := errors.Join(append(errs, s.ready(ctx))...); err != nil {
		return nil, err
	}
	return s.table.add(entries), nil
}

// Due implements [schedule.Store]: it returns up to max due ticks without a valid claim, the
// longest overdue first, and changes nothing. Returns [schedule.ErrClosed] after Close, and the
// cause of an ended ctx.
func (s *Store) Due(ctx context.Context, max int) (schedule.Batch, error) {
	if err := s.ready(ctx); err != nil {
		return schedule.Batch{}, err
	}
	return s.table.due(max), nil
}

// Claim implements [schedule.Store]: it claims ticks for owner, gives their entries the next due
// time, and returns for each whether owner holds it now. It checks the lease and all claims first:
// after an error nothing was claimed. Each claim is then a separate atomic step. Returns
// [schedule.ErrClosed] after Close, and the cause of an ended ctx.
func (s *Store) Claim(ctx context.Context, owner string, lease time.Duration, claims []schedule.Claim) ([]bool, error) {
	errs := []error{schedule.CheckLease(owner, lease)}
	for i := range claims {
		errs = append(errs, claims[i].Check())
	}
	if err := errors.Join(append(errs, s.ready(ctx))...); err != nil {
		return nil, err
	}
	won := make([]bool, len(claims))
	for i := range claims {
		won[i] = s.table.claim(owner, lease, &claims[i])
	}
	return won, nil
}

// Renew implements [schedule.Store]: the owner's claims on ticks end after lease from now, even if
// they have expired. Lease 0 makes the ticks due at once and wakes the watchers. It returns for
// each whether owner held the claim; if not, nothing changes for it. For an invalid owner or lease
// it returns [schedule.ErrBadEntry]. Returns [schedule.ErrClosed] after Close, and the cause of an
// ended ctx.
func (s *Store) Renew(ctx context.Context, owner string, lease time.Duration, ticks []schedule.Tick) ([]bool, error) {
	if err := errors.Join(schedule.CheckLease(owner, lease), s.ready(ctx)); err != nil {
		return nil, err
	}
	held := make([]bool, len(ticks))
	for i := range ticks {
		held[i] = s.table.renew(owner, lease, &ticks[i])
	}
	return held, nil
}

// Done implements [schedule.Store]: it ends the owner's claims, stores the states and removes
// entries as each Finish says. It returns for each whether owner held the claim; if not, nothing
// changes for it. If an item is invalid, it returns [schedule.ErrBadEntry] and changes nothing.
// Returns [schedule.ErrClosed] after Close, and the cause of an ended ctx.
func (s *Store) Done(ctx context.Context, owner string, done []schedule.Finish) ([]bool, error) {
	errs := []error{schedule.CheckLease(owner, 0)}
	for i := range done {
		errs = append(errs, done[i].Check())
	}
	if err := errors.Join(append(errs, s.ready(ctx))...); err != nil {
		return nil, err
	}
	held := make([]bool, len(done))
	for i := range done {
		held[i] = s.table.done(owner, &done[i])
	}
	return held, nil
}

// Remove implements [schedule.Store]: it deletes an entry with its claims and state, and reports
// whether it existed. Returns [schedule.ErrClosed] after Close, and the cause of an ended ctx.
func (s *Store) Remove(ctx context.Context, id string) (bool, error) {
	if err := s.ready(ctx); err != nil {
		return false, err
	}
	return s.table.remove(id), nil
}

// Get implements [schedule.Lister]: it returns a copy of an entry, or [schedule.ErrNotFound].
// Returns [schedule.ErrClosed] after Close, and the cause of an ended ctx.
func (s *Store) Get(ctx context.Context, id string) (schedule.Entry, error) {
	if err := s.ready(ctx); err != nil {
		return schedule.Entry{}, err
	}
	return s.table.get(id)
}

// List implements [schedule.Lister]: it returns up to limit entries, at least one, sorted by id,
// and the cursor of the next page; "" after the last page. Returns [schedule.ErrClosed] after
// Close, and the cause of an ended ctx.
func (s *Store) List(ctx context.Context, cursor string, limit int) ([]schedule.Entry, string, error) {
	if err := s.ready(ctx); err != nil {
		return nil, "", err
	}
	entries, next := s.table.list(cursor, max(limit, 1))
	return entries, next, nil
}

// Pause implements [schedule.Pauser]: it removes an entry's due time until Resume. Claims on its
// ticks stay. Returns [schedule.ErrNotFound] if the entry does not exist. Returns
// [schedule.ErrClosed] after Close, and the cause of an ended ctx.
func (s *Store) Pause(ctx context.Context, id string) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.table.pause(id)
}

// Resume implements [schedule.Pauser]: it ends an entry's pause, sets its due time to next and
// wakes the watchers; a zero next sets no due time. An entry that is not paused stays as it is, but
// the watchers are woken. Returns [schedule.ErrNotFound] if the entry does not exist. Returns
// [schedule.ErrClosed] after Close, and the cause of an ended ctx.
func (s *Store) Resume(ctx context.Context, id string, next time.Time) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.table.resume(id, next)
}

// Unscheduled implements [schedule.Repairer]: it returns the entries that would never become due.
// They have no due time and no claim and are not paused. Returns [schedule.ErrClosed] after Close,
// and the cause of an ended ctx.
func (s *Store) Unscheduled(ctx context.Context) ([]schedule.Entry, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return s.table.allUnscheduled(), nil
}

// Repair implements [schedule.Repairer]: it sets the due time of an entry that has lost it to next,
// and wakes the watchers. Such an entry has no due time and no claim, and is not paused. It reports
// whether it set the time: false for other entries and for ids that do not exist. Returns
// [schedule.ErrClosed] after Close, and the cause of an ended ctx.
func (s *Store) Repair(ctx context.Context, id string, next time.Time) (bool, error) {
	if err := s.ready(ctx); err != nil {
		return false, err
	}
	return s.table.repairOne(id, next), nil
}

// Watch implements [schedule.Watcher]: wake is called in the goroutine that adds, resumes, repairs
// or releases something, in any view. stop removes it; a call in progress may still follow. Watch
// works on a closed view too.
func (s *Store) Watch(wake func()) (stop func()) { return s.table.watch(wake) }
