package schedule

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// The classes of errors a store returns, beside the client's own error. They never hold a secret.
var (
	// ErrNotFound: there is no entry of this id.
	ErrNotFound = errors.New("schedule: no such entry")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("schedule: closed")
	// ErrUnavailable: the store gave no answer. What was asked for may have been done; every method may be repeated.
	ErrUnavailable = errors.New("schedule: store unavailable")
	// ErrBadEntry: an entry, a claim or a lease is none.
	ErrBadEntry = errors.New("schedule: bad entry")
	// ErrUnsupported: this store or this mode cannot do that; the text says what can.
	ErrUnsupported = errors.New("schedule: unsupported")
)

// Limits of what a store takes.
const (
	MaxPayload = 1 << 20 // bytes of an entry's payload
	MaxState   = 1 << 20 // bytes of an entry's carried state
	MaxID      = 255     // bytes of an entry's id
	MaxOwner   = 128     // bytes of a claim's owner
	MinLease   = 10 * time.Millisecond
	MaxLease   = time.Hour
)

// Entry is one entry of a schedule as a store keeps it: bytes, and a place in the order of time. What the bytes mean is the
// business of [Schedule] and [Listener]; a store keeps them as they are.
type Entry struct {
	// ID names the entry. The ones that Schedule makes are the SHA-1 of the payload's bytes in 40 lower-case hex digits; a store
	// takes any other as well and never works it out itself.
	ID string
	// Payload is the JSON object in which the entry is written.
	Payload []byte
	// Next is when the entry is due for the next time. Zero: it has no such time, because it is paused, is being run for the last
	// time, waits until a claim of it runs out, or was dropped from those due. Milliseconds are kept.
	Next time.Time
	// Paused: it gets no time until Resume.
	Paused bool
	// Last is the instant of the tick that was claimed last, where Claim was asked to remember it. Zero: none, or not asked.
	Last time.Time
	// State is what the last run left for the next one. nil: nothing.
	State []byte
	// AtOnce is for Add alone: the entry is due already, and runs behind those that were added so
	// before it.
	AtOnce bool
}

// Tick is a due run of an entry: one instant at which it was to happen.
type Tick struct {
	Entry
	// Due is the tick's own instant. It stays the same when the tick is claimed again after a crash; the id of the task is derived
	// from it. Milliseconds.
	Due time.Time
	// Owner is whose claim ran out. "": nobody has claimed this tick yet.
	Owner string
	// Ref is the store's own, and is to be handed back as it is. It may be empty.
	Ref string
}

// Batch is the answer to Due.
type Batch struct {
	// Ticks are in the order in which they became due: by Due, or by when the lease of a dead claim ran out.
	Ticks []Tick
	// Now is the time on the store's clock, by which all is judged that a schedule does: not those of the processes, which differ.
	Now time.Time
	// More: there may be more ticks that are due, although there are fewer here than were asked for.
	More bool
	// Next is when something will be due that is not yet, an entry or the lease of a claim. Zero: nothing.
	Next time.Time
}

// Claim asks for one tick.
type Claim struct {
	Tick
	// Next is when the entry is due after this tick. Zero: no more. A paused entry gets none.
	Next time.Time
	// Remember keeps the tick's instant as the entry's Last.
	Remember bool
}

// Finish ends the claim on a tick.
type Finish struct {
	Tick
	// Remove takes the entry away as well, if it has no time any more and nobody else holds a claim on a tick of it.
	Remove bool
	// State is what the next run is to be given. nil: what there is stays. Empty, not nil: nothing.
	State []byte
	// StateOf is the id of the entry whose State it is. "": this one. Of an entry that is gone nothing is kept.
	StateOf string
}

// Store keeps the entries of one schedule, for any number of processes. The package scheduletest holds a case for every sentence
// here.
//
// Each entry, claim and finish of a call is one atomic step of its own: no crash leaves half of one, and no other process sees half
// of one. Calls take several at a time because a trip to a server costs more than what it does there. An error is about all of
// them: each may have been done or not, and all can be asked for again: what has been done stays done, once.
//
// Nothing that is due is ever taken out of the store before its run has ended. A claim puts a lease on a tick, and moves the entry
// on in the same step. Where the claim's owner dies the lease runs out, and the tick is due again, with its own instant.
//
// All methods may be called from any goroutine; a ctx bounds every wait. After Close of an adapter all of them return [ErrClosed].
type Store interface {
	// Add adds entries, each to be due at its Next, which must be set. Where there is an entry of the same id it changes nothing, and
	// answers false: the same content is the same entry, also while it is being run. Paused, Last and State are not looked at.
	//
	// An entry that is there, but has neither a time nor a claim and is not paused, is given its
	// Next; the answer is false too. A store that others write to may leave such one-shots to
	// Mend: their listeners take them out while they run.
	//
	// Entries that are AtOnce become due in the order in which they were added, in one call and in
	// one call after another: at least the first thousand of a second. For that, a store may have
	// them due later within the second of their Next.
	Add(ctx context.Context, entries []Entry) ([]bool, error)
	// Due returns up to max of the ticks that are due, those that are due for longest first, and leaves all of them in place. Those
	// whose claims hold are not among them. max 0 asks for the times alone.
	Due(ctx context.Context, max int) (Batch, error)
	// Claim claims ticks that Due returned, for an owner and for as long as lease. It answers true for those that are the owner's
	// now; of all who ask for a tick one gets it. It compares and sets: if the tick is not as it was when Due returned it, the answer
	// is false and nothing changes, except that a tick which this owner has claimed already is still his, and not claimed
	// twice. In the same step the entry is given its next time. A claim on a tick that was claimed before, by who is dead, gives the
	// entry its next time only if it has none.
	//
	// A claim that is neither renewed nor done ends with its lease, and the tick is due again. That is also how a tick is put off.
	Claim(ctx context.Context, owner string, lease time.Duration, claims []Claim) ([]bool, error)
	// Renew has the owner's claims last for lease from now on, whether they had run out or not. It answers false for a claim that
	// is not his any more. Lease 0 gives the tick back: it is due again at once.
	Renew(ctx context.Context, owner string, lease time.Duration, ticks []Tick) ([]bool, error)
	// Done ends the owner's claims. It answers false for a claim that is not his any more, for which it changes nothing.
	Done(ctx context.Context, owner string, done []Finish) ([]bool, error)
	// Remove takes an entry away, with its state and, in effect, its claims: Renew and Done answer false for them, or do no harm. It
	// answers whether there was one.
	Remove(ctx context.Context, id string) (bool, error)
}

// Lister is a Store that can show its entries.
type Lister interface {
	// Get returns an entry, or [ErrNotFound].
	Get(ctx context.Context, id string) (Entry, error)
	// List returns entries in no particular order, and a cursor for the next page; "" begins, and comes back at the end. A page has
	// about limit entries and may be empty. Entries that are there during all of it come at least once.
	List(ctx context.Context, cursor string, limit int) ([]Entry, string, error)
}

// Pauser is a Store whose entries can be paused.
type Pauser interface {
	// Pause takes an entry's time away until Resume. What is claimed goes on. [ErrNotFound] if there is no such entry.
	Pause(ctx context.Context, id string) error
	// Resume gives a paused entry a time, next. It changes nothing for one that is not paused. Zero: it stays without one.
	Resume(ctx context.Context, id string, next time.Time) error
}

// Watcher is a Store that can tell when there is something to do earlier than Due said.
type Watcher interface {
	// Watch calls wake, from any goroutine, when something may have become due earlier than the last Due said: an entry was added or
	// resumed, or a tick given back, by any process. It is a hint: some calls may be missing, and some needless. stop ends it.
	Watch(wake func()) (stop func())
}

// Mender is a Store whose entries can be found without a time: another program, or an older one,
// has taken it away.
type Mender interface {
	// Astray returns entries that have neither a time nor a claim and are not paused. Where others
	// write to the store it may err, so that one counts only if it is found again after a while.
	Astray(ctx context.Context) ([]Entry, error)
	// Mend gives an entry a time if it still has none and is not paused, and answers whether it did.
	Mend(ctx context.Context, id string, next time.Time) (bool, error)
}

// Named is a Store that knows the name of its schedule.
type Named interface{ Name() string }

// CheckName returns nil when name may name a schedule: 1 to 255 bytes of UTF-8 without control characters. Else the error wraps
// [ErrBadEntry]. Redis keys hold the name as it is.
func CheckName(name string) error { return checkText("name of a schedule", name, 255) }

// Check returns every reason why a store must not take e, joined, or nil. Each wraps [ErrBadEntry].
func (e *Entry) Check() error {
	errs := []error{checkText("id", e.ID, MaxID), checkTime(e.Next)}
	if len(e.Payload) == 0 || len(e.Payload) > MaxPayload {
		errs = append(errs, fmt.Errorf("%w: a payload of %d bytes, not 1 to %d", ErrBadEntry, len(e.Payload), MaxPayload))
	}
	if e.Next.IsZero() {
		errs = append(errs, fmt.Errorf("%w: no time", ErrBadEntry))
	}
	return errors.Join(errs...)
}

// CheckLease returns nil when owner may own claims for as long as lease; zero is for Renew. Else the error wraps [ErrBadEntry].
func CheckLease(owner string, lease time.Duration) error {
	err := checkText("owner", owner, MaxOwner)
	if lease != 0 && lease < MinLease || lease > MaxLease {
		err = errors.Join(err, fmt.Errorf("%w: a lease of %v, not %v to %v", ErrBadEntry, lease, MinLease, MaxLease))
	}
	return err
}

// Check returns why a store must not take c, or nil. It wraps [ErrBadEntry].
func (c *Claim) Check() error { return checkTime(c.Next) }

// Check returns why a store must not take f, or nil. It wraps [ErrBadEntry].
func (f *Finish) Check() error {
	if len(f.State) > MaxState {
		return fmt.Errorf("%w: a state of %d bytes, more than %d", ErrBadEntry, len(f.State), MaxState)
	}
	return nil
}

// checkTime refuses what no spec gives and a store might not hold.
func checkTime(t time.Time) error {
	if !t.IsZero() && (t.Year() < 0 || t.Year() > 9999) {
		return fmt.Errorf("%w: a time in the year %d", ErrBadEntry, t.Year())
	}
	return nil
}

func checkText(what, s string, most int) error {
	if len(s) == 0 || len(s) > most || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		return fmt.Errorf("%w: the %s is not 1 to %d bytes of text", ErrBadEntry, what, most)
	}
	return nil
}
