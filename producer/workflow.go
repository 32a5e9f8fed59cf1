package producer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// errNoGatherer refuses a group without a gatherer.
var errNoGatherer = fmt.Errorf("%w: groups need a gatherer: use a result store that is a resultstore.Gatherer, or set Config.Gatherer of producer and consumers, or add results=redis://host or another store to the URL", broker.ErrUnsupported)

// gathers reports whether a gatherer is configured, the store that collects the results of groups.
func (p *Producer) gathers() bool {
	return resultstore.GathererOf(p.cfg.Gatherer, p.cfg.Results) != nil
}

// checkMember returns an error if the group of m is malformed. If a task follows the group, it also
// returns an error for a malformed following task and without a gatherer.
func (p *Producer) checkMember(m *task.Membership) error {
	if m.Chord == nil {
		return m.Group.Check()
	}
	if !p.gathers() {
		return errNoGatherer
	}
	return errors.Join(m.Group.Check(), checkLinks([]task.Link{*m.Chord}, 0))
}

// SubmitWork submits a workflow: it publishes the first steps and blocks until the broker has
// confirmed them. It returns the handles of the steps with futures, in the order of the workflow.
// It implements [task.WorkSubmitter]; [task.Step.Submit] and [task.Stream] call it.
//
// Besides the errors of Submit it returns [broker.ErrUnsupported] for a group without a configured
// gatherer. It returns serializer.ErrValue or [broker.ErrTooLarge] for a workflow that does not fit
// into its first messages.
//
// After an error some members of a first group may have been sent. The task after the group does
// not run, except perhaps after [broker.ErrIndeterminate] if the message in question was queued.
func (p *Producer) SubmitWork(ctx context.Context, w task.Work) ([]task.Pending, error) {
	if err := p.begin(); err != nil {
		return nil, err
	}
	defer p.inFlight.Done()
	if err := p.declareWithin(ctx); err != nil {
		return nil, err
	}
	return (&builder{ctx: ctx, p: p, work: &w}).submit()
}

// submit sends the first steps and returns the handles of SubmitWork, with its errors.
func (b *builder) submit() ([]task.Pending, error) {
	link, err := b.build()
	if err != nil {
		return nil, err
	}
	pending, waiters, err := b.await()
	if err == nil {
		if b.work.Stream != nil {
			err = b.stream(&link)
		} else {
			err = b.sendAll(&link)
		}
	}
	if err != nil {
		for _, w := range waiters {
			w.inbox.release(w)
		}
		return nil, fmt.Errorf("swarmiji: submit workflow: %w", err)
	}
	return pending, nil
}

// builder converts a workflow to links and sends the first messages.
type builder struct {
	ctx  context.Context
	p    *Producer
	work *task.Work
	// store stores the first messages in a transaction of the caller. nil: they are published.
	store  func(ms []broker.Outgoing) error
	id     task.ID   // of the workflow, which is that of its last step
	ids    int       // number of ids derived from it
	steps  []step    // steps with futures
	queue  string    // of the first step
	own    own       // what single steps set
	groups []task.ID // groups before the next step
}

// step is a step whose id is known.
type step struct {
	id     task.ID
	meta   task.Metadata
	behind []task.ID // groups that must be decided before it
}

// build returns the link of the whole workflow and collects the steps with futures in b. A link is
// a step with all steps that follow it, as messages carry it. It sends nothing. Returns an error
// for conditions, unique keys and other parts that workflows cannot have.
func (b *builder) build() (task.Link, error) {
	if b.work.Call.Conditions != nil {
		return task.Link{}, fmt.Errorf("swarmiji: submit workflow: %w", errStepConditions)
	}
	if b.work.Call.Unique != nil {
		return task.Link{}, fmt.Errorf("swarmiji: submit workflow: %w", errUniqueStep)
	}
	if b.work.Call.Burst != nil {
		return task.Link{}, fmt.Errorf("swarmiji: submit workflow: %w", errBurstStep)
	}
	b.own.collect(b.work.Node)
	n, err := b.named(b.work.Node)
	if err != nil {
		return task.Link{}, fmt.Errorf("swarmiji: submit workflow: %w", err)
	}
	if b.work.Stream != nil && (!n.Each || len(n.Members) != 1 || n.Next == nil) {
		return task.Link{}, errors.New("swarmiji: submit workflow: a stream needs a group with one template and a step that follows it")
	}
	l, err := b.link(n, place{main: true})
	if err != nil {
		return task.Link{}, fmt.Errorf("swarmiji: submit workflow: %w", err)
	}
	return l, nil
}

// named returns a copy of n with the workflow's id at its last step, and sets b.id to that id. It
// is the id of the call, else that of the last step, else a new one. The ids of the other steps are
// derived from it, so that a workflow that is submitted again under its id has the same steps.
func (b *builder) named(n *task.Node) (*task.Node, error) {
	last := n
	for last.Next != nil {
		last = last.Next
	}
	if b.id = b.work.Call.ID; b.id == "" {
		b.id = last.Call.ID
	}
	if b.id == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("make an id: %w", err)
		}
		b.id = task.ID(id.String())
	}
	return withLastID(n, b.id), nil
}

// withLastID returns a copy of the sequence n in which the last step has this id. n does not
// change.
func withLastID(n *task.Node, id task.ID) *task.Node {
	c := *n
	if n.Next != nil {
		c.Next = withLastID(n.Next, id)
	} else {
		c.Call.ID = id
	}
	return &c
}

// place is the position of a node in a workflow.
type place struct {
	main     bool // it has a future
	template bool // inside of a Map: each copy gets a derived id
	onError  bool // runs after a failure: the time limit of the workflow does not apply
	depth    int
}

// link converts a node and all nodes that follow it to a link. It selects the queue of each step,
// encodes its arguments, and appends the steps with futures to b.steps. Returns an error for a step
// that cannot be sent: too deep, without a name, with conditions or a unique key, or with bad
// metadata or arguments.
func (b *builder) link(n *task.Node, at place) (task.Link, error) {
	if at.depth++; at.depth > maxLinkDepth {
		return task.Link{}, fmt.Errorf("%w: the workflow has more than %d steps in sequence", task.ErrBadMetadata, maxLinkDepth)
	}
	if len(n.Members) > 0 {
		return b.group(n, at)
	}
	if n.Call.Name == "" {
		return task.Link{}, fmt.Errorf("%w: a step has no name, or a group has no members; use task.Map for a list that may be empty", task.ErrBadMetadata)
	}
	if n.Call.Conditions != nil {
		return task.Link{}, fmt.Errorf("step %s: %w", utf.Cut(n.Call.Name, 128), errStepConditions)
	}
	if n.Call.Unique != nil {
		return task.Link{}, fmt.Errorf("step %s: %w", utf.Cut(n.Call.Name, 128), errUniqueStep)
	}
	if n.Call.Burst != nil {
		return task.Link{}, fmt.Errorf("step %s: %w", utf.Cut(n.Call.Name, 128), errBurstStep)
	}
	l := task.Link{Name: n.Call.Name, Feed: n.Feed, Field: n.Field}
	if n.Call.Definition != nil {
		l.Meta = *n.Call.Definition
	}
	l.Meta.Overlay(&n.Call.Meta)
	if !at.onError {
		b.limit(&l.Meta)
	}
	b.own.set(&l, &n.Call, &b.work.Call)
	if err := errors.Join(task.CheckName(l.Name), l.Meta.Check()); err != nil {
		return l, fmt.Errorf("step %s: %w", utf.Cut(l.Name, 128), err)
	}
	err := b.p.codec.CheckCompression(b.effective(&l.Meta).Compression.Or(""))
	if err == nil {
		l.ID, err = b.stepID(n.Call.ID, at)
	}
	if err != nil {
		return l, fmt.Errorf("step %s: %w", l.Name, err)
	}
	if err = b.route(&l); err != nil {
		return l, err
	}
	if n.Feed != task.FeedWhole {
		if l.Args, l.ContentType, err = b.p.codec.Marshal(b.effective(&l.Meta).Serializer.Or(""), n.Call.Args); err != nil {
			return l, fmt.Errorf("step %s: arguments: %w", l.Name, err)
		}
	}
	if at.main {
		b.steps = append(b.steps, step{l.ID, *b.effective(&l.Meta), b.groups})
	}
	return l, b.follow(n, &l, at)
}

// limit sets the time limit of the workflow, the expiry of the call, in the metadata of a step,
// unless the step expires earlier.
func (b *builder) limit(m *task.Metadata) {
	until := b.work.Call.Meta.Expires.Or(time.Time{})
	if own := m.Expires.Or(time.Time{}); !until.IsZero() && (own.IsZero() || until.Before(own)) {
		m.Expires = task.Set(until)
	}
}

// follow adds the nodes that follow n to its link l: successors and error tasks, which have no
// futures, and last the next step. Returns the errors of link.
func (b *builder) follow(n *task.Node, l *task.Link, at place) error {
	side := place{template: at.template, depth: at.depth, onError: at.onError}
	failed := side
	failed.onError = true
	for _, list := range []struct {
		nodes []*task.Node
		links *[]task.Link
		at    place
	}{{n.Then, &l.Then, side}, {n.Else, &l.Else, failed}} {
		for _, node := range list.nodes {
			link, err := b.link(node, list.at)
			if err != nil {
				return err
			}
			*list.links = append(*list.links, link)
		}
	}
	if n.Next == nil {
		return nil
	}
	next, err := b.link(n.Next, at)
	next.Last = true
	l.Then = append(l.Then, next)
	return err
}

// group converts a group and the nodes that follow it to a link. Without a next step it adds a task
// that returns the results of the group. It adds the group to b.groups, for which the steps behind
// it wait. Returns the errors of link, and errNoGatherer without a gatherer.
func (b *builder) group(n *task.Node, at place) (task.Link, error) {
	if !b.p.gathers() {
		return task.Link{}, errNoGatherer
	}
	l := task.Link{Each: n.Each, Policy: n.Policy, Feed: n.Feed}
	var err error
	if l.ID, err = b.stepID("", at); err != nil {
		return l, err
	}
	inside := at
	inside.template = at.template || n.Each
	inside.main = at.main && !inside.template
	before, all := b.groups, b.groups
	for _, m := range n.Members {
		b.groups = before
		member, err := b.link(m, inside)
		if err != nil {
			return l, err
		}
		l.Members = append(l.Members, member)
		all = append(slices.Clip(all), b.groups[len(before):]...)
	}
	if b.groups = all; l.ID != "" {
		b.groups = append(slices.Clip(all), l.ID)
	}
	next := n.Next
	if next == nil {
		next = &task.Node{Call: task.Call{Name: task.GatherName, ID: n.Call.ID}}
	}
	chord, err := b.link(next, at)
	l.Chord = &chord
	return l, err
}

// stepID returns the id of a step: the chosen one, else one derived from the workflow's id and the
// count b.ids. For a step without a future and a chosen id it returns "". Returns [task.ErrBadID]
// for a malformed chosen id, and for one inside of a Map.
func (b *builder) stepID(chosen task.ID, at place) (task.ID, error) {
	switch {
	case chosen != "" && at.template:
		return "", fmt.Errorf("%w: %q is set inside of a Map, whose members need different ids", task.ErrBadID, chosen)
	case chosen != "":
		return chosen, chosen.Check()
	case at.template || !at.main:
		return "", nil
	}
	b.ids++
	return task.Derive(b.id, "step"+strconv.Itoa(b.ids)), nil
}

// effective returns m merged over the static configuration of the producer. m does not change.
func (b *builder) effective(m *task.Metadata) *task.Metadata {
	if b.p.base == nil {
		return m
	}
	merged := task.Merge(*b.p.base, *m)
	return &merged
}

// route sets the queue of the step l. The queue of the first step is remembered in b.queue; the
// task that only gathers results gets that one. Returns an error if the step cannot be encoded or
// the Router fails.
func (b *builder) route(l *task.Link) error {
	e := &task.Envelope{ID: l.ID, Name: l.Name, Meta: l.Meta, Base: b.p.base, Headers: wire.StepHeaders(b.work.Call.Headers, l)}
	if err := serializer.CheckEnvelope(e); err != nil {
		return fmt.Errorf("step %s: %w: %w", l.Name, serializer.ErrValue, err)
	}
	s := &staged{producer: b.p}
	s.setEnvelope(e)
	// routers do not know it; every consumer runs it
	if _, chosen := l.Meta.Queue.Get(); l.Name == task.GatherName && !chosen {
		l.Queue = b.queue
		return nil
	}
	var err error
	if l.Queue, err = b.p.route(b.ctx, s); b.queue == "" {
		b.queue = l.Queue
	}
	return err
}

// await registers the waiters of all steps with futures before anything is sent. It returns a
// handle for each and the waiters. It blocks within the default timeout until results can be
// received. After an error it returns no handles, but the waiters so far, which the caller must
// release.
func (b *builder) await() ([]task.Pending, []*waiter, error) {
	ctx, cancel := b.p.withTimeout(b.ctx)
	defer cancel()
	how := sent
	if b.store != nil {
		how = transactional
	}
	pending := make([]task.Pending, len(b.steps))
	var waiters []*waiter
	for i := range b.steps {
		p, w, err := b.p.awaitResult(ctx, b.steps[i].id, &b.steps[i].meta, how)
		if err != nil {
			return nil, waiters, err
		}
		if pending[i] = p; w != nil {
			w.inbox.awaitGroups(w, b.steps[i].behind)
			waiters = append(waiters, w)
		}
	}
	return pending, waiters, nil
}

var _ task.WorkSubmitter = (*Producer)(nil)
