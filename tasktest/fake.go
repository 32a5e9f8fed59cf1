package tasktest

import (
	"context"
	"crypto/rand"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// Fake is a task.Submitter, task.BatchSubmitter and task.WorkSubmitter that only records its calls,
// for tests of units that submit. The zero value is ready. It needs no bubble. It checks names,
// metadata and arguments as a producer does. Of a workflow it records each step, with zero
// arguments where they come from an earlier step. Safe for concurrent use.
type Fake struct {
	// Answer is called for each call that is taken, and gives its result or its failure. nil: no
	// result ever comes, and the state of all tasks is task.StatePending. Steps of workflows get no
	// answer.
	Answer func(c task.Call) (result any, err error)

	mu   sync.Mutex
	fail []error
	sent []sent
}

// FailNext has the next Submit, SubmitAll or SubmitWork return err and note nothing. Called again,
// it is for the one after that.
func (f *Fake) FailNext(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = append(f.fail, err)
}

// Submit implements task.Submitter.
func (f *Fake) Submit(ctx context.Context, c task.Call) (task.Pending, error) {
	if err := f.failure(ctx); err != nil {
		return nil, err
	}
	return f.take(c)
}

// SubmitAll implements task.BatchSubmitter. It takes all calls or none.
func (f *Fake) SubmitAll(ctx context.Context, calls []task.Call) ([]task.Pending, error) {
	if err := f.failure(ctx); err != nil {
		return make([]task.Pending, len(calls)), err
	}
	all := make([]task.Pending, 0, len(calls))
	for _, c := range calls {
		p, err := f.take(c)
		if err != nil {
			return make([]task.Pending, len(calls)), err
		}
		all = append(all, p)
	}
	return all, nil
}

// SubmitWork implements task.WorkSubmitter.
func (f *Fake) SubmitWork(ctx context.Context, w task.Work) ([]task.Pending, error) {
	if err := f.failure(ctx); err != nil {
		return nil, err
	}
	quiet := &Fake{}
	var all []task.Pending
	for n := range steps(w.Node) {
		c := n.Call
		if n == w.Node && n.Feed == task.FeedWhole {
			c.Args = w.Args
		}
		p, err := quiet.take(c)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = append(f.sent, quiet.sent...)
	return all, nil
}

// steps goes through the steps of a workflow in the order in which they were composed.
func steps(n *task.Node) iter.Seq[*task.Node] {
	return func(yield func(*task.Node) bool) { walk(n, yield) }
}

func walk(n *task.Node, yield func(*task.Node) bool) bool {
	if n == nil {
		return true
	}
	if n.Call.Name != "" && !yield(n) {
		return false
	}
	for _, list := range [][]*task.Node{n.Members, n.Then, n.Else} {
		for _, m := range list {
			if !walk(m, yield) {
				return false
			}
		}
	}
	return walk(n.Next, yield)
}

func (f *Fake) failure(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.fail) == 0 {
		return nil
	}
	err := f.fail[0]
	f.fail = f.fail[1:]
	return err
}

// take notes one call as its message would have it.
func (f *Fake) take(c task.Call) (task.Pending, error) {
	if err := task.CheckName(c.Name); err != nil {
		return nil, err
	}
	codec, err := wire.New(serializer.Wire{})
	if err != nil {
		return nil, err
	}
	e := &task.Envelope{ID: c.ID, Root: c.Root, Parent: c.Parent, Name: c.Name, Correlation: c.Correlation, Headers: c.Headers, SentAt: time.Now()}
	if c.Definition != nil {
		e.Meta = *c.Definition
	}
	e.Meta.Overlay(&c.Meta)
	if err := e.Meta.Check(); err != nil {
		return nil, fmt.Errorf("task %s: %w", c.Name, err)
	}
	if e.ID == "" {
		e.ID = task.ID(rand.Text())
	}
	if e.Args, e.ContentType, err = codec.Marshal(e.Meta.Serializer.Or(""), c.Args); err != nil {
		return nil, fmt.Errorf("task %s: arguments: %w", c.Name, err)
	}
	var at time.Time
	if t, ok := e.Meta.NotBefore.Get(); ok {
		at = t
	}
	p := &pending{id: e.ID, done: make(chan struct{}), codec: codec}
	if f.Answer != nil {
		p.answer(f.Answer(c))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = append(f.sent, sent{queue: queueOf(c), at: time.Now(), delay: until(at), envelope: e, codec: codec})
	return p, nil
}

func (f *Fake) submissions() []sent {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]sent(nil), f.sent...)
}

// pending is a task that a Fake has taken.
type pending struct {
	id    task.ID
	done  chan struct{} // closed with the answer
	codec *wire.Codec
	data  []byte
	ct    string
	err   error
}

func (p *pending) answer(result any, err error) {
	defer close(p.done)
	if err != nil {
		p.err = task.Remote(err)
		return
	}
	p.data, p.ct, p.err = p.codec.Marshal("", result)
}

// ID implements task.Pending.
func (p *pending) ID() task.ID { return p.id }

// Done implements task.Pending.
func (p *pending) Done() <-chan struct{} { return p.done }

// Result implements task.Pending.
func (p *pending) Result(ctx context.Context, v any) error {
	select {
	case <-p.done:
	case <-ctx.Done():
		return fmt.Errorf("tasktest: a Fake has no answer to task %s: %w", p.id, context.Cause(ctx))
	}
	if p.err != nil || v == nil {
		return p.err
	}
	return p.codec.Unmarshal(p.ct, p.data, v)
}

// State implements task.Pending.
func (p *pending) State(context.Context) (task.State, error) {
	select {
	case <-p.done:
	default:
		return task.StatePending, nil
	}
	if p.err != nil {
		return task.StateFailed, nil //nolint:nilerr // the error is the outcome of the task
	}
	return task.StateSucceeded, nil
}

var (
	_ task.Submitter      = (*Fake)(nil)
	_ task.BatchSubmitter = (*Fake)(nil)
	_ task.WorkSubmitter  = (*Fake)(nil)
)
