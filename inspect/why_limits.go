package inspect

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/inspect/internal/limits"
	"github.com/swarmiji/swarmiji/inspect/internal/phrase"
	"github.com/swarmiji/swarmiji/inspect/internal/waits"
	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/task"
)

// explainLimits adds a reason for each limit of the task's name or queue that is used up. postponed
// says that the message was sent again for a later time without a failure, as limits do.
func (x *explainer) explainLimits(ctx context.Context, postponed bool) error {
	reader, _ := capability.As[limit.Reader](x.l.cfg.Limiter)
	if reader != nil {
		for _, p := range x.l.cfg.Limits[x.name()] {
			u, until, err := x.usage(ctx, reader, p)
			if err != nil {
				return err
			}
			if h, id, full := limits.Full(u, p); full {
				r := Reason{Kind: KindLimit, Key: p.Key, Holder: h, Task: id, Queue: x.queue}
				if r.Task != "" {
					r.Help = findTask(r.Task)
				}
				x.add(r, "Limit %s is used up: %d of %d are held, for example by %s.", p.Key, u.Held, p.Max, h)
			}
			if !until.IsZero() {
				x.add(Reason{Kind: KindLimit, Key: p.Key, At: until, Queue: x.queue}, "The rate of limit %s is used until %s.", p.Key, phrase.Stamp(until))
			}
		}
	}
	if x.l.cfg.Settings == nil {
		return nil
	}
	if x.queue != "" {
		if x.message != nil {
			w, err := waits.OfKey(ctx, x.l.cfg.Broker, x.l.cfg.Settings, x.queue, x.message.Message.Key, x.now)
			if err != nil {
				return err
			}
			if w.Text != "" {
				x.add(Reason{Kind: KindLimit, Key: w.Key, At: w.At, Queue: x.queue}, "%s", w.Text)
			}
		}
		if err := x.explainStored(ctx, reader, settings.QueueLimit(x.queue), "queue "+x.queue, endQueueLimit(x.queue), postponed); err != nil {
			return err
		}
	}
	if name := x.name(); name != "" {
		return x.explainStored(ctx, reader, settings.TaskLimit(name), "the tasks "+name, endTaskLimit(name), postponed)
	}
	return nil
}

// explainStored adds a reason for a stored limit that is used up, or that may have postponed the
// task. of names the limited tasks. reader is nil if each consumer applies the limit alone.
func (x *explainer) explainStored(ctx context.Context, reader limit.Reader, key settings.Key[settings.Limit], of string, help *Action, postponed bool) error {
	l, found, err := key.Get(ctx, x.l.cfg.Settings)
	if err != nil || !found {
		return err
	}
	n, per, err := task.ParseRate(l.Rate)
	if err != nil || settings.CheckLimit(&l) != nil || l.Rate == "" && l.Concurrency == 0 {
		return nil // consumers ignore it too
	}
	reason := Reason{Kind: KindLimit, Key: key.String(), Queue: x.queue, Help: help}
	where := " in each consumer"
	if reader != nil {
		where = ""
		p := limit.Permit{Key: key.String(), Max: l.Concurrency}
		u, _, err := x.usage(ctx, reader, p)
		if err != nil {
			return err
		}
		_, until, err := x.usage(ctx, reader, limit.Permit{Key: l.RateKey(key), Rate: n, Per: per})
		if err != nil {
			return err
		}
		h, id, full := limits.Full(u, p)
		reason.Holder, reason.Task, reason.At = h, id, until
		switch {
		case full:
			x.add(reason, "It waits for the limit of %s, %d at once: %d are held, for example by %s.", of, l.Concurrency, u.Held, h)
			return nil
		case !until.IsZero():
			x.add(reason, "It waits for the limit of %s, %s, which is used until %s.", of, l.Rate, phrase.Stamp(until))
			return nil
		}
	}
	if postponed {
		x.add(reason, "The limit of %s is %s%s: a task over it is postponed, and tried again when it is due.", of, limits.Figures(&l), where)
	}
	return nil
}

// usage returns the use of a limit, and the time until which its rate admits no start: zero if it
// admits one.
func (x *explainer) usage(ctx context.Context, reader limit.Reader, p limit.Permit) (u limit.Usage, until time.Time, err error) {
	if u, err = reader.Usage(ctx, p.Key); err != nil {
		return u, until, err
	}
	asks, err := limit.Check("why", limit.MinLease, []limit.Permit{p})
	if err != nil {
		x.notef("the limit %s: %v", p.Key, err)
		return u, until, nil
	}
	if wait := asks[0].Wait(u.Ahead); wait > 0 {
		until = x.now.Add(wait)
	}
	return u, until, nil
}
