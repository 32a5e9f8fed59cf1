package inspect

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/task"
)

// theSettings returns the store of the settings.
func (l *Local) theSettings() (settings.Store, error) {
	if l.cfg.Settings == nil {
		return nil, missing("stored pauses and limits", needSettings)
	}
	return l.cfg.Settings, nil
}

// settingsOf returns the store of the settings. No queue or task with a bad name has settings.
func (l *Local) settingsOf(name string) (settings.Store, error) {
	if err := task.CheckName(name); err != nil {
		return nil, wrapped(err)
	}
	return l.theSettings()
}

// ListSettings implements [Settings]. It reads all settings.
func (l *Local) ListSettings(ctx context.Context, q SettingsQuery) (SettingsPage, error) {
	page := SettingsPage{Settings: []Setting{}}
	n, err := pageLimit(q.Limit)
	if err != nil {
		return page, err
	}
	skip, err := position(q.Cursor)
	if err != nil {
		return page, err
	}
	store, err := l.theSettings()
	if err != nil {
		return page, err
	}
	values, err := store.List(ctx, "")
	if err != nil {
		return page, wrapped(err)
	}
	s := settings.Read(values)
	all := append(merged(true, s.QueuePauses, s.QueueLimits, s.QueueBreakers, s.QueueBounds), merged(false, s.TaskPauses, s.TaskLimits, s.TaskBreakers, nil)...)
	page.Settings = all[min(skip, len(all)):min(skip+n, len(all))]
	if skip+n < len(all) {
		page.Next = strconv.Itoa(skip + n)
	}
	return page, nil
}

// merged returns the settings of each queue, or of each name, in the order of their names.
func merged(queues bool, pauses map[string]settings.Pause, limits map[string]settings.Limit, breakers map[string]settings.Breaker, bounds map[string]settings.Bounds) []Setting {
	names := slices.Concat(slices.Collect(maps.Keys(pauses)), slices.Collect(maps.Keys(limits)), slices.Collect(maps.Keys(breakers)), slices.Collect(maps.Keys(bounds)))
	slices.Sort(names)
	all := []Setting{}
	for _, name := range slices.Compact(names) {
		s := Setting{Name: name}
		if queues {
			s = Setting{Queue: name}
		}
		if p, ok := pauses[name]; ok && p.Active(time.Now()) {
			s.Pause = pauseOf(&p)
		}
		if limit, ok := limits[name]; ok {
			s.Limit = &StoredLimit{Rate: limit.Rate, Concurrency: limit.Concurrency, By: limit.By, Since: utc(limit.At)}
		}
		if b, ok := breakers[name]; ok {
			s.Breaker = &Breaker{Until: utc(b.Until), Trips: b.Trips, Node: b.Node, Reason: b.Why}
		}
		if b, ok := bounds[name]; ok {
			s.Bounds = &b
		}
		if s.Pause != nil || s.Limit != nil || s.Breaker != nil || s.Bounds != nil {
			all = append(all, s)
		}
	}
	return all
}

// pauseOf describes a stored pause.
func pauseOf(p *settings.Pause) *StoredPause {
	return &StoredPause{Since: utc(p.At), Until: utc(p.Until), By: p.By, Reason: p.Why}
}

// activePause returns the stored pause of a queue or of a name if it lasts, or nil.
func (l *Local) activePause(ctx context.Context, key settings.Key[settings.Pause]) (*StoredPause, error) {
	if l.cfg.Settings == nil {
		return nil, nil
	}
	p, found, err := key.Get(ctx, l.cfg.Settings)
	if err != nil || !found || !p.Active(time.Now()) {
		return nil, err
	}
	return pauseOf(&p), nil
}

// pauseOrBreaker returns the pause of a key if it lasts, otherwise that of a breaker, or nil.
func (l *Local) pauseOrBreaker(ctx context.Context, pause settings.Key[settings.Pause], breaker settings.Key[settings.Breaker]) (*StoredPause, error) {
	p, err := l.activePause(ctx, pause)
	if p != nil || err != nil || l.cfg.Settings == nil {
		return p, err
	}
	b, found, err := breaker.Get(ctx, l.cfg.Settings)
	if err != nil || !found || !time.Now().Before(b.Until) {
		return nil, err
	}
	return &StoredPause{Since: utc(b.At), Until: utc(b.Until), By: "a breaker", Reason: b.Why}, nil
}

// pauseBy returns a pause of now by the caller.
func (l *Local) pauseBy(ctx context.Context, until time.Time, reason string) settings.Pause {
	return settings.Pause{Until: until, By: utf.Cut(l.actor(ctx), settings.MaxBy), Why: reason}
}

// PauseTasks implements [Settings].
func (l *Local) PauseTasks(ctx context.Context, p TaskPause) (Change, error) {
	c := Change{Do: DoPauseTasks, Target: p.Name}
	store, err := l.settingsOf(p.Name)
	if err != nil {
		return c, err
	}
	return l.change(ctx, c, p, func(c *Change) error {
		return c.stored(settings.PauseTask(ctx, store, p.Name, l.pauseBy(ctx, p.Until, p.Reason)))
	})
}

// ResumeTasks implements [Settings].
func (l *Local) ResumeTasks(ctx context.Context, name string) (Change, error) {
	c := Change{Do: DoResumeTasks, Target: name}
	store, err := l.settingsOf(name)
	if err != nil {
		return c, err
	}
	return l.change(ctx, c, nil, func(c *Change) error {
		found, err := settings.ResumeTask(ctx, store, name)
		if found {
			c.Done = 1
		}
		c.Stored = true
		return err
	})
}

// SetLimit implements [Settings].
func (l *Local) SetLimit(ctx context.Context, limit Limit) (Change, error) {
	c := Change{Do: DoSetLimit, Target: limit.Queue + limit.Name}
	if (limit.Queue == "") == (limit.Name == "") || limit.Bounds != nil && limit.Queue == "" {
		return c, errorf(CodeInvalid, "set one of Queue and Name, and Bounds with Queue only")
	}
	store, err := l.settingsOf(c.Target)
	if err != nil {
		return c, err
	}
	return l.change(ctx, c, limit, func(c *Change) error {
		set := settings.LimitQueue
		if limit.Queue == "" {
			set = settings.LimitTask
		}
		by := utf.Cut(l.actor(ctx), settings.MaxBy)
		if limit.Bounds != nil {
			b := *limit.Bounds
			b.By = by
			err = settings.BoundQueue(ctx, store, limit.Queue, b)
		} else {
			err = set(ctx, store, c.Target, settings.Limit{Rate: limit.Rate, Concurrency: limit.Concurrency, By: by})
		}
		if c.stored(err) == nil && limit.Queue != "" && (limit.Rate != "" || limit.Concurrency > 0 || limit.Bounds != nil && !limit.Bounds.IsZero()) {
			c.Notes = l.unknownQueue(ctx, limit.Queue)
		}
		return err
	})
}

// ServeQueue implements [Settings].
func (l *Local) ServeQueue(ctx context.Context, s Serve) (Change, error) {
	c := Change{Do: DoServeQueue, Target: s.Queue}
	store, err := l.theSettings()
	if err != nil {
		return c, err
	}
	return l.change(ctx, c, s, func(c *Change) error {
		return c.stored(settings.ServeQueue(ctx, store, s.Group, s.Queue, settings.Served{
			Workers: s.Workers, Removed: s.Leave, By: utf.Cut(l.actor(ctx), settings.MaxBy),
		}))
	})
}

// stored notes that a change is stored, and that it was made unless err is set. It returns err.
func (c *Change) stored(err error) error {
	if c.Stored = true; err == nil {
		c.Done = 1
	}
	return err
}
