package schedule

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/tx"
)

// Errors of a store. An error of a store wraps one of them and the client's own error. Its text
// never contains a password or another secret.
var (
	// ErrNotFound: no entry has this id.
	ErrNotFound = errors.New("schedule: no such entry")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("schedule: closed")
	// ErrUnavailable: the store did not answer. It may have carried out the call. All methods can be
	// called again with the same arguments.
	ErrUnavailable = errors.New("schedule: store unavailable")
	// ErrBadEntry: an entry, claim, lease or name is invalid.
	ErrBadEntry = errors.New("schedule: bad entry")
	// ErrUnsupported: this store or configuration cannot do the operation. The text names
	// alternatives.
	ErrUnsupported = errors.New("schedule: unsupported")
)

// Limits of the values that a store accepts.
const (
	MaxPayload = 1 << 20 // bytes of an entry's payload
	MaxState   = 1 << 20 // bytes of an entry's carried state
	MaxID      = 255     // bytes of an entry's id
	MaxOwner   = 128     // bytes of a claim's owner
	MinLease   = 10 * time.Millisecond
	MaxLease   = time.Hour
)

// Entry is one entry of a schedule as a store holds it: an id, a payload and a due time. The store
// does not interpret the payload; [Schedule] and [Listener] do.
//
// The due time of an entry is the time of its next tick, which is one run of the entry. A claim on
// a tick reserves it for one listener until the claim's lease, a time limit, ends.
type Entry struct {
	// ID identifies the entry. Schedule uses the SHA-1 of the payload in 40 lower-case hex digits, and
	// for entries with a name that of the name, see [NameID]. A store accepts any other id too and
	// never calculates it.
	ID string
	// Payload is the entry's content as a JSON object; see [Content].
	Payload []byte
	// Next is the next due time, in milliseconds. Zero: the entry has no due time, because
	//
	//   - it is paused,
	//   - its last run is claimed and has not ended, or
	//   - a listener could not read its payload as JSON, and dropped its due time.
	Next time.Time
	// Paused reports whether the entry is paused. A paused entry has no due time until Resume.
	Paused bool
	// Last is the instant of the last claimed tick whose Claim.Remember was true; [OverlapSkip]
	// uses it. Zero: none.
	Last time.Time
	// Runs are the instants of such ticks: the newest [KeptRuns], the newest first. A store that is
	// not a [Changer] may leave it nil.
	Runs []time.Time
	// Group is the group that a [Change] added the entry to. "": none.
	Group string
	// State is the state that the last run stored for the next one ([SetState]). nil: no state.
	State []byte
	// AtOnce is read by Add only. The entry is due already, and runs after the AtOnce entries that
	// were added before it.
	AtOnce bool
}

// Tick is one run time of an entry. A listener claims it, runs it and settles it.
type Tick struct {
	Entry
	// Due is the instant at which the tick became due, in milliseconds. It stays the same when the
	// tick is claimed again after a crash. The id of the task is derived from it.
	Due time.Time
	// Owner is the owner of the tick's expired claim. "": the tick was not claimed before.
	Owner string
	// Ref belongs to the store: return it unchanged with the Tick. It may be empty.
	Ref string
}

// Batch is the result of [Store.Due].
type Batch struct {
	// Ticks are in the order in which they became due: at their Due, or at the end of an expired
	// lease.
	Ticks []Tick
	// Now is the current time of the store's clock. All decisions of a schedule use this clock,
	// because the clocks of processes differ.
	Now time.Time
	// More reports that the store may hold more due ticks, although it returned fewer than requested.
	More bool
	// Next is the next time at which an entry becomes due or a lease ends. Zero: none.
	Next time.Time
}

// Claim is a request to claim one tick.
type Claim struct {
	Tick
	// Next is the entry's due time after this tick. Zero: this is the last one. It is ignored if the
	// entry is paused.
	Next time.Time
	// Remember stores the instant of the tick as Entry.Last, and adds it to Entry.Runs.
	Remember bool
}

// Finish ends the claim on a tick.
type Finish struct {
	Tick
	// Remove also deletes the entry, but only if it has no due time and no other claim. An entry whose
	// payload is no longer that of the Tick stays.
	Remove bool
	// State is the state for the next run. nil: the stored state stays. Empty, not nil: it is deleted.
	State []byte
	// StateOf is the id of the entry that State is stored for. "": this entry. If that entry does not
	// exist, State is not stored.
	StateOf string
}

// Store is the port for stores. It holds the entries of one schedule for any number of processes.
// The package scheduletest has a test case for each sentence here.
//
// Methods accept lists, because a call to a server costs more than the work on one item. Each item
// is one atomic step: no crash stores half of it, and no other process sees half of it.
//
// An error concerns the whole call: each item may have been carried out or not. All calls can be
// repeated; an item that was carried out is not carried out twice.
//
// A due tick stays in the store until its run has ended. A claim puts a lease on the tick and gives
// the entry its next due time, in one step. If the owner of the claim dies, its lease ends and the
// tick is due again, with its own instant.
//
// All methods are safe for concurrent use and return when ctx ends. After Close of the adapter they
// return [ErrClosed].
type Store interface {
	// Add adds entries that become due at their Next, which must be set. It returns one result for
	// each entry: true if it was added, false if an entry with this id exists already. An existing
	// entry is not changed. Paused, Last, Runs, Group and State are ignored.
	//
	// There is one exception: an existing entry without a due time and without a claim that is not
	// paused gets its Next; the result is still false. A store that other programs write to may leave
	// such one-shot entries to [Repairer], because those programs remove the due time during a run.
	//
	// Entries with AtOnce become due in the order in which they were added, within one call and over
	// several calls. This holds for at least the first thousand of a second. To keep the order, a
	// store may make them due later within the second of their Next.
	Add(ctx context.Context, entries []Entry) ([]bool, error)
	// Due returns up to max due ticks, the longest overdue first, and changes nothing. Ticks with a
	// valid claim are left out. With max 0 it returns only the times of the Batch.
	Due(ctx context.Context, max int) (Batch, error)
	// Claim claims ticks returned by Due for an owner, each with a lease. It returns one result for
	// each claim: true if the owner holds the tick now. Only one owner can claim a tick.
	//
	// Claim is a compare-and-set. If the tick changed since Due returned it, the result is false and
	// nothing changes. If this owner already holds the tick, the result is true and the lease is
	// renewed.
	//
	// The same step gives the entry its next due time. If an expired claim is taken over, it does so
	// only for an entry without a due time.
	//
	// When the lease ends without Renew or Done, the tick is due again. A listener uses this to
	// postpone a tick.
	Claim(ctx context.Context, owner string, lease time.Duration, claims []Claim) ([]bool, error)
	// Renew sets the leases of the owner's claims to end after lease from now, even if a lease has
	// already expired. It returns one result for each tick: false if the owner no longer holds the
	// claim. Lease 0 releases the tick: it is due again at once.
	Renew(ctx context.Context, owner string, lease time.Duration, ticks []Tick) ([]bool, error)
	// Done ends the owner's claims and stores the states of their runs. It returns one result for each
	// item: false if the owner no longer holds the claim; then nothing changes.
	Done(ctx context.Context, owner string, done []Finish) ([]bool, error)
	// Remove deletes an entry with its state and reports whether it existed. Claims on its ticks have
	// no effect any more: Renew and Done return false for them, or true without an effect.
	Remove(ctx context.Context, id string) (bool, error)
}

// Lister is a Store that can read its entries.
type Lister interface {
	// Get returns an entry. Returns [ErrNotFound] if it does not exist.
	Get(ctx context.Context, id string) (Entry, error)
	// List returns a page of about limit entries, in no particular order, and the cursor of the next
	// page. The first cursor is "". The returned cursor is "" after the last page. A page may be
	// empty.
	//
	// An entry that exists during the whole iteration is returned at least once.
	List(ctx context.Context, cursor string, limit int) ([]Entry, string, error)
}

// Pauser is a Store that can pause entries.
type Pauser interface {
	// Pause removes the due time of an entry until Resume. Claimed ticks continue to run. Returns
	// [ErrNotFound] if the entry does not exist.
	Pause(ctx context.Context, id string) error
	// Resume ends the pause of an entry and sets its due time to next. Zero: no due time. If the entry
	// is not paused, nothing changes. Returns [ErrNotFound] if the entry does not exist.
	Resume(ctx context.Context, id string, next time.Time) error
}

// Watcher is a Store that reports when something becomes due earlier than Due returned.
type Watcher interface {
	// Watch calls wake when something may be due earlier than the last Batch.Next: a process added or
	// resumed an entry, or released a tick. Calls may be missing or unneeded. wake is called from any
	// goroutine. stop ends the calls.
	Watch(wake func()) (stop func())
}

// Repairer is a Store that can find entries that would never become due, because another program or
// an older version removed their due time.
type Repairer interface {
	// Unscheduled returns the entries that have neither a due time nor a claim and are not paused. If
	// other programs write to the store, an entry in use may be among them. Repair an entry only if it
	// is found again after a while.
	Unscheduled(ctx context.Context) ([]Entry, error)
	// Repair sets the due time of an entry that has no due time and is not paused. It reports whether
	// it did so.
	Repair(ctx context.Context, id string, next time.Time) (bool, error)
}

// TxAdder is a Store that can add entries in a transaction of the caller.
type TxAdder interface {
	// AddTx is Add in the transaction t. The entries exist if and only if the caller commits. It
	// neither commits nor rolls back.
	//
	//   - Returns [ErrUnsupported] if t is a transaction of another database.
	//   - Returns [ErrBadEntry] as Add does.
	//   - After these errors nothing was added, and t can continue and commit.
	//   - Other errors are those of the database. They may have ended t.
	AddTx(ctx context.Context, t tx.Tx, entries []Entry) ([]bool, error)
}

// Named is a Store that has the name of its schedule.
type Named interface{ Name() string }

// CheckName returns nil if name is a valid name of a schedule: 1 to 255 bytes of UTF-8 without
// control characters. Otherwise the error wraps [ErrBadEntry]. Redis keys contain the name
// unchanged.
func CheckName(name string) error { return checkText("name of a schedule", name, 255) }

// Check returns nil if a store can add e. Otherwise the error joins all problems and wraps
// [ErrBadEntry]:
//
//   - The id is not 1 to MaxID bytes of UTF-8 without control characters.
//   - The payload is empty or longer than MaxPayload.
//   - Next is zero, or its year is not 0 to 9999.
func (e *Entry) Check() error {
	if e.Next.IsZero() {
		return errors.Join(e.checkContent(), fmt.Errorf("%w: Next is not set", ErrBadEntry))
	}
	return e.checkContent()
}

// checkContent returns the errors of Check, but accepts a Next that is zero.
func (e *Entry) checkContent() error {
	errs := []error{checkText("id", e.ID, MaxID), checkTime(e.Next)}
	if len(e.Payload) == 0 || len(e.Payload) > MaxPayload {
		errs = append(errs, fmt.Errorf("%w: the payload has %d bytes, not 1 to %d", ErrBadEntry, len(e.Payload), MaxPayload))
	}
	return errors.Join(errs...)
}

// CheckLease returns nil if owner and lease are valid for a claim: owner has 1 to MaxOwner bytes of
// UTF-8 without control characters, lease is MinLease to MaxLease or 0. Only Renew uses 0.
// Otherwise the error wraps [ErrBadEntry].
func CheckLease(owner string, lease time.Duration) error {
	err := checkText("owner", owner, MaxOwner)
	if lease != 0 && lease < MinLease || lease > MaxLease {
		err = errors.Join(err, fmt.Errorf("%w: the lease is %v, not %v to %v", ErrBadEntry, lease, MinLease, MaxLease))
	}
	return err
}

// Check returns an error that wraps [ErrBadEntry] if the year of c.Next is not 0 to 9999. A zero
// Next is valid. The other fields are not checked.
func (c *Claim) Check() error { return checkTime(c.Next) }

// Check returns an error that wraps [ErrBadEntry] if f.State is longer than [MaxState]. The other
// fields are not checked.
func (f *Finish) Check() error {
	if len(f.State) > MaxState {
		return fmt.Errorf("%w: the state has %d bytes, more than %d", ErrBadEntry, len(f.State), MaxState)
	}
	return nil
}

// checkTime returns an error that wraps [ErrBadEntry] if the year of t is not 0 to 9999. The zero
// time is valid.
func checkTime(t time.Time) error {
	if !t.IsZero() && (t.Year() < 0 || t.Year() > 9999) {
		return fmt.Errorf("%w: the year of the time is %d, not 0 to 9999", ErrBadEntry, t.Year())
	}
	return nil
}

// checkText returns an error that wraps [ErrBadEntry] unless s is 1 to most bytes of UTF-8 without
// control characters. what names s in the error.
func checkText(what, s string, most int) error {
	if len(s) == 0 || len(s) > most || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		return fmt.Errorf("%w: the %s is not 1 to %d bytes of UTF-8 without control characters", ErrBadEntry, what, most)
	}
	return nil
}
