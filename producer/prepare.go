package producer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// staged is a task that is ready to be published.
type staged struct {
	own        task.Envelope  // here to save an allocation
	envelope   *task.Envelope // own, unless a middleware sends another one
	effective  *task.Metadata // the envelope's, over the static configuration
	out        broker.Outgoing
	pending    task.Pending
	waiter     *waiter           // registered for the result; nil for none
	conditions *task.Conditions  // nil for none
	kept       *task.Conditioned // what is kept of a task with conditions
	unique     *task.Unique      // nil for none
	first      task.ID           // of the earlier submission that has the unique key; "" for none
	followed   bool              // a step of a workflow: its waiter, if it has one, is registered already
	chosen     bool              // the caller chose the id, and can submit it again
	shown      bool              // previews show the arguments: they are of a type without secrets
	producer   *Producer
	ended      *ending // what middleware wants called when the submission has ended
}

// blank returns an empty staged task. Whoever stages it hands it to reuse when the submission has ended.
func (p *Producer) blank() *staged {
	if s, ok := p.blanks.Get().(*staged); ok {
		return s
	}
	return new(staged)
}

// reuse takes back a staged task of which nothing is needed any more: it is a quarter of the memory that a task takes. A
// middleware may have kept the envelope; Router and Format are told not to.
func (p *Producer) reuse(s *staged) {
	if p.send == nil {
		*s = staged{}
		p.blanks.Put(s)
	}
}

// prepare does everything that needs no I/O: merge, route, serialize, middleware, register the waiter, encode. s is zero.
func (p *Producer) prepare(ctx context.Context, c *task.Call, s *staged) error {
	if err := task.CheckName(c.Name); err != nil {
		return err
	}
	s.producer = p
	e := &s.own
	*e = task.Envelope{
		ID: c.ID, Root: c.Root, Parent: c.Parent, Name: c.Name, Base: p.base,
		SentAt: now(), Origin: p.cfg.Report.NodeID, Correlation: c.Correlation, Then: c.Then, Else: c.Else,
	}
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
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("swarmiji: make an id: %w", err)
		}
		e.ID = task.ID(id.String())
	} else if err := e.ID.Check(); err != nil {
		return err
	} else {
		s.chosen = true
	}
	if err := errors.Join(checkLinks(c.Then, 0), checkLinks(c.Else, 0)); err != nil {
		return fmt.Errorf("task %s: successor: %w", c.Name, err)
	}
	if len(c.Headers) > 0 {
		e.Headers = maps.Clone(c.Headers) // the caller's map stays the caller's
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
	s.take(e)
	s.conditions = c.Conditions
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
	return s.pass(ctx, queue, e)
}

// pass takes e through the middleware and stages it.
func (s *staged) pass(ctx context.Context, queue string, e *task.Envelope) error {
	send := s.producer.send
	if send == nil {
		return s.stage(ctx, queue, e)
	}
	err := send(middleware.WithConfirmer(ctx, s), queue, e)
	if err == nil && s.out.Message == nil {
		err = ErrNotSent
	}
	if err != nil {
		s.forget() // a middleware may refuse what was staged already
		s.end(err)
	}
	return err
}

// maxLinkDepth bounds how deep successors nest; formats have bounds of their own besides.
const maxLinkDepth = 1000

// checkLinks refuses successors that no consumer could send.
func checkLinks(links []task.Link, depth int) error {
	if depth > maxLinkDepth {
		return fmt.Errorf("%w: successors nest deeper than %d", task.ErrBadMetadata, maxLinkDepth)
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

// route picks the queue: the metadata's, else the Router's. The priority of a task with conditions has a meaning without levels, too: that of its job.
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

// take makes e the envelope that is sent.
func (s *staged) take(e *task.Envelope) {
	s.envelope, s.effective = e, &e.Meta
	if e.Base != nil {
		merged := task.Merge(*e.Base, e.Meta)
		s.effective = &merged
	}
}

// stageFromContext is the innermost sender: it stages the task that prepare put into the context.
func stageFromContext(ctx context.Context, queue string, e *task.Envelope) error {
	c, _ := middleware.ConfirmerFrom(ctx)
	s, ok := c.(*staged)
	if !ok {
		return fmt.Errorf("swarmiji: a send middleware dropped the context of %s", e.Name)
	}
	return s.stage(ctx, queue, e)
}

// stage registers the waiter and encodes the message. Middleware may have changed queue and envelope; what it made of them
// is checked once more.
func (s *staged) stage(ctx context.Context, queue string, e *task.Envelope) error {
	p := s.producer
	if s.out.Message != nil {
		return fmt.Errorf("swarmiji: task %s was staged twice", e.ID)
	}
	if p.send != nil {
		if err := task.CheckName(queue); err != nil {
			return fmt.Errorf("queue: %w", err)
		}
		s.take(e)
	}
	if s.conditions != nil {
		if err := s.draft(); err != nil {
			return fmt.Errorf("task %s: %w", e.Name, err)
		}
	}
	if !s.followed {
		if err := p.await(ctx, s); err != nil {
			return err
		}
	}
	m, err := p.codec.Encode(queue, e)
	if err != nil {
		s.forget()
		return fmt.Errorf("task %s: %w", e.Name, err)
	}
	if p.base != nil { // formats see the envelope alone: what the static configuration sets counts here
		m.Priority = s.effective.Priority.Or(task.DefaultPriority)
		if !wire.Awaited(e) {
			m.Expires = s.effective.Expires.Or(time.Time{})
		}
	}
	s.out = broker.Outgoing{Queue: queue, Message: m, At: s.effective.NotBefore.Or(time.Time{})}
	wire.StampHeld(m, wire.HeaderHeld, s.out.At)
	if s.kept != nil {
		if err := s.fill(); err != nil {
			s.forget()
			return fmt.Errorf("task %s: %w", e.Name, err)
		}
	}
	return nil
}

// await makes the task's pending handle, and registers it with its store before anything is published.
func (p *Producer) await(ctx context.Context, s *staged) error {
	pending, w, err := p.awaitResult(ctx, s.envelope.ID, s.effective)
	if err != nil {
		return err
	}
	s.waiter, s.pending = w, pending
	if w != nil || p.cfg.Results != nil && wire.Followed(s.envelope) { // what follows inherits it
		s.envelope.ReplyTo = p.cfg.Report.NodeID
	}
	return nil
}

// awaitResult makes the handle of a task, and registers its waiter, if it needs one, with its store.
func (p *Producer) awaitResult(ctx context.Context, id task.ID, effective *task.Metadata) (task.Pending, *waiter, error) {
	if effective.IgnoreResult.Or(false) {
		return &settled{id: id}, nil, nil
	}
	store, err := p.store(effective.ResultStore.Or(""))
	if err != nil {
		return nil, nil, err
	}
	if store == nil {
		return &settled{id: id, err: task.ErrNoResult}, nil, nil
	}
	w, err := p.inbox[store].register(ctx, id, p.codec)
	if err != nil {
		return nil, nil, err
	}
	return w, w, nil
}

// store returns the store of a name, nil for none configured at all.
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

// forget takes the waiter of a task back that was not sent.
func (s *staged) forget() {
	if s.waiter != nil {
		s.waiter.inbox.forget(s.waiter)
		s.waiter = nil
	}
}
