package jobs

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/swarmiji/swarmiji/jobs/internal/line"
)

// explainDueInQueue adds the reasons why a due job of a queue has not started: its windows, a queue
// without a runner, or that of explainServed, and then its failed attempt. A stored Status that
// cannot be parsed counts as empty. Returns errors of the store.
func (x *explainer) explainDueInQueue(ctx context.Context) error {
	j := x.row
	switch at, err := x.s.windows.Opens(j, x.At); {
	case err != nil:
		x.addUnreadable(err)
		return nil
	case at.After(x.At):
		x.add(Why{Kind: WhyWindow, At: at}, "It has been due since %s, but its window is closed and opens at %s.", stamp(j.NextRun), stamp(at))
		x.addRetry()
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
		x.add(Why{Kind: WhyNoRunner, At: rec.Until}, "No runner serves queue %q: the lease of the last one, %s, ended at %s.", j.Queue, data.Node, stamp(rec.Until))
	default:
		if err := x.explainServed(ctx, &data); err != nil {
			return err
		}
	}
	x.addRetry()
	return nil
}

// explainServed adds the one reason why the leader of the queue has not started the job: the limit,
// an earlier job, the throttler, busy workers, or that the next admission may start it. data is the
// Status that the leader stored. Returns errors of the store; it then adds no reason.
func (x *explainer) explainServed(ctx context.Context, data *line.Status) error {
	j := x.row
	throttled, err := x.addLimit(ctx, data)
	if err != nil || throttled {
		return err
	}
	since := stamp(j.NextRun)
	switch {
	case data.Throttler && slices.Contains(data.Refused, j.ID):
		x.add(Why{Kind: WhyThrottled, At: data.AdmittedAt}, "The throttler of queue %q did not start it at its last admission, at %s.", j.Queue, stamp(data.AdmittedAt))
	case data.Busy:
		x.add(Why{Kind: WhyBusy, At: j.NextRun}, "It has been due since %s, but all workers of queue %q, on %s, are busy.", since, j.Queue, data.Node)
	case data.Throttler && data.AdmittedAt.After(j.NextRun) && data.AdmittedAt.After(j.Changed):
		x.add(Why{Kind: WhyThrottled, At: data.AdmittedAt}, "The throttler of queue %q has not started it; its last admission was at %s.", j.Queue, stamp(data.AdmittedAt))
	default:
		x.add(Why{Kind: WhyDue, At: j.NextRun}, "It has been due since %s, and the next admission of queue %q, on %s, may start it.", since, j.Queue, data.Node)
	}
	return nil
}

// addLimit adds a reason if the weight of the job does not fit into the limit of the queue beside
// the running jobs. Otherwise, in a strict queue, in which no job passes an earlier one, it adds a
// reason if an earlier job does not fit (addEarlierJob). It reports whether it added a reason.
// Without a limit it adds nothing. Returns errors of the store.
func (x *explainer) addLimit(ctx context.Context, data *line.Status) (bool, error) {
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
			x.add(Why{Kind: WhyThrottled}, "Its weight %s is above the limit %s of queue %q, so it must run alone; now %d jobs with a weight of %s run.",
				line.Units(j.Weight), line.Units(data.Limit), j.Queue, n, line.Units(taken))
		} else {
			x.add(Why{Kind: WhyThrottled}, "Its weight %s does not fit into the limit %s of queue %q: %d running jobs use %s.",
				line.Units(j.Weight), line.Units(data.Limit), j.Queue, n, line.Units(taken))
		}
		return true, nil
	}
	if !data.Strict {
		return false, nil
	}
	return x.addEarlierJob(ctx, data, g)
}

// addEarlierJob adds a reason if the first due job of a strict queue is another job and does not
// fit into the limit. It reports whether it added a reason. g contains the limit and the weight of
// the running jobs. Returns errors of the store.
func (x *explainer) addEarlierJob(ctx context.Context, data *line.Status, g line.Gauge) (bool, error) {
	found, err := x.tx.Line(ctx, Line{Queue: x.Job.Queue, State: Queued, By: x.At, Order: data.Order}, 1)
	if err != nil || len(found) == 0 || found[0].ID == x.Job.ID || g.Fits(found[0].Weight) {
		return false, err
	}
	first := &found[0]
	x.add(Why{Kind: WhyThrottled, Job: first.ID}, "Job %d, with a weight of %s, is before it in the strict queue %q and does not fit into the limit %s, of which %s is used.",
		first.ID, line.Units(first.Weight), x.Job.Queue, line.Units(data.Limit), line.Units(g.Taken))
	return true, nil
}
