package workflow

import (
	"log/slog"
	"strconv"

	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// Limits of one call of the broker: number and bytes of successors. Each successor carries a copy
// of the tasks that follow it.
const (
	publishAtOnce = 500
	publishBytes  = 4 << 20
)

// outgoing is a successor that is being sent.
type outgoing struct {
	queue    string
	envelope *task.Envelope
	after    func(error) // tells the hooks the outcome
}

// ending is the end of a task.
type ending struct {
	given wire.Given        // result for the next task after a success
	cause *task.RemoteError // nil: the task succeeded
	state task.State        // state of a failed task
}

// handleEnd adds the tasks that follow the task of e to those to send; add may publish them at
// once. e is the envelope of the ended task of this run, or of a task that could not be sent. After
// a success these are its successors. After a failure it calls handleFailure.
//
// It reports the end to the group of the task, unless a successor (Link.Last) becomes the group's
// member in its stead.
func (f *Sender) handleEnd(e *task.Envelope, end ending) {
	parent := *e
	parent.SentAt, parent.Origin = f.at, f.c.Node
	if end.cause != nil {
		f.handleFailure(&parent, end)
		return
	}
	inGroup := membershipOf(e)
	handedOn := false
	for i := range e.Then {
		l := &e.Then[i]
		var m *task.Membership
		if l.Last {
			m, handedOn = inGroup, true
		}
		f.c.Codec.Expand(&parent, l, thenLabel(i), f.queue, end.given, m, f.add)
	}
	if !handedOn {
		f.reportMember(&parent, end)
	}
}

// handleFailure handles the end of a failed task. It adds the error tasks of the task to those to
// send, with the failure as their argument. It records the failure of the steps that would have
// followed the task, and reports the failure to its group. If the failure cannot be encoded, it
// logs that and adds the error tasks with an empty argument.
func (f *Sender) handleFailure(parent *task.Envelope, end ending) {
	if len(parent.Else) > 0 {
		given, err := f.c.Codec.Fail(parent.ContentType, failureOf(parent.ID, end.cause))
		if err != nil {
			f.run.Log(slog.LevelError, "a failure cannot be passed to the error tasks", slog.Any("error", err))
		}
		for i := range parent.Else {
			label := "else" + strconv.Itoa(i)
			f.c.Codec.Expand(parent, elseLink(parent, parent.Else[i], label), label, f.queue, given, nil, f.add)
		}
	}
	f.skip(parent, parent.Then, ending{cause: end.cause.OfStep(parent.Name, parent.ID), state: skippedState(end.state)})
	f.reportMember(parent, end)
}

// thenLabel returns the label of the successor with index i. The id of the successor is derived
// from it.
func thenLabel(i int) string { return "then" + strconv.Itoa(i) }

// failureOf returns the failure of the task id as error tasks and handlers of groups receive it.
func failureOf(id task.ID, cause *task.RemoteError) task.Failure {
	return task.Failure{ID: id, Type: cause.Type, Message: cause.Message, Stack: cause.Stack}
}

// membershipOf returns the membership of the task in its group: group, index, size and following
// task. It returns nil if the task is in no group, or no task follows the group.
func membershipOf(e *task.Envelope) *task.Membership {
	if e.Chord == nil {
		return nil
	}
	return &task.Membership{Group: e.Group, Index: e.GroupIndex, Size: e.GroupSize, Chord: e.Chord}
}

// add adds a successor to those to send. When publishAtOnce have been added, it publishes all of
// them and blocks until that is done. A successor that cannot be sent (s.Err) counts as a failed
// task. It returns false after a step was given up (f.stopped): then add no more.
func (f *Sender) add(s wire.Successor) bool {
	if s.Err != nil {
		f.failUnsent(s.Envelope, s.Err)
		return !f.stopped
	}
	f.outs = append(f.outs, outgoing{queue: s.Queue, envelope: s.Envelope})
	if len(f.outs) >= publishAtOnce {
		f.flush()
	}
	return !f.stopped
}

// failUnsent logs a successor that cannot be sent because of cause, and handles it as a failed
// task, see failSuccessor.
func (f *Sender) failUnsent(e *task.Envelope, cause error) {
	f.run.Log(slog.LevelError, "a successor cannot be sent; it fails", slog.String("successor", string(e.ID)), slog.Any("error", cause))
	f.failSuccessor(e, ending{cause: task.Remote(cause), state: task.StateFailed})
}

// failSuccessor records that a successor ended by end before it could run, and handles the tasks
// that follow it, see handleEnd. It blocks while it stores the record. If the record cannot be
// stored, it sets f.stopped and ends.
func (f *Sender) failSuccessor(e *task.Envelope, end ending) {
	f.record(e.ID, e.Name, e, &e.Meta, end)
	if !f.stopped {
		f.handleEnd(e, end)
	}
}

// skippedState returns the state of a task that does not run because a task before it ended in the
// given state: revoked if that one was revoked, else failed.
func skippedState(before task.State) task.State {
	if before == task.StateRevoked {
		return before
	}
	return task.StateFailed
}

// skip records end for all steps in links, which do not run because parent failed. Their futures
// wait for these records. It ends early if a record cannot be stored (f.stopped).
func (f *Sender) skip(parent *task.Envelope, links []task.Link, end ending) {
	wire.EachStep(links, func(l *task.Link) bool {
		f.record(l.ID, l.Name, parent, &l.Meta, end)
		return !f.stopped
	})
}

// record saves end as the end of the task id, which did not run. from is its envelope or that of
// its parent, meta its own metadata. If the save is given up, it sets f.stopped.
func (f *Sender) record(id task.ID, name string, from *task.Envelope, meta *task.Metadata, end ending) {
	f.save(id, name, from, meta, resultstore.Record{State: end.state, Generation: wire.FirstGeneration(from.Life), Deliveries: 1, Error: end.cause, FinishedAt: f.at})
}

// elseLink returns the link of an error task of parent. label names the task among the error tasks.
// In a first life of parent this is l itself. In a later life (after its dead letter was requeued)
// the error task gets another id, so that it runs again.
func elseLink(parent *task.Envelope, l task.Link, label string) *task.Link {
	if parent.Life > 0 {
		if l.ID == "" {
			l.ID = task.Derive(parent.ID, label)
		}
		l.ID = wire.LifeID(l.ID, parent.Life)
	}
	return &l
}
