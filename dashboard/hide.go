package dashboard

import (
	"context"

	"github.com/swarmiji/swarmiji/inspect"
)

// hidden is an API that shows no arguments, results, headers or data.
type hidden struct{ inspect.API }

func (h hidden) GetTask(ctx context.Context, k inspect.TaskKey) (inspect.TaskDetail, error) {
	k.Args = false
	d, err := h.API.GetTask(ctx, k)
	d.Args, d.Result, d.Headers, d.Original = "", "", nil, nil
	if d.Dead != nil {
		letter := *d.Dead
		hideLetter(&letter)
		d.Dead = &letter
	}
	return d, err
}

func (h hidden) GetDead(ctx context.Context, k inspect.DeadKey) (inspect.DeadLetter, error) {
	k.Args = false
	l, err := h.API.GetDead(ctx, k)
	hideLetter(&l)
	return l, err
}

func (h hidden) GetSchedule(ctx context.Context, k inspect.ScheduleKey) (inspect.Schedule, error) {
	k.Args = false
	s, err := h.API.GetSchedule(ctx, k)
	s.Args, s.Headers = nil, nil
	return s, err
}

func (h hidden) GetJob(ctx context.Context, id int64) (inspect.JobDetail, error) {
	d, err := h.API.GetJob(ctx, id)
	d.Data, d.Answer = nil, nil
	return d, err
}

func (h hidden) ListEvents(ctx context.Context, q inspect.EventQuery) (inspect.EventPage, error) {
	p, err := h.API.ListEvents(ctx, q)
	for i := range p.Events {
		hideEvent(&p.Events[i])
	}
	return p, err
}

func hideLetter(l *inspect.DeadLetter) { l.Args, l.Headers = nil, nil }

func (h hidden) ListSchedules(ctx context.Context, q inspect.ScheduleQuery) (inspect.SchedulePage, error) {
	p, err := h.API.ListSchedules(ctx, q)
	for i := range p.Schedules {
		p.Schedules[i].Args, p.Schedules[i].Headers = nil, nil
	}
	return p, err
}

func hideEvent(e *inspect.Event) { e.Args, e.Result, e.Fields = "", "", nil }
