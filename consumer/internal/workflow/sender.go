package workflow

import (
	"log/slog"
	"strconv"

	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// The most successors, and their most bytes, in one call of the broker. Each carries a copy of the
// tasks that follow it.
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
	given wire.Given        // its result for the next task, if it succeeded
	cause *task.RemoteError // nil: it succeeded
	state task.State        // its state if it failed
}

// ended handles the end of the task of e: this run, or a task that could not be sent.
func (f *Sender) ended(e *task.Envelope, end ending) {
	parent := *e
	parent.SentAt, parent.Origin = f.at, f.c.Node
	if end.cause != nil {
		f.failing(&parent, end)
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
		f.arrive(&parent, end)
	}
}

func (f *Sender) failing(parent *task.Envelope, end ending) {
	if len(parent.Else) > 0 {
		given, err := f.c.Codec.Fail(parent.ContentType, failureOf(parent.ID, end.cause))
		if err != nil {
			f.run.Log(slog.LevelError, "a failure cannot be handed on", slog.Any("error", err))
		}
		for i := range parent.Else {
			label := "else" + strconv.Itoa(i)
			f.c.Codec.Expand(parent, elseLink(parent, parent.Else[i], label), label, f.queue, given, nil, f.add)
		}
	}
	f.skip(parent, parent.Then, end.cause.OfStep(parent.Name, parent.ID))
	f.arrive(parent, end)
}

func thenLabel(i int) string { return "then" + strconv.Itoa(i) }

func failureOf(id task.ID, cause *task.RemoteError) task.Failure {
	return task.Failure{ID: id, Type: cause.Type, Message: cause.Message, Stack: cause.Stack}
}

func membershipOf(e *task.Envelope) *task.Membership {
	if e.Chord == nil {
		return nil
	}
	return &task.Membership{Group: e.Group, Index: e.GroupIndex, Size: e.GroupSize, Chord: e.Chord}
}

// add adds a successor. It returns false if no further one is useful.
func (f *Sender) add(s wire.Successor) bool {
	if s.Err != nil {
		f.unsent(s.Envelope, s.Err)
		return !f.stopped
	}
	f.outs = append(f.outs, outgoing{queue: s.Queue, envelope: s.Envelope})
	if len(f.outs) >= publishAtOnce {
		f.flush()
	}
	return !f.stopped
}

// unsent handles a successor that cannot be sent: it has failed.
func (f *Sender) unsent(e *task.Envelope, cause error) {
	f.run.Log(slog.LevelError, "a successor cannot be sent and fails", slog.String("successor", string(e.ID)), slog.Any("error", cause))
	f.fails(e, task.Remote(cause))
}

// fails records that a successor failed before it could run, and handles the tasks that follow it.
func (f *Sender) fails(e *task.Envelope, cause *task.RemoteError) {
	f.record(e.ID, e.Name, e, &e.Meta, cause)
	if !f.stopped {
		f.ended(e, ending{cause: cause, state: task.StateFailed})
	}
}

// skip records the failure of steps that do not run since an earlier one failed. Their futures wait
// for it.
func (f *Sender) skip(parent *task.Envelope, links []task.Link, cause *task.RemoteError) {
	wire.EachStep(links, func(l *task.Link) bool {
		f.record(l.ID, l.Name, parent, &l.Meta, cause)
		return !f.stopped
	})
}

// record saves the failure of a task that did not run. from is its envelope or that of its parent.
func (f *Sender) record(id task.ID, name string, from *task.Envelope, meta *task.Metadata, cause *task.RemoteError) {
	f.save(id, name, from, meta, resultstore.Record{State: task.StateFailed, Generation: wire.FirstGeneration(from.Life), Deliveries: 1, Error: cause, FinishedAt: f.at})
}

// elseLink returns the link of an error task of parent. Each life of parent gives it another id.
func elseLink(parent *task.Envelope, l task.Link, label string) *task.Link {
	if parent.Life > 0 {
		if l.ID == "" {
			l.ID = task.Derive(parent.ID, label)
		}
		l.ID = wire.LifeID(l.ID, parent.Life)
	}
	return &l
}
