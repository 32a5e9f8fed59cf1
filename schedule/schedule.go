package schedule

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/when"
)

// Config configures a [Schedule]. Only Store must be set.
type Config struct {
	// Store keeps the entries. The schedule does not close it.
	Store Store
	// Name is the name of the schedule, from which the ids of its tasks are derived: the same for all processes. "": that of the
	// Store, which then must know one.
	Name string
	// Results is where the listeners' runs are recorded. It is needed for [OverlapSkip] alone, and only says here that there is one.
	Results resultstore.ResultStore
	// Location is the time zone of phrases: "at 7pm" is 7pm there. nil: UTC.
	Location *time.Location
	// EscapeSlashes writes "/" as "\/" in payloads, as Clojure's data.json does: then a program of ours and one in Clojure that add
	// the same entry add it once.
	EscapeSlashes bool
}

// Schedule adds entries to a named schedule and looks after them; a [Listener] runs them. Make one with [New]. It is safe for concurrent
// use. All times are those of the store's clock.
type Schedule struct {
	c    Config
	name string
}

// New makes a Schedule, or returns every problem of the configuration, joined. It does no I/O.
func New(c Config) (*Schedule, error) {
	name, err := nameOf(c.Name, c.Store)
	if c.Results != nil && resultstore.RepliesOnly(c.Results) {
		err = errors.Join(err, errReplies)
	}
	if err != nil {
		return nil, err
	}
	if c.Location == nil {
		c.Location = time.UTC
	}
	return &Schedule{c: c, name: name}, nil
}

var errReplies = fmt.Errorf("%w: the result store hands records to their submitters and keeps none; configure one that keeps them, such as redisresults", ErrUnsupported)

// nameOf finds the schedule's name.
func nameOf(name string, s Store) (string, error) {
	if s == nil {
		return "", errors.New("schedule: Store is not set")
	}
	own := ""
	if n, ok := capability.As[Named](s); ok {
		own = n.Name()
	}
	switch {
	case name == "" && own == "":
		return "", errors.New("schedule: the store knows no name of the schedule; set Name")
	case name == "":
		name = own
	case own != "" && own != name:
		return "", fmt.Errorf("schedule: the name is %q, and %q in the store", name, own)
	}
	return name, CheckName(name)
}

// Name returns the schedule's name.
func (s *Schedule) Name() string { return s.name }

// Option sets something on an entry that is added.
type Option func(*Content)

// WithNonce sets entries apart that are otherwise equal, which would be one entry.
func WithNonce(nonce string) Option { return func(c *Content) { c.Nonce = nonce } }

// WithMisfire says what becomes of runs that nobody was there for.
func WithMisfire(m Misfire) Option { return func(c *Content) { c.Misfire = m } }

// WithOverlap says what becomes of a run when the last one has not ended.
func WithOverlap(o Overlap) Option { return func(c *Content) { c.Overlap = o } }

// Added is what became of an Add.
type Added struct {
	// ID is the entry's.
	ID string
	// New: it was not there before. If it was, nothing has changed.
	New bool
	// Next is when a new entry is due first.
	Next time.Time
	// Spec is how the When was understood.
	Spec when.Spec
	// Echo says in a sentence how the When was understood, for people.
	Echo string
}

// Add has a call run at the times that at names:
//
//	s.Add(ctx, schedule.At("7pm tomorrow"), clearCache.Call(task.None{}))
//	s.Add(ctx, schedule.In("5 minutes"), activate.Call("tracy@example.com"))
//	s.Add(ctx, schedule.Every("weekday at 9am"), report.Call(args), schedule.WithMisfire(schedule.MisfireSkip))
//
// Arguments are kept as JSON, in the open. The same task with the same arguments at the same times
// is the same entry: adding it again changes nothing, which Added.New tells, except that an entry
// which has lost its time gets one: it has neither a time nor a claim and is not paused. Note that
// two adds of [Now] within a second are the same, too; see [WithNonce]. Entries for now are due in
// the order in which they were added.
//
// Of the call's metadata those given at the call are kept; those of the definition are the business of who runs it. Errors wrap
// [when.ErrBadSpec], [task.ErrBadArgs], task.ErrBadMetadata, [ErrBadEntry] or [ErrUnsupported], and then nothing was added; or [ErrUnavailable].
func (s *Schedule) Add(ctx context.Context, at When, call task.Call, opts ...Option) (Added, error) {
	added, err := s.AddAll(ctx, at, []task.Call{call}, opts...)
	if err != nil {
		return Added{}, err
	}
	return added[0], nil
}

// AddAll is Add of several calls in one trip to the store. If one of them is refused none is added.
func (s *Schedule) AddAll(ctx context.Context, at When, calls []task.Call, opts ...Option) ([]Added, error) {
	now, err := s.now(ctx)
	if err != nil {
		return nil, err
	}
	now = now.In(s.c.Location)
	spec, first, said, err := at.spec(now)
	if err != nil {
		return nil, err
	}
	if said == "" {
		said = echo(spec, first, now)
	}
	atOnce := !first.After(now) && after(spec, first).IsZero()
	entries, added := make([]Entry, len(calls)), make([]Added, len(calls))
	for i := range calls {
		e := Entry{Next: first, AtOnce: atOnce}
		if e.ID, e.Payload, err = s.payload(ctx, &calls[i], spec, opts, atOnce); err != nil {
			return nil, err
		}
		entries[i] = e
		added[i] = Added{ID: e.ID, Next: first, Spec: spec, Echo: said}
	}
	is, err := s.c.Store.Add(ctx, entries)
	if err != nil {
		return nil, err
	}
	for i := range added {
		added[i].New = is[i]
	}
	return added, nil
}

// now is the time on the store's clock.
func (s *Schedule) now(ctx context.Context) (time.Time, error) {
	b, err := s.c.Store.Due(ctx, 0)
	return b.Now, err
}

// payload writes an entry's payload. An entry that an older program wrote in its own way is the
// same, and stays.
func (s *Schedule) payload(ctx context.Context, call *task.Call, spec when.Spec, opts []Option, atOnce bool) (id string, payload []byte, err error) {
	if err := travels(call); err != nil {
		return "", nil, err
	}
	args, err := encodeArgs(call.Args)
	if err != nil {
		return "", nil, err
	}
	c := &Content{Job: call.Name, Args: args, When: spec.String(), Meta: call.Meta, Headers: call.Headers, Correlation: call.Correlation}
	for _, o := range opts {
		o(c)
	}
	if err := errors.Join(c.check(), s.overlaps(c)); err != nil {
		return "", nil, err
	}
	if payload, err = encode(c, spec, s.c.EscapeSlashes); err != nil {
		return "", nil, err
	}
	old, err := encodeOld(c, spec, s.c.EscapeSlashes)
	if lister, lists := capability.As[Lister](s.c.Store); err == nil && old != nil && lists && !atOnce {
		switch _, err := lister.Get(ctx, ID(old)); {
		case err == nil:
			return ID(old), old, nil
		case !errors.Is(err, ErrNotFound):
			return "", nil, err
		}
	}
	return ID(payload), payload, err
}

// overlaps refuses a policy that nobody could follow.
func (s *Schedule) overlaps(c *Content) error {
	switch {
	case c.Overlap == OverlapAllow:
	case s.c.Results == nil:
		return fmt.Errorf("%w: whether the last run has ended is known by a result store alone; set Results, here and in the listeners", ErrUnsupported)
	case c.Meta.IgnoreResult.Or(false):
		return fmt.Errorf("%w: of a task that ignores its result nobody knows whether it has ended", ErrUnsupported)
	}
	return nil
}

// Item is an entry as people look at it.
type Item struct {
	Entry
	// Content is what the payload says; nil if it cannot be read.
	Content *Content
	// Spec is its spec; nil if that cannot be read.
	Spec when.Spec
	// Problem is why it cannot be read here. Such an entry is not run by programs that cannot read
	// it, and stays until somebody removes it.
	Problem error
}

func item(e Entry) Item {
	it := Item{Entry: e}
	if it.Content, it.Problem = Decode(e.Payload); it.Problem != nil {
		it.Content = nil
		return it
	}
	it.Spec, it.Problem = it.Content.Spec()
	if it.Problem != nil {
		it.Spec = nil
	}
	return it
}

// Get returns an entry, or [ErrNotFound].
func (s *Schedule) Get(ctx context.Context, id string) (Item, error) {
	l, err := feature[Lister](s.c.Store, "show entries")
	if err != nil {
		return Item{}, err
	}
	e, err := l.Get(ctx, id)
	if err != nil {
		return Item{}, err
	}
	return item(e), nil
}

// listPage is how many entries are read at a time.
const listPage = 500

// List goes through all entries, in no particular order. An entry that others change meanwhile may come twice. It ends at the first error.
func (s *Schedule) List(ctx context.Context) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		l, err := feature[Lister](s.c.Store, "show entries")
		for cursor := ""; err == nil; {
			var page []Entry
			if page, cursor, err = l.List(ctx, cursor, listPage); err != nil {
				break
			}
			for _, e := range page {
				if !yield(item(e), nil) {
					return
				}
			}
			if cursor == "" {
				return
			}
		}
		yield(Item{}, err)
	}
}

// Next returns the next runs of an entry, up to n of them, the first of which may be overdue. A paused entry has none before it goes on; what
// is shown then is when it would run.
func (s *Schedule) Next(ctx context.Context, id string, n int) ([]time.Time, error) {
	it, err := s.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if it.Spec == nil {
		return nil, it.Problem
	}
	t := it.Next
	if t.IsZero() {
		now, err := s.now(ctx)
		if err != nil {
			return nil, err
		}
		t = from(it.Spec, now)
	}
	var runs []time.Time
	for ; len(runs) < n && !t.IsZero(); t = after(it.Spec, t) {
		runs = append(runs, t)
	}
	return runs, nil
}

// Remove takes an entry away, and answers whether there was one. A run that is under way goes on.
func (s *Schedule) Remove(ctx context.Context, id string) (bool, error) {
	return s.c.Store.Remove(ctx, id)
}

// Pause stops an entry from running until Resume; a run that is under way goes on. [ErrNotFound] if there is no such entry.
func (s *Schedule) Pause(ctx context.Context, id string) error {
	p, err := feature[Pauser](s.c.Store, "pause entries")
	if err != nil {
		return err
	}
	return p.Pause(ctx, id)
}

// Resume has a paused entry go on, and returns when it runs next: a recurring one at its first time from now on, so that what it missed is
// left out. A one-shot whose time has passed runs at once, unless its policy is [MisfireSkip]. Of an entry that was not
// paused nothing changes.
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
	return next, p.Resume(ctx, id, next)
}

// resumed is when an entry runs that had no time for a while: its next run from now on, and, where there is none, its last one if it had
// only one.
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

// RunNow runs an entry once more, at once, paused or not: it adds a copy of it that is due now, with the same task, arguments and options,
// which goes as soon as it has run. It is a run of its own, with a task id of its own, and carries the entry's state.
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
	c.Nonce, c.Misfire, c.Overlap = rand.Text(), MisfireOnce, OverlapAllow
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

// feature returns an optional interface of a store, or says what is missing.
func feature[T any](s Store, what string) (T, error) {
	f, ok := capability.As[T](s)
	if !ok {
		return f, fmt.Errorf("%w: this store cannot %s; memschedule, redisschedule, sqlschedule and natsschedule can", ErrUnsupported, what)
	}
	return f, nil
}
