package jobs

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/swarmiji/swarmiji/jobs/internal/line"
)

// inLine explains why a due job of a queue was not started.
func (x *explainer) inLine(ctx context.Context) error {
	j := x.row
	switch at, err := x.s.windows.Opens(j, x.At); {
	case err != nil:
		x.unread(err)
		return nil
	case at.After(x.At):
		x.add(Why{Kind: WhyWindow, At: at}, "It is due since %s, but its window is closed, and opens at %s.", stamp(j.NextRun), stamp(at))
		x.retried()
		return nil
	}
	rec, err := x.tx.QueueLease(ctx, j.Queue)
	if err != nil {
		return err
	}
	var data line.Status
	if rec != nil && json.Unmarshal(rec.Status, &data) != nil {
		data = line.Status{}
	}
	switch {
	case rec == nil:
		x.add(Why{Kind: WhyNoRunner}, "No runner has ever served queue %q.", j.Queue)
	case !rec.Until.After(x.At):
		x.add(Why{Kind: WhyNoRunner, At: rec.Until}, "No runner serves queue %q: the last one, %s, is gone since %s.", j.Queue, data.Node, stamp(rec.Until))
	default:
		if err := x.served(ctx, &data); err != nil {
			return err
		}
	}
	x.retried()
	return nil
}

// served explains why the leader of the queue has not started the job.
func (x *explainer) served(ctx context.Context, data *line.Status) error {
	j := x.row
	throttled, err := x.limited(ctx, data)
	if err != nil || throttled {
		return err
	}
	since := stamp(j.NextRun)
	switch {
	case data.Throttler && slices.Contains(data.Refused, j.ID):
		x.add(Why{Kind: WhyThrottled, At: data.Looked}, "The throttler of queue %q did not start it when it looked, at %s.", j.Queue, stamp(data.Looked))
	case data.Busy:
		x.add(Why{Kind: WhyBusy, At: j.NextRun}, "It is due since %s, and all workers of queue %q, on %s, are busy.", since, j.Queue, data.Node)
	case data.Throttler && data.Looked.After(j.NextRun) && data.Looked.After(j.Changed):
		x.add(Why{Kind: WhyThrottled, At: data.Looked}, "The throttler of queue %q has not started it; it looked last at %s.", j.Queue, stamp(data.Looked))
	default:
		x.add(Why{Kind: WhyDue, At: j.NextRun}, "It is due since %s, and the next look at queue %q, which %s serves, may start it.", since, j.Queue, data.Node)
	}
	return nil
}

// limited reports whether the limit blocks the job.
func (x *explainer) limited(ctx context.Context, data *line.Status) (bool, error) {
	j := x.row
	if data.Limit == 0 {
		return false, nil
	}
	n, taken, err := line.Weigh(ctx, x.tx, j.Queue)
	if err != nil {
		return false, err
	}
	g := line.Gauge{Limit: data.Limit, Taken: taken}
	if !g.Fits(j.Weight) {
		if j.Weight > data.Limit {
			x.add(Why{Kind: WhyThrottled}, "It weighs %s, more than the limit %s of queue %q, so that it runs alone, and now %d jobs that weigh %s run.",
				line.Units(j.Weight), line.Units(data.Limit), j.Queue, n, line.Units(taken))
		} else {
			x.add(Why{Kind: WhyThrottled}, "It weighs %s, and of the limit %s of queue %q the %d jobs that run take %s.",
				line.Units(j.Weight), line.Units(data.Limit), j.Queue, n, line.Units(taken))
		}
		return true, nil
	}
	if !data.Strict {
		return false, nil
	}
	return x.heldUp(ctx, data, g)
}

// heldUp reports whether an earlier job of a strict queue blocks the job.
func (x *explainer) heldUp(ctx context.Context, data *line.Status, g line.Gauge) (bool, error) {
	found, err := x.tx.Line(ctx, Line{Queue: x.Job.Queue, State: Queued, By: x.At, Order: data.Order}, 1)
	if err != nil || len(found) == 0 || found[0].ID == x.Job.ID || g.Fits(found[0].Weight) {
		return false, err
	}
	first := &found[0]
	x.add(Why{Kind: WhyThrottled, Job: first.ID}, "Job %d, which weighs %s, is before it in queue %q, which is strict, and does not fit into the limit %s, of which %s is taken.",
		first.ID, line.Units(first.Weight), x.Job.Queue, line.Units(data.Limit), line.Units(g.Taken))
	return true, nil
}
