package workflow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// The gatherer learns the end of a group's member when its result is stored, before its message is
// acknowledged. It selects one member as the decider of the group. The consumer that settles the
// decider sends the tasks that follow the group, before the acknowledgement. If the decider is
// settled again, it sends them again.
//
// These tasks are therefore sent at least once, under one id. A broker that does not compare ids
// may queue several copies. Gatherer.Begin remembers the copy that begins first, and consumers drop
// the others. The name of a copy stays with its message through all redeliveries and retries.

// errNoGatherer is the error of a group in a consumer without a gatherer.
var errNoGatherer = fmt.Errorf("%w: groups need a result store that can gather, or consumer.Config.Gatherer", broker.ErrUnsupported)

// reportMember reports the end of a group's member to the gatherer, the store of groups. e is the
// envelope of the member. The gatherer names one member as the decider of the group: the last one
// to end, or with the policy FailFast the first one to fail. If e is the decider, sendFollowers
// adds the task that follows the group to the tasks to send.
//
// It does nothing if no task follows the group or f.stopped is set. It repeats the report after
// errors. Special cases:
//
//   - Without a gatherer it calls NoGatherer, and the following task fails, once for the group.
//   - The gatherer refuses the report as malformed: that is logged, and nothing follows.
//   - The result is too large for the gatherer: it reports the member as failed with
//     [task.ErrBadResult].
//   - The report is given up, or its record cannot be encoded: it sets f.stopped, and the task is
//     delivered again or fails.
func (f *Sender) reportMember(e *task.Envelope, end ending) {
	if e.Chord == nil || f.stopped {
		return
	}
	c := f.c
	if c.Gatherer == nil {
		f.run.NoGatherer()
		if e.GroupIndex == 0 { // once per group
			f.failUnsent(c.Codec.FollowGroup(e, f.queue, wire.Given{}).Envelope, errNoGatherer)
		}
		return
	}
	a := resultstore.Arrival{Group: e.Group, Index: e.GroupIndex, Size: e.GroupSize, TTL: f.t.TTL, Wait: c.GroupWait}
	a.Record = resultstore.Record{ID: e.ID, Name: utf.Cut(e.Name, 255), State: task.StateSucceeded, ContentType: end.given.ContentType, Result: end.given.Data}
	if end.cause != nil {
		a.Record.State, a.Record.Error = end.state, end.cause
		a.Record.ContentType, a.Record.Result = "", nil
		a.Decides = e.Chord.Policy == task.FailFast
	}
	var g resultstore.Gathered
	refused := false
	unfit := c.Codec.ProtectMember(&a.Record, f.t.Compression, a.Group, a.Index)
	ok := f.run.Step("end of a group's member", func(ctx context.Context) (err error) {
		if unfit != nil {
			return fmt.Errorf("%w: %w", ErrUnsendable, unfit)
		}
		g, err = c.Gatherer.Arrive(ctx, a)
		if refused = errors.Is(err, resultstore.ErrMalformed) || errors.Is(err, task.ErrBadID); refused {
			f.run.Log(slog.LevelError, "the gatherer refused a member of a group", slog.String("group", string(a.Group)), slog.Any("error", err))
			return nil
		}
		if errors.Is(err, resultstore.ErrTooLarge) && a.Record.Result != nil {
			a.Record = resultstore.Record{ID: e.ID, Name: a.Record.Name, State: task.StateFailed, Error: task.Remote(fmt.Errorf("%w: %w", task.ErrBadResult, err))}
			a.Decides = e.Chord.Policy == task.FailFast
			unfit = c.Codec.ProtectMember(&a.Record, f.t.Compression, a.Group, a.Index)
		}
		return err
	})
	if f.stopped = f.stopped || !ok; f.stopped || refused {
		return
	}
	if c.Counted != nil && c.Counts.due(e.Group, &g) {
		c.Counted(e, g)
	}
	if g.Decider != e.GroupIndex {
		return
	}
	f.sendFollowers(e, g)
}

// sendFollowers adds the task that follows the group of e to the tasks to send, with the results of
// the members as its argument. If the results cannot be passed on, it records the failure of that
// task; it logs that unless a member failed. If a read was given up, it only sets f.stopped.
func (f *Sender) sendFollowers(e *task.Envelope, g resultstore.Gathered) {
	value, err := f.results(e, g)
	if f.stopped {
		return
	}
	s := f.c.Codec.FollowGroup(e, f.queue, wire.Given{Value: value})
	if failed, ok := errors.AsType[*memberFailure](err); ok {
		f.failSuccessor(s.Envelope, ending{cause: failed.cause, state: failed.state})
		return
	}
	if err != nil {
		f.run.Log(slog.LevelError, "the results of a group cannot be passed on", slog.String("group", string(e.Group)), slog.Any("error", err))
		f.failSuccessor(s.Envelope, ending{cause: task.Remote(err), state: task.StateFailed})
		return
	}
	f.add(s)
}

// groupError is an error that fails a group. Repeating does not help.
type groupError struct{ cause error }

// Error returns the text of the cause.
func (e *groupError) Error() string { return e.cause.Error() }

// Unwrap returns the cause.
func (e *groupError) Unwrap() error { return e.cause }

// results reads the results of the members of e's group. It returns them as the argument of the
// next task, in the form that the group's policy asks for:
//
//   - Refer: a reference to the group; no result is read.
//   - Collect: the list of results and failures.
//   - Ignore: the list of results, without the failed members.
//   - FailFast and others: the list of results, or the error of a failed member.
//
// An error fails the group. If a read is given up, it sets f.stopped; the returned value must then
// be ignored.
func (f *Sender) results(e *task.Envelope, g resultstore.Gathered) (wire.Value, error) {
	policy, codec := e.Chord.Policy, f.c.Codec
	if policy == task.Refer {
		return codec.Reference(task.Members[any]{Group: e.Group, Size: g.Size, Failed: g.Failed})
	}
	if policy == task.FailFast && g.Failed > 0 { // the decider is the member that failed first
		own, err := f.page(e.Group, e.GroupIndex, 1)
		if err != nil || f.stopped {
			return wire.Value{}, err
		}
		if len(own) > 0 && own[0].State != task.StateSucceeded {
			return wire.Value{}, memberError(&own[0])
		}
	}
	join := codec.Join(policy == task.Collect)
	for from := 0; from < g.Size; {
		page, err := f.page(e.Group, from, g.Size-from)
		if err != nil || f.stopped {
			return wire.Value{}, err
		}
		if len(page) == 0 {
			return wire.Value{}, fmt.Errorf("%w: the gatherer no longer has the members of group %s", task.ErrNoResult, e.Group)
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

// page reads up to limit members of the group, beginning with index from, and repeats the read
// until it succeeds. It may return fewer, see readPage. permanentErr is an error that fails the
// group, since repeating does not help. If the read is given up, it sets f.stopped.
func (f *Sender) page(group task.ID, from, limit int) (page []resultstore.Record, permanentErr error) {
	ok := f.run.Step("results of a group", func(ctx context.Context) (err error) {
		page, err = f.c.readPage(ctx, group, from, limit)
		if p, ok := errors.AsType[*groupError](err); ok {
			permanentErr = p.cause
			return nil
		}
		return err
	})
	f.stopped = f.stopped || !ok
	return page, permanentErr
}

// addMember adds the end of a member to join as the policy says. The result of a success is added.
// A failure is left out with the policy Ignore and added with Collect. With other policies it is
// returned as the error, which fails the group. An end that cannot be added fails the group too:
// its error is returned.
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
	return memberError(rec)
}

// memberFailure is the error of a group that fails because of a member.
type memberFailure struct {
	cause *task.RemoteError
	state task.State // the state of the tasks that do not run
}

// Error returns the text of the member's error.
func (e *memberFailure) Error() string { return e.cause.Error() }

// memberError returns the error of a group that fails because of the member with this record.
func memberError(rec *resultstore.Record) error {
	return &memberFailure{causeOf(rec).OfStep(rec.Name, rec.ID), skippedState(rec.State)}
}

// causeOf returns the error of a member that did not succeed: the recorded one, else one that names
// its state.
func causeOf(rec *resultstore.Record) *task.RemoteError {
	if rec.Error != nil {
		return rec.Error
	}
	return &task.RemoteError{Type: string(rec.State), Message: "swarmiji: task " + string(rec.State)}
}
