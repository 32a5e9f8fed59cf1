package dashboard

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/inspect"
)

// guarded is an API that withholds arguments.
//
// The originals, which are those of messages, entries and jobs, are as their senders wrote them. A
// task hides its secrets only in events, and so in the history. A viewer therefore gets the
// previews of the history alone. With Config.HideArguments no caller gets originals, previews,
// results or headers.
type guarded struct {
	inspect.API
	hide bool // Config.HideArguments
}

// withheld says why the caller of a request gets no original arguments. "": it gets them. A ctx
// without a caller is that of a viewer.
func (g guarded) withheld(ctx context.Context) string {
	who := callerOf(ctx)
	switch {
	case g.hide:
		return "arguments are hidden here"
	case who.role < Operator:
		return fmt.Sprintf("the arguments may hold secrets, so they need the role %v; you have %v", Operator, who.role)
	}
	return ""
}

func (g guarded) GetTask(ctx context.Context, k inspect.TaskKey) (inspect.TaskDetail, error) {
	why, asked := g.withheld(ctx), k.Args
	k.Args = k.Args && why == ""
	d, err := g.API.GetTask(ctx, k)
	if why != "" {
		d.Original = nil
	}
	if asked && d.NotAgain == "" { // another role may see them
		d.Withheld = why
	}
	if g.hide {
		d.Args, d.Result, d.Headers = "", "", nil
	}
	if d.Dead != nil {
		letter := *d.Dead
		g.letter(&letter, why)
		d.Dead = &letter
	}
	return d, err
}

func (g guarded) GetDead(ctx context.Context, k inspect.DeadKey) (inspect.DeadLetter, error) {
	why, asked := g.withheld(ctx), k.Args
	k.Args = k.Args && why == ""
	l, err := g.API.GetDead(ctx, k)
	g.letter(&l, why)
	if asked {
		l.Withheld = why
	}
	return l, err
}

// letter removes the arguments that are withheld for the reason why.
func (g guarded) letter(l *inspect.DeadLetter, why string) {
	if why != "" {
		l.Args = nil
	}
	if g.hide {
		l.Preview, l.Headers = "", nil
	}
}

func (g guarded) GetSchedule(ctx context.Context, k inspect.ScheduleKey) (inspect.Schedule, error) {
	why, asked := g.withheld(ctx), k.Args
	k.Args = k.Args && why == ""
	s, err := g.API.GetSchedule(ctx, k)
	g.entry(&s, why)
	if asked {
		s.Withheld = why
	}
	return s, err
}

func (g guarded) ListSchedules(ctx context.Context, q inspect.ScheduleQuery) (inspect.SchedulePage, error) {
	p, err := g.API.ListSchedules(ctx, q)
	why := g.withheld(ctx)
	for i := range p.Schedules {
		g.entry(&p.Schedules[i], why)
	}
	return p, err
}

// entry removes the arguments that are withheld for the reason why.
func (g guarded) entry(s *inspect.Schedule, why string) {
	if why != "" {
		s.Args = nil
	}
	if g.hide {
		s.Headers = nil
	}
}

func (g guarded) GetJob(ctx context.Context, id int64) (inspect.JobDetail, error) {
	d, err := g.API.GetJob(ctx, id)
	if d.Withheld = g.withheld(ctx); d.Withheld != "" {
		d.Data, d.Answer = nil, nil
	}
	return d, err
}

func (g guarded) ListEvents(ctx context.Context, q inspect.EventQuery) (inspect.EventPage, error) {
	p, err := g.API.ListEvents(ctx, q)
	if g.hide {
		for i := range p.Events {
			e := &p.Events[i]
			e.Args, e.Result, e.Fields = "", "", nil
		}
	}
	return p, err
}
