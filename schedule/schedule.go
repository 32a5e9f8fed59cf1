package schedule

import (
	"context"
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
	// Store holds the entries. The Schedule does not close it.
	Store Store
	// Name is the name of the schedule. The ids of its tasks are derived from it, so all processes
	// must use the same name.
	//
	// Default: the name of the Store, if the Store has one ([Named]).
	Name string
	// Results is the result store in which listeners or consumers record the results of runs.
	// [OverlapSkip] needs it, and [Schedule.Runs] reads it. The Schedule does not write to it.
	Results resultstore.ResultStore
	// Location is the time zone of phrases: "at 7pm" means 7pm in this zone. Default: UTC.
	Location *time.Location
	// EscapeSlashes writes "/" as "\/" in payloads, as data.json of Clojure does. A Go program and a
	// Clojure program that add the same entry then produce the same bytes, so the entry exists once.
	EscapeSlashes bool
}

// Schedule adds entries to a named schedule, and lists, pauses, resumes and removes them. A
// [Listener] runs the entries. Make a Schedule with [New]. Safe for concurrent use.
//
// All times are times of the store's clock.
type Schedule struct {
	c    Config
	name string
}

// New returns a Schedule and does no I/O. A nil Config.Location becomes UTC.
//
// Its error joins all problems: Store is nil, or the name is missing, invalid, or not the store's
// own name. A result store that stores no results is [ErrUnsupported].
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

var errReplies = fmt.Errorf("%w: the result store only sends results back to producers and stores none; "+
	"configure one that stores them, such as redisresults", ErrUnsupported)

// nameOf returns the name of the schedule: the configured name, or the name that the store has.
//
// Returns an error if the store is nil, if neither has a name, if both have different names, or if
// the name is invalid.
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
		return "", errors.New("schedule: the schedule has no name: set Name, because the store has none")
	case name == "":
		name = own
	case own != "" && own != name:
		return "", fmt.Errorf("schedule: Name is %q, but the name of the store's schedule is %q", name, own)
	}
	return name, CheckName(name)
}

// Name returns the schedule's name.
func (s *Schedule) Name() string { return s.name }

// Option changes the content of an entry before it is added.
type Option func(*Content)

// WithNonce adds a text to the content of an entry. Two entries that differ only in their nonce are
// two entries; without a nonce they would be one.
func WithNonce(nonce string) Option { return func(c *Content) { c.Nonce = nonce } }

// WithMisfire sets the policy for runs whose time passed while no listener was running. Default:
// [MisfireOnce].
func WithMisfire(m Misfire) Option { return func(c *Content) { c.Misfire = m } }

// WithOverlap sets the policy for a run whose predecessor has not ended. Default: [OverlapAllow].
func WithOverlap(o Overlap) Option { return func(c *Content) { c.Overlap = o } }

// Added is the result of adding one entry.
type Added struct {
	// ID is the id of the entry.
	ID string
	// New reports whether the entry was added. It is false if an entry with this id already existed.
	New bool
	// Changed reports whether an existing entry was changed, which only [WithName] does.
	Changed bool
	// Next is the first due time of the entry. It is set even if New is false. For an entry with a
	// name it is the due time after the call; zero: the entry is paused or its last run has not ended.
	Next time.Time
	// Spec is the parsed form of the When.
	Spec when.Spec
	// Echo describes in one English sentence how the When was understood.
	Echo string
}

// Add adds an entry that runs a call at the times of at:
//
//	s.Add(ctx, schedule.At("7pm tomorrow"), clearCache.Call(task.None{}))
//	s.Add(ctx, schedule.In("5 minutes"), activate.Call("tracy@example.com"))
//	s.Add(ctx, schedule.Every("weekday at 9am"), report.Call(args),
//		schedule.WithMisfire(schedule.MisfireSkip))
//
// Arguments are stored as unencrypted JSON.
//
// The same task with the same arguments, options and times is the same entry. If it already exists,
// Add changes nothing and Added.New is false. There is one exception: an existing entry that is not
// paused and has neither a due time nor a claim gets its due time back.
//
// Two adds of [Now] within one second are also the same entry; see [WithNonce]. Entries for [Now]
// become due in the order in which they were added.
//
// With [WithName] the name is the identity of the entry: Add changes an entry of this name.
//
// The entry stores the metadata that was set on the call, but not the metadata of the task's
// definition.
//
// Add stores nothing if it returns [when.ErrBadSpec], [task.ErrBadArgs], task.ErrBadMetadata,
// [ErrBadEntry], [ErrTaken] or [ErrUnsupported]. After [ErrUnavailable] the entry may have been
// stored; call Add again. With an error, Added is empty.
func (s *Schedule) Add(ctx context.Context, at When, call task.Call, opts ...Option) (Added, error) {
	added, err := s.AddAll(ctx, at, []task.Call{call}, opts...)
	if err != nil {
		return Added{}, err
	}
	return added[0], nil
}

// AddAll adds one entry for each call, as [Schedule.Add] does, with one call of Store.Add. Before
// that it reads the store's clock, and looks for entries of older versions. It returns one Added
// for each call, in the same order. Options apply to all calls. With [WithName] it takes one call.
//
// Returns errors of the store, and an error for a time, call or option that is not valid. Then no
// entry is added, except that after [ErrUnavailable] some may have been added. With an error the
// list is nil.
func (s *Schedule) AddAll(ctx context.Context, at When, calls []task.Call, opts ...Option) ([]Added, error) {
	if name := nameIn(opts); name != "" {
		if len(calls) != 1 {
			return nil, fmt.Errorf("%w: %d calls cannot have the name %q", ErrBadEntry, len(calls), name)
		}
		added, err := s.addNamed(ctx, Definition{Name: name, At: at, Call: calls[0], Options: opts})
		return []Added{added}, err
	}
	entries, added, err := s.prepare(ctx, at, calls, opts)
	if err != nil {
		return nil, err
	}
	return noteNew(added, entries, func(es []Entry) ([]bool, error) { return s.c.Store.Add(ctx, es) })
}

// noteNew calls add with the entries, and returns added with its results in the fields New. Returns
// the error of add.
func noteNew(added []Added, entries []Entry, add func([]Entry) ([]bool, error)) ([]Added, error) {
	is, err := add(entries)
	if err != nil {
		return nil, err
	}
	for i := range added {
		added[i].New = is[i]
	}
	return added, nil
}

// prepare returns the entries of AddAll, and their results without New. It stores nothing, but
// reads the store's clock and entries of older versions. Returns the errors of AddAll, except those
// of adding.
func (s *Schedule) prepare(ctx context.Context, at When, calls []task.Call, opts []Option) ([]Entry, []Added, error) {
	now, err := s.now(ctx)
	if err != nil {
		return nil, nil, err
	}
	now = now.In(s.c.Location)
	spec, first, said, err := at.spec(now)
	if err != nil {
		return nil, nil, err
	}
	if said == "" {
		said = echo(spec, first, now)
	}
	atOnce := !first.After(now) && after(spec, first).IsZero()
	entries, added := make([]Entry, len(calls)), make([]Added, len(calls))
	for i := range calls {
		e := Entry{Next: first, AtOnce: atOnce}
		if e.ID, e.Payload, err = s.payload(ctx, &calls[i], spec, opts, atOnce); err != nil {
			return nil, nil, err
		}
		entries[i] = e
		added[i] = Added{ID: e.ID, Next: first, Spec: spec, Echo: said}
	}
	return entries, added, nil
}

// now asks the store for the current time of its clock and waits for the answer. It returns the
// store's error.
func (s *Schedule) now(ctx context.Context) (time.Time, error) {
	b, err := s.c.Store.Due(ctx, 0)
	return b.Now, err
}

// payload returns the payload of an entry for call, with opts applied, and the payload's id. It
// returns an error if the call or an option is not valid for an entry.
//
// Older versions wrote the payload in another form. If the store is a [Lister] and holds the entry
// in that form, payload returns that form and its id. Then the entry is not added twice. An error
// of this read is returned. It does not look for the old form if atOnce is true: the entry runs
// once, at once.
func (s *Schedule) payload(ctx context.Context, call *task.Call, spec when.Spec, opts []Option, atOnce bool) (id string, payload []byte, err error) {
	c, err := s.content(call, spec, opts)
	if err != nil {
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

// content returns the checked content of an entry for call, with opts applied. Returns an error if
// the call or an option is not valid for an entry.
func (s *Schedule) content(call *task.Call, spec when.Spec, opts []Option) (*Content, error) {
	if err := checkCall(call); err != nil {
		return nil, err
	}
	args, err := encodeArgs(call.Args)
	if err != nil {
		return nil, err
	}
	c := &Content{Job: call.Name, Args: args, When: spec.String(), Meta: call.Meta, Headers: call.Headers, Correlation: call.Correlation}
	for _, o := range opts {
		o(c)
	}
	return c, errors.Join(c.check(), s.checkOverlap(c))
}

// checkOverlap returns [ErrUnsupported] if the overlap policy needs results that are not recorded:
// Config.Results is nil, or the call's metadata set IgnoreResult. With [OverlapAllow] it returns
// nil.
func (s *Schedule) checkOverlap(c *Content) error {
	switch {
	case c.Overlap == OverlapAllow:
	case s.c.Results == nil:
		return fmt.Errorf("%w: OverlapSkip needs a result store; set Results of the Schedule and of its listeners", ErrUnsupported)
	case c.Meta.IgnoreResult.Or(false):
		return fmt.Errorf("%w: OverlapSkip needs the task's result, but the task sets IgnoreResult", ErrUnsupported)
	}
	return nil
}

// Item is an entry with its decoded content.
type Item struct {
	Entry
	// Content is the decoded payload; nil if the payload cannot be read.
	Content *Content
	// Spec holds the times of the entry; nil if they cannot be read.
	Spec when.Spec
	// Problem is the reason why the payload or the spec cannot be read; nil if both were read. A
	// listener that cannot read an entry does not run it. The entry stays in the store until it is
	// removed.
	Problem error
}

// item decodes the payload and the spec of an entry. An error becomes Item.Problem; the part that
// could not be read is nil.
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

// Get reads the entry with this id from the store. If its payload cannot be read, Get returns no
// error: see Item.Problem. Returns [ErrNotFound] if the entry does not exist, and [ErrUnsupported]
// if the store is not a [Lister].
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

// listPage is the number of entries that List reads with one call to the store.
const listPage = 500

// List iterates over all entries, in no particular order. An entry that changes during the
// iteration may appear twice. An entry whose payload cannot be read appears with its Item.Problem.
//
// Each iteration reads the store again, page by page. After an error, which comes with an empty
// Item, the iteration ends. The error is [ErrUnsupported] if the store is not a [Lister], else that
// of the store.
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

// Next returns up to n run times of an entry in ascending order. The first may lie in the past if
// the entry is overdue. It changes nothing.
//
// For an entry without a due time, for example a paused one, Next calculates the times from now on.
// Returns no times if n is 0 or less, or if the entry has no further run.
//
// Returns [ErrNotFound] if the entry does not exist, [ErrUnsupported] if the store is not a
// [Lister], and Item.Problem if the times cannot be read.
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

// feature returns the optional interface T of a store or of a store that it wraps. If neither has
// T, the error wraps [ErrUnsupported] and contains what: the operation that is missing.
func feature[T any](s Store, what string) (T, error) {
	f, ok := capability.As[T](s)
	if !ok {
		return f, fmt.Errorf("%w: this store cannot %s; memschedule, redisschedule, sqlschedule and natsschedule can", ErrUnsupported, what)
	}
	return f, nil
}
