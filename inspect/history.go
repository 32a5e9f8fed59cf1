package inspect

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/inspect/internal/original"
	"github.com/swarmiji/swarmiji/inspect/internal/phrase"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/workflow"
)

const (
	rateWindow  = 5 * time.Minute // the time whose counts are the rates of a queue
	rateMinutes = 60              // of ListRates by default
)

// ListTasks implements [Tasks].
func (l *Local) ListTasks(ctx context.Context, q TaskQuery) (TaskPage, error) {
	page := TaskPage{Tasks: []Task{}}
	n, err := pageLimit(q.Limit)
	if err != nil {
		return page, err
	}
	parsed, err := l.query(q.Query)
	if err != nil {
		return page, err
	}
	found, err := l.cfg.History.Page(ctx, parsed, history.PageOptions{Limit: n, After: q.Cursor})
	if err != nil {
		return page, wrapped(err)
	}
	page.Next, page.Complete, page.Query = found.Next, found.Complete, found.Query.String()
	for i := range found.Records {
		page.Tasks = append(page.Tasks, taskOf(&found.Records[i]))
	}
	for _, g := range found.Gaps {
		page.Gaps = append(page.Gaps, Gap{Since: utc(g.Since), Before: utc(g.Before), Dropped: g.Dropped})
	}
	return page, nil
}

// CountTasks implements [Tasks].
func (l *Local) CountTasks(ctx context.Context, query string) (Count, error) {
	parsed, err := l.query(query)
	if err != nil {
		return Count{}, err
	}
	total, err := l.cfg.History.Count(ctx, parsed)
	return Count{N: total.N, More: total.AtLeast}, wrapped(err)
}

// query parses a query. Returns ErrUnsupported without a history.
func (l *Local) query(text string) (history.Query, error) {
	if l.cfg.History == nil {
		return history.Query{}, missing("the history of tasks", needHistory)
	}
	q, err := history.Parse(text)
	return q, wrapped(err)
}

// taskOf describes a record of the history.
func taskOf(r *history.Record) Task {
	t := Task{
		ID: r.ID, Name: r.Name, Queue: r.Queue, State: stateOf(r.State), Attempt: r.Attempts, Node: r.Node, Sent: utc(r.Sent), Started: utc(r.Started),
		Ended: utc(r.Ended), Due: utc(r.Due), Changed: utc(r.Changed), Parent: r.Parent, Root: r.Root, Group: r.Group, Error: r.Error, Class: r.Class,
		Wait: Duration(max(r.Wait, 0)), Run: Duration(max(r.Run, 0)),
	}
	if r.DeadLetter {
		t.State = StateDead
	}
	return t
}

// stateOf returns a state of the history in the words of this package.
func stateOf(s history.State) State {
	switch s {
	case history.Pending:
		return StateWaiting
	case history.Received:
		return StateHeld
	case history.Started:
		return StateRunning
	}
	return State(s)
}

// lookHistory reads the record of the history, after that of the result store. If the task has
// ended, it also reads the message that the history has kept. A message found later replaces it.
func (l *Local) lookHistory(ctx context.Context, s *sighting) error {
	if l.cfg.History == nil {
		return nil
	}
	r, err := l.cfg.History.Get(ctx, s.id)
	if errors.Is(err, history.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	s.history, s.found = &r, append(s.found, "history")
	if ended := s.record == nil && r.State.Terminal() || s.record != nil && s.record.State.Terminal(); !ended || len(r.Original) == 0 {
		return nil
	}
	s.queue = r.Queue
	s.original = original.ReadKept(l.codec, r.Queue, r.ID, r.Name, r.Original, r.OriginalType)
	return nil
}

// addHistory adds the facts that the history alone knows to the details of a task.
func (d *TaskDetail) addHistory(r *history.Record) {
	t, h := &d.Task, taskOf(r)
	if t.State == StateUnknown {
		t.State = h.State
	}
	first(&t.Name, h.Name)
	first(&t.Queue, h.Queue)
	first(&t.Node, h.Node)
	first(&t.Attempt, h.Attempt)
	first(&t.Parent, h.Parent)
	first(&t.Root, h.Root)
	first(&t.Group, h.Group)
	first(&t.Error, h.Error)
	first(&t.Class, h.Class)
	first(&t.Wait, h.Wait)
	first(&t.Run, h.Run)
	first(&d.Args, r.Args)
	first(&d.Result, r.Result)
	first(&d.Stack, r.Stack)
	for _, one := range []struct{ to, from *time.Time }{
		{&t.Sent, &h.Sent}, {&t.Started, &h.Started}, {&t.Ended, &h.Ended}, {&t.Due, &h.Due}, {&t.Changed, &h.Changed},
	} {
		if one.to.IsZero() {
			*one.to = *one.from
		}
	}
	if d.Headers == nil {
		d.Headers = r.Headers
	}
	if p := r.Progress; p != nil && d.Progress == nil {
		d.Progress = &Progress{Done: p.Done, Total: p.Total, Note: p.Note, At: utc(p.Time)}
	}
	for i := range r.Timeline {
		d.Timeline = append(d.Timeline, eventStep(&r.Timeline[i]))
	}
}

// first sets *to to from if it is the zero value.
func first[T comparable](to *T, from T) {
	var zero T
	if *to == zero {
		*to = from
	}
}

// eventStep describes an entry of a timeline.
func eventStep(e *history.Entry) Step {
	s := Step{At: utc(e.Time), Event: string(e.Kind), Node: e.Node, Attempt: e.Attempt, Life: e.Life, Run: Duration(e.Run), Text: e.Error}
	switch {
	case e.Kind == history.KindProgress:
		s.Text = e.Note
	case e.DeadLetter:
		s.Event = string(StateDead)
	case !e.Due.IsZero():
		s.Text = strings.TrimPrefix(s.Text+"; due at "+phrase.Stamp(e.Due), "; ")
	}
	return s
}

// knownSteps returns the tasks of a workflow that the history knows, for package workflow. It is
// nil without a history.
func (l *Local) knownSteps() func(ctx context.Context, root task.ID, limit int) ([]workflow.Known, error) {
	if l.cfg.History == nil {
		return nil
	}
	return func(ctx context.Context, root task.ID, limit int) ([]workflow.Known, error) {
		q := history.Query{Terms: []history.Term{{Field: history.FieldRoot, Op: history.OpIs, Values: []history.Value{{Text: string(root)}}}}}
		var all []workflow.Known
		for o := (history.PageOptions{Limit: min(limit, history.MaxPage)}); len(all) < limit; {
			page, err := l.cfg.History.Page(ctx, q, o)
			if err != nil {
				return nil, err
			}
			for i := range page.Records {
				r := &page.Records[i]
				all = append(all, workflow.Known{ID: r.ID, Parent: r.Parent, Group: r.Group, Name: r.Name, State: recorded(r.State), Life: r.Life, Attempts: r.Attempts})
			}
			if o.After = page.Next; page.Next == "" {
				break
			}
		}
		return all[:min(len(all), limit)], nil
	}
}

// recorded returns a state of the history as a result store knows it.
func recorded(s history.State) task.State {
	if s == history.Received {
		return task.StatePending
	}
	return task.State(s)
}

// add adds a count of the history.
func (r *Rates) add(b *history.Bucket) {
	switch b.Kind {
	case history.KindSent:
		r.Sent += b.N
	case history.KindSucceeded:
		r.Succeeded += b.N
	case history.KindFailed:
		r.Failed += b.N
	case history.KindRetried:
		r.Retried += b.N
	}
}

// ListRates implements [Tasks].
func (l *Local) ListRates(ctx context.Context, q RateQuery) (RatePage, error) {
	page := RatePage{Minutes: []Rates{}}
	if l.cfg.History == nil {
		return page, missing("the rates of tasks", needHistory)
	}
	n := cmp.Or(q.Minutes, rateMinutes)
	if n < 0 || n > MaxMinutes {
		return page, errorf(CodeInvalid, "the number of minutes is %d, want 1 to %d", n, MaxMinutes)
	}
	since := time.Now().UTC().Truncate(time.Minute).Add(time.Duration(1-n) * time.Minute)
	rows, err := l.cfg.History.Counts(ctx, history.CountQuery{Since: since, Queue: q.Queue, Name: q.Name, PerMinute: true})
	if err != nil {
		return page, wrapped(err)
	}
	for i := range n {
		page.Minutes = append(page.Minutes, Rates{Since: since.Add(time.Duration(i) * time.Minute)})
	}
	for i := range rows {
		if at := int(rows[i].Minute.Sub(since) / time.Minute); at < n { // clocks differ
			page.Minutes[at].add(&rows[i])
		}
	}
	return page, nil
}
