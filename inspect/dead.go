package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/deadletter"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/inspect/internal/original"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// filter returns the filter of package deadletter.
func (f *DeadFilter) filter() deadletter.Filter {
	return deadletter.Filter{IDs: f.IDs, Task: f.Name, Root: f.Root, Error: f.Error, Headers: f.Headers, OlderThan: time.Duration(f.OlderThan), YoungerThan: time.Duration(f.YoungerThan)}
}

// deadLetters returns the dead letters of the broker.
func (l *Local) deadLetters() (*deadletter.Letters, error) {
	switch {
	case l.cfg.Broker == nil:
		return nil, missing("dead letters", needBroker)
	case l.letters == nil:
		return nil, wrapped(fmt.Errorf("the dead letters of this broker cannot be read: %w", broker.ErrUnsupported))
	}
	return l.letters, nil
}

// requeuer returns dead letters that refuse those of revoked tasks, as far as the bus of
// revocations is given. It waits until it has read that bus. Call end after use.
func (l *Local) requeuer(ctx context.Context) (letters *deadletter.Letters, end func(), err error) {
	if letters, err = l.deadLetters(); err != nil || l.cfg.Revocations == nil {
		return letters, func() {}, err
	}
	list, err := revoke.New(revoke.Config{Events: l.cfg.Revocations, Logger: l.cfg.Logger})
	if errors.Is(err, events.ErrNotRetained) {
		return letters, func() {}, nil // only running consumers know the revoked tasks
	}
	if err != nil {
		return nil, nil, errorf(CodeInvalid, "%v", err)
	}
	end = func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), deadTime)
		defer cancel()
		if err := list.Close(closing); err != nil {
			l.cfg.Logger.WarnContext(ctx, "inspect: the list of revocations does not close", slog.Any("error", err))
		}
	}
	if err := list.Ready(ctx); err != nil {
		end()
		return nil, nil, err
	}
	c := l.deadConfig()
	c.Revoked = list.Check
	if letters, err = deadletter.New(c); err != nil {
		end()
		return nil, nil, err
	}
	return letters, end, nil
}

// deadConfig returns the configuration of the dead letters.
func (l *Local) deadConfig() deadletter.Config {
	c := &l.cfg
	return deadletter.Config{Broker: c.Broker, Results: c.Results, Stores: c.Stores, Wire: c.Wire, NodeID: c.NodeID}
}

// eachDead calls fn for the letters that match from the cursor on, at most limit, and returns the
// cursor of the next page.
func (l *Local) eachDead(ctx context.Context, q DeadQuery, fn func(*deadletter.Letter) error) (next string, err error) {
	letters, err := l.deadLetters()
	if err != nil {
		return "", err
	}
	n, err := pageLimit(q.Limit)
	if err != nil {
		return "", err
	}
	skip, err := position(q.Cursor)
	if err != nil {
		return "", err
	}
	seen := 0
	var failed error
	err = letters.List(ctx, q.Queue, q.filter(), func(letter *deadletter.Letter) bool {
		switch seen++; {
		case seen <= skip:
			return true
		case seen > skip+n:
			next = strconv.Itoa(skip + n)
			return false
		}
		failed = fn(letter)
		return failed == nil
	})
	return next, wrapped(errors.Join(failed, err))
}

// ListDead implements [Dead].
func (l *Local) ListDead(ctx context.Context, q DeadQuery) (DeadPage, error) {
	page := DeadPage{Letters: []DeadLetter{}}
	next, err := l.eachDead(ctx, q, func(letter *deadletter.Letter) error {
		page.Letters = append(page.Letters, deadLetter(letter, false, false))
		return nil
	})
	page.Next = next
	return page, err
}

// SummarizeDead implements [Dead].
func (l *Local) SummarizeDead(ctx context.Context, d DeadCount) (DeadSummary, error) {
	letters, err := l.deadLetters()
	if err != nil {
		return DeadSummary{}, err
	}
	if d.Limit < 0 || d.Limit > MaxCount {
		return DeadSummary{}, errorf(CodeInvalid, "the limit is %d, want 1 to %d", d.Limit, MaxCount)
	}
	filter := d.filter()
	filter.Limit = cmp.Or(d.Limit, MaxCount)
	s, err := letters.Summarize(ctx, d.Queue, filter)
	return DeadSummary{
		Count: Count{N: s.Letters, More: s.More}, Bytes: s.Bytes, Oldest: utc(s.Oldest), Newest: utc(s.Newest), Names: s.Tasks, Reasons: s.Reasons,
	}, wrapped(err)
}

// GetDead implements [Dead].
func (l *Local) GetDead(ctx context.Context, k DeadKey) (DeadLetter, error) {
	letters, err := l.deadLetters()
	if err != nil {
		return DeadLetter{}, err
	}
	var newest DeadLetter
	n := 0
	err = letters.List(ctx, k.Queue, deadletter.Filter{IDs: []task.ID{k.ID}}, func(letter *deadletter.Letter) bool {
		newest = deadLetter(letter, true, k.Args)
		n++
		return true
	})
	switch {
	case err != nil:
		return newest, wrapped(err)
	case n == 0:
		return newest, errorf(CodeNotFound, "queue %s has no dead letter of task %s", k.Queue, k.ID)
	}
	newest.Letters = n
	if l.cfg.History != nil {
		r, err := l.cfg.History.Get(ctx, k.ID)
		if err != nil && !errors.Is(err, history.ErrNotFound) {
			return newest, wrapped(err)
		}
		newest.Preview = r.Args
	}
	return newest, nil
}

// RequeueDead implements [Dead].
func (l *Local) RequeueDead(ctx context.Context, d DeadChange) (Change, error) {
	return l.changeDead(ctx, DoRequeueDead, d, func(c *Change, _ *deadletter.Letters, f deadletter.Filter) error {
		letters, end, err := l.requeuer(ctx)
		if err != nil {
			return err
		}
		defer end()
		r, err := letters.Requeue(ctx, d.Queue, f)
		c.requeued(&r)
		c.More = r.Done+r.Already >= f.Limit
		return err
	})
}

// requeued adds the report about requeued letters.
func (c *Change) requeued(r *deadletter.Report) {
	c.Done, c.Already, c.Refused, c.Unfenced = r.Done, r.Already, r.Refused, r.Unfenced
	for _, p := range r.Problems {
		c.Problems = append(c.Problems, Problem{string(p.ID), p.Reason})
	}
}

// DropDead implements [Dead].
func (l *Local) DropDead(ctx context.Context, d DeadChange) (Change, error) {
	if !d.DryRun && len(d.IDs) == 0 && (d.Queue == "" || d.Confirm != d.Queue) {
		return Change{Do: DoDropDead, Target: d.Queue}, errorf(CodeInvalid, "a drop of letters that are not named by their ids needs the name of the queue as confirmation")
	}
	return l.changeDead(ctx, DoDropDead, d, func(c *Change, letters *deadletter.Letters, f deadletter.Filter) (err error) {
		if d.Limit == 0 && reflect.DeepEqual(d.DeadFilter, DeadFilter{Queue: d.Queue}) {
			f.Limit = 0 // all letters are deleted without reading them
		}
		c.Done, err = letters.Drop(ctx, d.Queue, f)
		c.More = f.Limit > 0 && c.Done >= f.Limit
		return err
	})
}

// changeDead counts the letters in a dry run, and otherwise calls do with a bounded filter.
func (l *Local) changeDead(ctx context.Context, what Do, d DeadChange, do func(*Change, *deadletter.Letters, deadletter.Filter) error) (Change, error) {
	c := Change{Do: what, Target: d.Queue, DryRun: d.DryRun}
	letters, err := l.deadLetters()
	if err != nil {
		return c, err
	}
	f := d.filter()
	if f.Limit, err = bulkLimit(d.Limit); err != nil {
		return c, err
	}
	if d.DryRun {
		n, err := l.SummarizeDead(ctx, DeadCount{DeadFilter: d.DeadFilter})
		c.Done, c.More = n.N, n.More
		return c, err
	}
	return l.change(ctx, c, d, func(c *Change) error { return do(c, letters, f) })
}

// ExportDead implements [Dead].
func (l *Local) ExportDead(ctx context.Context, q DeadQuery) (DeadExport, error) {
	page := DeadExport{Lines: []json.RawMessage{}}
	next, err := l.eachDead(ctx, q, func(letter *deadletter.Letter) error {
		line, err := letter.Line()
		page.Lines = append(page.Lines, line)
		return err
	})
	page.Next = next
	return page, err
}

// deadLetter describes a dead letter. full adds all fields of the message, args the arguments.
func deadLetter(l *deadletter.Letter, full, args bool) DeadLetter {
	m := l.Message
	d := DeadLetter{
		ID: string(l.ID), Name: l.Name(), Queue: l.Queue, Reason: l.Reason, Attempts: l.Attempts, At: l.At, Life: l.Life,
		Generation: m.Generation, Size: len(m.Body),
	}
	if l.Unread != nil {
		d.Unread = unread(l.Unread)
	}
	e := l.Task
	if !full || e == nil {
		return d
	}
	meta := e.Meta
	if e.Base != nil {
		meta = task.Merge(*e.Base, e.Meta)
	}
	d.Stack, d.ContentType, d.Headers, d.Parent, d.Root, d.Retries = l.Stack, l.ContentType, e.Headers, e.Parent, e.Root, e.Retries
	d.Group, d.GroupIndex, d.AtMostOnce = e.Group, e.GroupIndex, !meta.Idempotent.Or(true)
	if args && l.Unread == nil {
		var err error
		if d.Args, err = original.Readable(e.ContentType, e.Args); err != nil {
			d.Unread = unread(err)
		}
	}
	return d
}

// unread returns the text for a message that cannot be read.
func unread(err error) string {
	if errors.Is(err, serializer.ErrUnknownType) {
		return err.Error() + "; the program swarmiji takes keys from --key-file"
	}
	return err.Error()
}
