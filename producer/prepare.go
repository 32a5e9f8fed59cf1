package producer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/bursts"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// staged is a task that is prepared for its publish.
type staged struct {
	own         task.Envelope  // stored here to save an allocation
	envelope    *task.Envelope // &own, unless a middleware sends another one
	effective   *task.Metadata // the envelope's metadata over the static configuration
	out         broker.Outgoing
	pending     task.Pending
	waiter      *waiter           // registered for the result; may be nil
	conditions  *task.Conditions  // may be nil
	conditioned *task.Conditioned // the task as Config.Jobs stores it, if it has conditions
	unique      *task.Unique      // may be nil
	burst       *bursts.Mark      // may be nil
	orderKey    string            // for an outbox; "": no order
	first       task.ID           // earlier submission that has the unique key or the burst; "": none
	followed    bool              // a step of a workflow: its waiter is registered separately
	inTx        bool              // stored in a transaction of the caller
	chosen      bool              // the caller chose the id and can submit it again
	shown       bool              // the arguments have no secrets, so previews show them
	producer    *Producer
	onEnd       *ending // functions of middleware to call at the end of the submission
}

// newStaged returns an empty staged task, which may be a recycled one. Call recycle after the end
// of the submission.
func (p *Producer) newStaged() *staged {
	if s, ok := p.blanks.Get().(*staged); ok {
		return s
	}
	return new(staged)
}

// recycle returns s to the pool for later submissions, since it is a quarter of the memory of a
// task. Do not use s any more. It does nothing if there is middleware, which may have kept the
// envelope. Routers and Formats must not keep it.
func (p *Producer) recycle(s *staged) {
	if p.send == nil {
		*s = staged{}
		p.blanks.Put(s)
	}
}

// prepare fills s, which is zero, with the task of c: it merges metadata, selects the queue and
// encodes the arguments. If c has no id, it makes a new id. It then runs the middleware, which
// registers the waiter and encodes the message (stage). It publishes nothing. It may block within
// ctx until results can be received.
//
// After an error no waiter is registered. The errors are those of Submit that are refused before
// any I/O, those of middleware, and those of register.
func (p *Producer) prepare(ctx context.Context, c *task.Call, s *staged) error {
	if err := task.CheckName(c.Name); err != nil {
		return err
	}
	s.producer = p
	e := &s.own
	e.ID, e.Root, e.Parent, e.Name, e.Base = c.ID, c.Root, c.Parent, c.Name, p.base
	e.SentAt, e.Origin, e.Correlation, e.Then, e.Else = now(), p.cfg.Report.NodeID, c.Correlation, c.Then, c.Else
	if c.Definition != nil {
		e.Meta = *c.Definition
	}
	if !c.Meta.IsZero() {
		e.Meta.Overlay(&c.Meta)
	}
	if !e.Meta.IsZero() {
		if err := e.Meta.Check(); err != nil {
			return fmt.Errorf("task %s: %w", c.Name, err)
		}
	}
	if e.ID == "" {
		id, err := p.ids.next()
		if err != nil {
			return err
		}
		e.ID = id
	} else if err := e.ID.Check(); err != nil {
		return err
	} else {
		s.chosen = true
	}
	if err := errors.Join(checkLinks(c.Then, 0), checkLinks(c.Else, 0)); err != nil {
		return fmt.Errorf("task %s: successor: %w", c.Name, err)
	}
	if len(c.Headers) > 0 {
		e.Headers = maps.Clone(c.Headers) // do not keep the caller's map
	}
	if m := c.Member; m != nil {
		e.Group, e.GroupIndex, e.GroupSize, e.Chord = m.Group, m.Index, m.Size, m.Chord
		if err := p.checkMember(m); err != nil {
			return fmt.Errorf("task %s: %w", c.Name, err)
		}
	}
	if c.Unique != nil {
		if err := p.checkUnique(c); err != nil {
			return fmt.Errorf("task %s: %w", c.Name, err)
		}
		s.unique = c.Unique
	}
	s.setEnvelope(e)
	if c.Burst != nil {
		if err := p.prepareBurst(c, s); err != nil {
			return fmt.Errorf("task %s: %w", c.Name, err)
		}
	}
	s.conditions, s.orderKey = c.Conditions, c.OrderKey
	queue, err := p.route(ctx, s)
	if err != nil {
		return err
	}
	if err := p.codec.CheckCompression(s.effective.Compression.Or("")); err != nil {
		return fmt.Errorf("task %s: %w", c.Name, err)
	}
	e.Args, e.ContentType, err = p.codec.Marshal(s.effective.Serializer.Or(""), c.Args)
	if err != nil {
		return fmt.Errorf("task %s: arguments: %w", c.Name, err)
	}
	if p.cfg.Report.Payloads {
		s.shown = !p.hasSecrets(c.Args)
	}
	return s.runMiddleware(ctx, queue, e)
}

// runMiddleware calls the middleware, which stages e. Without middleware it stages e itself.
// Returns the error of stage or middleware, or [ErrNotSent] if the middleware returned nil without
// staging. After an error of middleware, and [ErrNotSent], it releases the waiter and tells the
// middleware the outcome.
func (s *staged) runMiddleware(ctx context.Context, queue string, e *task.Envelope) error {
	send := s.producer.send
	if send == nil {
		return s.stage(ctx, queue, e)
	}
	err := send(middleware.WithConfirmer(ctx, s), queue, e)
	if err == nil && s.out.Message == nil {
		err = ErrNotSent
	}
	if err != nil {
		s.releaseWaiter() // a middleware may refuse a task that is staged already
		s.notifyEnd(err)
	}
	return err
}

// maxLinkDepth limits how deep successors are nested. Formats have limits of their own.
const maxLinkDepth = 1000

// checkLinks returns an error if a consumer could not send these successors: a bad name, queue, id
// or metadata, also of those that follow them, or a nesting deeper than maxLinkDepth. depth is the
// depth of links.
func checkLinks(links []task.Link, depth int) error {
	if depth > maxLinkDepth {
		return fmt.Errorf("%w: successors are nested deeper than %d", task.ErrBadMetadata, maxLinkDepth)
	}
	for i := range links {
		l := &links[i]
		errs := []error{l.Meta.Check()}
		if len(l.Members) == 0 {
			errs = append(errs, task.CheckName(l.Name))
		}
		if l.Queue != "" {
			errs = append(errs, task.CheckName(l.Queue))
		}
		if l.ID != "" {
			errs = append(errs, l.ID.Check())
		}
		errs = append(errs, checkLinks(l.Then, depth+1), checkLinks(l.Else, depth+1), checkLinks(l.Members, depth+1))
		if l.Chord != nil {
			errs = append(errs, checkLinks([]task.Link{*l.Chord}, depth+1))
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

// route returns the queue of the task: that of its metadata, else that of the Router. Returns the
// error of the Router, and one for an invalid name. Returns [broker.ErrUnsupported] for a priority
// on a queue without levels, unless the task has conditions: the priority then orders the jobs.
func (p *Producer) route(ctx context.Context, s *staged) (string, error) {
	queue, ok := s.effective.Queue.Get()
	if !ok {
		var err error
		if queue, err = p.cfg.Router.Route(ctx, s.envelope); err != nil {
			return "", fmt.Errorf("swarmiji: route %s: %w", s.envelope.Name, err)
		}
	}
	if err := task.CheckName(queue); err != nil {
		return "", fmt.Errorf("queue: %w", err)
	}
	if prio, ok := s.effective.Priority.Get(); ok && prio != task.DefaultPriority && len(p.levels[queue]) == 0 && s.conditions == nil {
		return "", fmt.Errorf("priority %d on queue %q, which is not declared with levels (Config.Queues): %w", prio, queue, broker.ErrUnsupported)
	}
	return queue, nil
}

// setEnvelope makes e the envelope to send. It sets s.effective to its metadata, merged over the
// static configuration.
func (s *staged) setEnvelope(e *task.Envelope) {
	s.envelope, s.effective = e, &e.Meta
	if e.Base != nil {
		merged := task.Merge(*e.Base, e.Meta)
		s.effective = &merged
	}
}

// stageFromContext is the innermost sender of the middleware: it stages the task of the context,
// which runMiddleware has set, as e for queue. Returns an error if a middleware dropped that
// context.
func stageFromContext(ctx context.Context, queue string, e *task.Envelope) error {
	c, _ := middleware.ConfirmerFrom(ctx)
	s, ok := c.(*staged)
	if !ok {
		return fmt.Errorf("swarmiji: a send middleware dropped the context of %s", e.Name)
	}
	return s.stage(ctx, queue, e)
}

// stage registers the waiter, encodes the message of e for queue, and stores it in s.out. It
// publishes nothing. It checks the queue and the envelope again, since middleware may have changed
// them. A task with conditions is prepared for Config.Jobs. It may block within ctx until results
// can be received.
//
// Returns an error for a second call, for a task that cannot be encoded or have its conditions, and
// of register. After an error no waiter stays registered.
func (s *staged) stage(ctx context.Context, queue string, e *task.Envelope) error {
	p := s.producer
	if s.out.Message != nil {
		return fmt.Errorf("swarmiji: task %s was staged twice", e.ID)
	}
	if p.send != nil {
		if err := task.CheckName(queue); err != nil {
			return fmt.Errorf("queue: %w", err)
		}
		s.setEnvelope(e)
	}
	if err := s.checkMostOnce(); err != nil {
		return fmt.Errorf("task %s: %w", e.Name, err)
	}
	if s.conditions != nil {
		if err := s.beginConditioned(); err != nil {
			return fmt.Errorf("task %s: %w", e.Name, err)
		}
	}
	if !s.followed {
		if err := p.registerResult(ctx, s); err != nil {
			return err
		}
	}
	m, err := p.codec.Encode(queue, e)
	if err != nil {
		s.releaseWaiter()
		return fmt.Errorf("task %s: %w", e.Name, err)
	}
	if p.base != nil { // Formats see only the envelope; the static configuration is applied here.
		m.Priority = s.effective.Priority.Or(task.DefaultPriority)
		m.Key, m.Weight = s.effective.FairnessKey.Or(""), s.effective.FairnessWeight.Or(0)
		if !wire.Awaited(e) {
			m.Expires = s.effective.Expires.Or(time.Time{})
		}
	}
	s.out = broker.Outgoing{Queue: queue, Message: m, At: s.effective.NotBefore.Or(time.Time{}), OrderKey: s.orderKey}
	wire.StampHeld(m, wire.HeaderHeld, s.out.At)
	if s.conditioned != nil {
		if err := s.finishConditioned(); err != nil {
			s.releaseWaiter()
			return fmt.Errorf("task %s: %w", e.Name, err)
		}
	}
	return nil
}

// registerResult makes the handle of the task and registers its waiter, before anything is
// published. It sets s.pending and s.waiter; the waiter may be nil. It sets the reply address of
// the envelope if a result is awaited, or may be by the tasks that follow. Returns the errors of
// awaitResult.
func (p *Producer) registerResult(ctx context.Context, s *staged) error {
	how := sent
	if s.inTx {
		how = transactional
	}
	pending, w, err := p.awaitResult(ctx, s.envelope.ID, s.effective, how)
	if err != nil {
		return err
	}
	s.waiter, s.pending = w, pending
	// the tasks that follow inherit it
	if w != nil || p.cfg.Results != nil && wire.Followed(s.envelope) {
		s.envelope.ReplyTo = p.cfg.Report.NodeID
	}
	return nil
}

// awaitResult returns the handle of a task and registers a waiter with its store, as register does.
// The waiter is nil if the result is ignored or no store is configured; the handle then has its
// outcome already. Returns [task.ErrBadMetadata] for an unknown store and the errors of register.
func (p *Producer) awaitResult(ctx context.Context, id task.ID, effective *task.Metadata, how submission) (task.Pending, *waiter, error) {
	if effective.IgnoreResult.Or(false) {
		return &resolved{id: id}, nil, nil
	}
	store, err := p.store(effective.ResultStore.Or(""))
	if err != nil {
		return nil, nil, err
	}
	if store == nil {
		return &resolved{id: id, err: task.ErrNoResult}, nil, nil
	}
	w, err := p.inbox[store].register(ctx, id, p.codec, how)
	if err != nil {
		return nil, nil, err
	}
	return w, w, nil
}

// store returns the store with this name, or Config.Results for "", which may be nil. Returns
// [task.ErrBadMetadata] for an unknown name.
func (p *Producer) store(name string) (resultstore.ResultStore, error) {
	if name == "" {
		return p.cfg.Results, nil
	}
	store, ok := p.cfg.Stores[name]
	if !ok {
		return nil, fmt.Errorf("%w: result store %q is not configured", task.ErrBadMetadata, name)
	}
	return store, nil
}

// releaseWaiter releases the waiter of a task that was not sent, and forgets it. It does nothing
// without a waiter.
func (s *staged) releaseWaiter() {
	if s.waiter != nil {
		s.waiter.inbox.release(s.waiter)
		s.waiter = nil
	}
}
