package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// The end of a group's member is told to the gatherer when its result is stored, and before its message is acknowledged. The
// gatherer names one member as the group's decider: whoever settles that one sends what follows, before the acknowledgement,
// and sends it again if it is settled again. So what follows is sent at least once, under one id, and several copies of it may
// be queued where the broker does not compare ids. Of these, the first that a consumer begins is the one that is run: Begin
// remembers its name, and the others are dropped. That name stays with its message through all redeliveries and retries.

// verbatim is a result that is handed on as it came.
type verbatim wire.Value

// gatherList is the handler of task.GatherName: its result are its arguments.
func gatherList(_ context.Context, r *task.Request) (any, error) {
	return verbatim{ContentType: r.ContentType, Data: r.Args}, nil
}

// errNoGatherer is what a group fails with that nobody can gather.
var errNoGatherer = fmt.Errorf("%w: groups need a result store that can gather, or consumer.Config.Gatherer", broker.ErrUnsupported)

// arrive tells the gatherer of the end of a member, which e is, and sends what follows its group if that is this member's to do.
func (f *following) arrive(e *task.Envelope, end ending) {
	if e.Chord == nil || f.stopped {
		return
	}
	c := f.queue.c
	if c.gather == nil {
		c.warnOnce("gatherer", "what follows a group fails, because nothing is configured that can gather", f.logAttrs()...)
		if e.GroupIndex == 0 { // once for the group
			f.unsent(c.codec.FollowGroup(e, f.queue.name, wire.Given{}).Envelope, errNoGatherer)
		}
		return
	}
	a := resultstore.Arrival{Group: e.Group, Index: e.GroupIndex, Size: e.GroupSize, TTL: f.gatherTTL(), Wait: c.cfg.Tuning.GroupWait}
	a.Record = resultstore.Record{ID: e.ID, Name: utf.Cut(e.Name, 255), State: task.StateSucceeded, ContentType: end.given.ContentType, Result: end.given.Data}
	if end.cause != nil {
		a.Record.State, a.Record.Error = end.state, end.cause
		a.Record.ContentType, a.Record.Result = "", nil
		a.Decides = e.Chord.Policy == task.FailFast
	}
	var g resultstore.Gathered
	refused := false
	unfit := c.codec.ProtectMember(&a.Record, f.request.Effective.Compression, a.Group, a.Index)
	ok := f.step("end of a group's member", func(ctx context.Context) (err error) {
		if unfit != nil {
			return fmt.Errorf("%w: %w", errUnsendable, unfit)
		}
		g, err = c.gather.Arrive(ctx, a)
		if refused = errors.Is(err, resultstore.ErrMalformed) || errors.Is(err, task.ErrBadID); refused {
			f.log(slog.LevelError, "the member of a group has no place in it", slog.String("group", string(a.Group)), slog.Any("error", err))
			return nil
		}
		if errors.Is(err, resultstore.ErrTooLarge) && a.Record.Result != nil {
			a.Record = resultstore.Record{ID: e.ID, Name: a.Record.Name, State: task.StateFailed, Error: task.Remote(fmt.Errorf("%w: %w", task.ErrBadResult, err))}
			a.Decides = e.Chord.Policy == task.FailFast
			unfit = c.codec.ProtectMember(&a.Record, f.request.Effective.Compression, a.Group, a.Index)
		}
		return err
	})
	if f.stopped = f.stopped || !ok; f.stopped || refused || g.Decider != e.GroupIndex {
		return
	}
	f.decide(e, g)
}

// gatherTTL is how long a decided group is kept after its last arrival, and how long it is
// remembered which copy of a task is run. It is not a result that is kept: a group whose members
// keep theirs for a minute may have one that takes an hour.
func (r *run) gatherTTL() time.Duration {
	return max(r.request.Effective.ResultTTL.Or(0), resultstore.DefaultGatherTTL)
}

// decide sends what follows the group of e, or fails it.
func (f *following) decide(e *task.Envelope, g resultstore.Gathered) {
	value, err := f.results(e, g)
	if f.stopped {
		return
	}
	s := f.queue.c.codec.FollowGroup(e, f.queue.name, wire.Given{Value: value})
	if err != nil {
		if _, remote := errors.AsType[*task.RemoteError](err); !remote {
			f.log(slog.LevelError, "the results of a group cannot be handed on", slog.String("group", string(e.Group)), slog.Any("error", err))
		}
		f.fails(s.Envelope, task.Remote(err))
		return
	}
	f.add(s)
}

// groupError is what makes a group fail; repeating does not mend it.
type groupError struct{ cause error }

func (e *groupError) Error() string { return e.cause.Error() }

func (e *groupError) Unwrap() error { return e.cause }

// results is what the group of e hands on. An error fails the group.
func (f *following) results(e *task.Envelope, g resultstore.Gathered) (wire.Value, error) {
	policy, codec := e.Chord.Policy, f.queue.c.codec
	if policy == task.Refer {
		return codec.Reference(task.Members[any]{Group: e.Group, Size: g.Size, Failed: g.Failed})
	}
	if policy == task.FailFast && g.Failed > 0 { // the decider is the one whose failure came first
		own, err := f.page(e.Group, e.GroupIndex, 1)
		if err != nil || f.stopped {
			return wire.Value{}, err
		}
		if len(own) > 0 && own[0].State != task.StateSucceeded {
			return wire.Value{}, causeOf(&own[0]).OfStep(own[0].Name, own[0].ID)
		}
	}
	join := codec.Join(policy == task.Collect)
	for from := 0; from < g.Size; {
		page, err := f.page(e.Group, from, g.Size-from)
		if err != nil || f.stopped {
			return wire.Value{}, err
		}
		if len(page) == 0 {
			return wire.Value{}, fmt.Errorf("%w: the store has forgotten members of group %s", task.ErrNoResult, e.Group)
		}
		for i := range page {
			if err := addMember(join, policy, &page[i]); err != nil {
				return wire.Value{}, err
			}
		}
		from += len(page)
	}
	return join.List()
}

// page reads members, until it has them. An error fails the group.
func (f *following) page(group task.ID, from, limit int) (page []resultstore.Record, permanentErr error) {
	ok := f.step("results of a group", func(ctx context.Context) (err error) {
		page, err = f.queue.c.readPage(ctx, group, from, limit)
		if p, ok := errors.AsType[*groupError](err); ok {
			permanentErr = p.cause
			return nil
		}
		return err
	})
	f.stopped = f.stopped || !ok
	return page, permanentErr
}

// addMember adds a member's end as the policy has it.
func addMember(join *wire.Joiner, policy task.Policy, rec *resultstore.Record) error {
	v := wire.Value{ContentType: rec.ContentType, Data: rec.Result}
	if rec.State == task.StateSucceeded {
		return join.Add(v, nil)
	}
	switch policy {
	case task.Ignore:
		return nil
	case task.Collect:
		failure := failureOf(rec.ID, causeOf(rec))
		return join.Add(wire.Value{}, &failure)
	}
	return causeOf(rec).OfStep(rec.Name, rec.ID)
}

// causeOf is the error of a member that did not succeed.
func causeOf(rec *resultstore.Record) *task.RemoteError {
	if rec.Error != nil {
		return rec.Error
	}
	return &task.RemoteError{Type: string(rec.State), Message: "swarmiji: task " + string(rec.State)}
}

// Bounds of a page of members: nobody knows how large they are before the first ones are read.
const (
	firstMembers = 16
	pageBytes    = 4 << 20
)

// readPage reads members, and opens what is sealed or compressed: up to limit of them, fewer where they are large, none only
// where there is none. What cannot be opened is a *groupError.
func (c *Consumer) readPage(ctx context.Context, group task.ID, from, limit int) ([]resultstore.Record, error) {
	var page []resultstore.Record
	size := 0
	for limit = min(limit, resultstore.MaxMembersPage); len(page) < limit && size < pageBytes; {
		want := firstMembers
		if n := len(page); n > 0 {
			want = max(1, (pageBytes-size)*n/max(size, 1))
		}
		want = min(want, limit-len(page))
		more, err := c.gather.Members(ctx, group, from+len(page), want)
		if err != nil {
			return nil, err
		}
		for i := range more {
			if err := c.codec.OpenMember(&more[i], group, from+len(page)+i); err != nil {
				return nil, &groupError{fmt.Errorf("member %d of group %s: %w", from+len(page)+i, group, err)}
			}
			size += len(more[i].Result)
		}
		if page = append(page, more...); len(more) < want {
			break
		}
	}
	return page, nil
}

// readMembers reads a group for a handler.
func (c *Consumer) readMembers(ctx context.Context, group task.ID, from, limit int) ([]task.MemberResult, error) {
	page, err := c.readPage(ctx, group, from, limit)
	members := make([]task.MemberResult, len(page))
	for i := range page {
		rec := &page[i]
		members[i] = task.MemberResult{ContentType: rec.ContentType, Result: rec.Result}
		if rec.State != task.StateSucceeded {
			failure := failureOf(rec.ID, causeOf(rec))
			members[i].Failure = &failure
		}
	}
	return members, err
}

// elsewhere reports whether a task that a consumer has sent is not to be run from this message: another copy of it is, or it
// is not known yet. Without a gatherer only a copy that has ended is known, by its record.
func (r *run) elsewhere() bool {
	c := r.queue.c
	if c.gather == nil {
		return r.request.Deliveries == 1 && r.resume()
	}
	ctx, cancel := context.WithTimeout(c.settle, loadTimeout)
	defer cancel()
	first, err := r.beginCopy(ctx)
	switch {
	case err == nil && first:
		return false
	case err == nil:
		c.settling.Go(r.drop)
	default:
		c.settling.Go(r.askWhichCopy)
	}
	return true
}

func (r *run) beginCopy(ctx context.Context) (bool, error) {
	return r.queue.c.gather.Begin(ctx, wire.LifeID(r.request.ID, r.request.Life), r.request.Copy, r.gatherTTL())
}

// askWhichCopy goes on with elsewhere until the gatherer answers. The task is not started before.
func (r *run) askWhichCopy() {
	c := r.queue.c
	ctx, cancel := context.WithTimeout(c.settle, c.cfg.Tuning.StoreRetry)
	defer cancel()
	var first bool
	if !r.persist(ctx, "question which copy is run", func(ctx context.Context) (err error) {
		first, err = r.beginCopy(ctx)
		return err
	}) {
		return
	}
	if !first {
		r.drop()
		return
	}
	r.queue.consider(r)
}

// drop removes a copy of a task that is run from another one, or that an earlier life left behind.
func (r *run) drop() {
	r.queue.c.cfg.Metrics.Rejected.Inc(1)
	r.log(slog.LevelInfo, "another copy of this task is run; this one is dropped")
	r.insist("acknowledgement", r.delivery.Ack)
}
