package deadletter

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// ErrNoRetry is wrapped by the errors about a workflow that cannot be retried.
var ErrNoRetry = errors.New("deadletter: the workflow cannot be retried")

// MaxRetryLetters limits the number of failed tasks of a workflow that is retried.
const MaxRetryLetters = 100_000

// Retry runs the failed tasks of a workflow again. root is the id of the workflow, which is that of
// its last step. queues are the queues of its steps. Each dead letter with this root begins a new
// life, as with [Letters.Requeue]. Tasks that have succeeded do not run again, and steps that were
// skipped run with the results that the workflow has.
//
// A group that failed because of members continues in a new group: Retry copies the results of its
// succeeded members to that group, and the failed members join it. Late reports to the old group
// change nothing. The letters of such members are refused, and stay, in these cases:
//
//   - Not all members of the group have ended. Repeat the call when they have.
//   - A failed member left no dead letter in queues, or was revoked or expired.
//   - The group continued without the member, since it collects or ignores failures.
//   - The store has forgotten the group, or a message is sealed and the key is missing.
//
// The letters of a canceled workflow are refused too, as far as [Config].Revoked knows.
//
// Returns [ErrNoRetry] with the reason for a workflow without a dead letter, for one whose record
// is revoked, and for more than [MaxRetryLetters] letters. It reads all letters of the queues,
// twice. After a crash or an error call it again; repeating all steps is safe. The report is also
// valid with an error.
func (l *Letters) Retry(ctx context.Context, root task.ID, queues ...string) (Report, error) {
	var r Report
	if err := root.Check(); err != nil {
		return r, err
	}
	for _, q := range queues {
		if err := task.CheckName(q); err != nil {
			return r, err
		}
	}
	if err := l.canceled(ctx, root); err != nil {
		return r, err
	}
	p := &plan{l: l, letters: make(map[task.ID]int), groups: make(map[task.ID]*failedGroup), callbacks: make(map[task.ID]*failedGroup)}
	for _, q := range queues {
		if err := l.List(ctx, q, Filter{Root: root}, p.add); err != nil {
			return r, err
		}
	}
	switch {
	case len(p.letters) == 0:
		return r, l.noLetters(ctx, root, queues)
	case p.full:
		return r, fmt.Errorf("%w: it has more than %d dead letters", ErrNoRetry, MaxRetryLetters)
	}
	if err := p.copyResults(ctx); err != nil {
		return r, err
	}
	for _, q := range queues {
		err := l.scan(ctx, q, Filter{Root: root}, func(letter *Letter) (broker.DeadAction, error) {
			if life, known := p.letters[letter.ID]; !known || life != letter.Life {
				return broker.DeadKeep, nil // it failed again meanwhile
			}
			ctx, cancel := perLetter(ctx)
			defer cancel()
			next, steps, err := p.prepare(ctx, q, letter)
			return l.begin(ctx, q, letter, next, steps, err, &r)
		})
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

// canceled returns ErrNoRetry for a workflow whose record says revoked, and errors of the store.
func (l *Letters) canceled(ctx context.Context, root task.ID) error {
	rec, found, err := l.load(ctx, root)
	if err == nil && found && rec.State == task.StateRevoked {
		return fmt.Errorf("%w: it was canceled; submit it again", ErrNoRetry)
	}
	return err
}

// load returns the record of a task from the first store that has it, and whether there is one. It
// skips stores that only carry replies.
func (l *Letters) load(ctx context.Context, id task.ID) (rec resultstore.Record, found bool, err error) {
	ctx, cancel := perLetter(ctx)
	defer cancel()
	stores := []resultstore.ResultStore{l.cfg.Results}
	for _, s := range l.cfg.Stores {
		stores = append(stores, s)
	}
	for _, s := range stores {
		if s == nil || resultstore.RepliesOnly(s) {
			continue
		}
		rec, err := s.Load(ctx, id)
		if !errors.Is(err, resultstore.ErrNotFound) {
			return rec, err == nil, err
		}
	}
	return rec, false, nil
}

// noLetters returns ErrNoRetry with the reason why a workflow has no dead letters.
func (l *Letters) noLetters(ctx context.Context, root task.ID, queues []string) error {
	rec, found, err := l.load(ctx, root)
	in := "no dead letter of it is in " + utf.Cut(strings.Join(queues, ", "), 256)
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("%w: %s, and there is no record of %s; check the id, the namespace and the queues", ErrNoRetry, in, root)
	case rec.State != task.StateFailed && rec.State != task.StateExpired:
		return fmt.Errorf("%w: %s, and its state is %s", ErrNoRetry, in, rec.State)
	}
	_ = l.codec.OpenRecord(&rec) // for the name of the step; a sealed one is left out
	step := string(root)
	if rec.Error != nil && rec.Error.StepID != "" {
		step = rec.Error.Step + " " + string(rec.Error.StepID)
	}
	return fmt.Errorf("%w: step %s failed, but %s: name the queue of the step, or the letter was dropped or not kept", ErrNoRetry, step, in)
}

// plan is the first pass of Retry: the letters of a workflow and the groups that failed because of
// them.
type plan struct {
	l         *Letters
	letters   map[task.ID]int // the lives of the failed tasks
	full      bool
	groups    map[task.ID]*failedGroup
	callbacks map[task.ID]*failedGroup // by the id of the task that follows the group
}

// failedGroup is a group that contains a failed task, or the callback of such a group.
type failedGroup struct {
	id      task.ID
	policy  task.Policy
	outer   task.ID // the group of its callback; "": none
	size    int
	checked bool
	err     error // the result of check, or of the copy
}

// add adds a letter and its groups to the plan. It returns false if the plan is full.
func (p *plan) add(letter *Letter) bool {
	if p.full = len(p.letters) >= MaxRetryLetters; p.full {
		return false
	}
	e := letter.Task
	p.letters[letter.ID] = letter.Life
	for id, chord := e.Group, e.Chord; id != "" && chord != nil && p.groups[id] == nil; id, chord = chord.Group, chord.Chord {
		g := &failedGroup{id: id, policy: chord.Policy, outer: chord.Group}
		p.groups[id], p.callbacks[chord.ID] = g, g
	}
	return true
}

// copyResults copies the succeeded members of the groups that can be retried to their next groups.
// A repeated copy changes nothing. Returns errors of the stores.
func (p *plan) copyResults(ctx context.Context) error {
	var why refusal
	for _, g := range p.groups {
		err := p.check(ctx, g)
		if err == nil {
			err = p.copy(ctx, g)
			g.err = err
		}
		if err != nil && !errors.As(err, &why) {
			return fmt.Errorf("deadletter: retry: group %s: %w", g.id, err)
		}
	}
	return nil
}

// prepare returns the message of the new life of a letter, and the skipped steps whose records it
// reopens. The message of a member whose end was counted is moved to the next groups. It returns a
// refusal, or errors of the stores.
func (p *plan) prepare(ctx context.Context, queue string, letter *Letter) (next *broker.Message, steps []task.Link, err error) {
	m, e := letter.Message, letter.Task
	next, steps = wire.NewLife(m, rand.Text()), e.Then
	err = p.l.allowed(ctx, queue, letter)
	if counted := errCounted(""); !errors.As(err, &counted) || e.Chord == nil {
		return next, steps, err
	}
	for g := p.groups[e.Group]; g != nil; g = p.groups[g.outer] {
		if err := p.check(ctx, g); err != nil {
			return next, steps, err
		}
	}
	for chord := e.Chord; chord != nil; chord = chord.Chord {
		callback := *chord
		callback.Chord = nil
		steps = append(steps[:len(steps):len(steps)], callback)
	}
	moved, f, err := p.l.codec.Decode(m)
	if err != nil {
		return next, steps, refusal(err.Error())
	}
	arrived, err := p.l.codec.OpenArrived(home(queue), moved)
	if err != nil {
		return next, steps, refusal("its message must be changed for another group, but cannot be opened: " + err.Error())
	}
	wire.MoveToNextGroup(moved)
	if m, err = p.l.codec.Rewrite(m, f, home(queue), moved, arrived); err != nil {
		return next, steps, refusal(err.Error())
	}
	return wire.NewLife(m, rand.Text()), steps, nil
}

// check returns a refusal if the next group of g could not be decided, or errors of the stores. It
// examines each group once.
func (p *plan) check(ctx context.Context, g *failedGroup) error {
	if !g.checked {
		g.checked = true
		g.err = p.examine(ctx, g)
	}
	return g.err
}

func (p *plan) examine(ctx context.Context, g *failedGroup) error {
	if p.l.gather == nil {
		return refusal("no gatherer is configured")
	}
	call, cancel := perLetter(ctx)
	defer cancel()
	state, err := p.l.gather.Group(call, g.id)
	switch {
	case errors.Is(err, resultstore.ErrNotFound):
		return forgotten(g.id)
	case err != nil:
		return err
	case g.policy != task.FailFast:
		return refusal("group " + string(g.id) + " continued without it; submit the workflow again")
	case state.Size == 0 || state.Done < state.Size:
		return refusal(fmt.Sprintf("%d members of group %s have ended, of %d; repeat the retry when all have", state.Done, g.id, state.Size))
	}
	g.size = state.Size
	return p.eachMember(ctx, g, func(i int, rec *resultstore.Record) error {
		if rec.State == task.StateSucceeded {
			return nil
		}
		if _, ok := p.letters[rec.ID]; ok {
			return nil
		}
		if inner := p.callbacks[rec.ID]; inner != nil && inner != g {
			return p.check(ctx, inner)
		}
		kept, found, err := p.l.load(ctx, rec.ID)
		switch {
		case err != nil:
			return err
		case found && kept.Life > 0 && kept.State != task.StateFailed && kept.State != task.StateExpired && kept.State != task.StateRevoked:
			return nil // an interrupted retry has begun its new life
		}
		return refusal(fmt.Sprintf("member %d of group %s, task %s %s, ended as %s without a dead letter in these queues", i, g.id, utf.Cut(rec.Name, 128), rec.ID, rec.State))
	})
}

// eachMember calls do for each member of a complete group until do returns an error.
func (p *plan) eachMember(ctx context.Context, g *failedGroup, do func(i int, rec *resultstore.Record) error) error {
	for from := 0; from < g.size; {
		call, cancel := perLetter(ctx)
		page, err := p.l.gather.Members(call, g.id, from, resultstore.MaxMembersPage)
		cancel()
		if err == nil && len(page) == 0 {
			err = forgotten(g.id)
		}
		if err != nil {
			return err
		}
		for i := range page {
			if err := do(from+i, &page[i]); err != nil {
				return err
			}
		}
		from += len(page)
	}
	return nil
}

// copy copies the succeeded members of g to its next group.
func (p *plan) copy(ctx context.Context, g *failedGroup) error {
	next := wire.NextGroup(g.id)
	return p.eachMember(ctx, g, func(i int, rec *resultstore.Record) error {
		if rec.State != task.StateSucceeded {
			return nil
		}
		if err := p.l.codec.OpenMember(rec, g.id, i); err != nil {
			return refusal(fmt.Sprintf("the result of member %d of group %s cannot be opened: %v", i, g.id, err))
		}
		if err := p.l.codec.ProtectMember(rec, task.Opt[string]{}, next, i); err != nil {
			return refusal(err.Error())
		}
		call, cancel := perLetter(ctx)
		defer cancel()
		_, err := p.l.gather.Arrive(call, resultstore.Arrival{Group: next, Index: i, Size: g.size, Record: *rec})
		return err
	})
}
