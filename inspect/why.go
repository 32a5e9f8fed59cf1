package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/inspect/internal/phrase"
	"github.com/swarmiji/swarmiji/inspect/internal/waits"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/task"
)

// Why implements [Tasks].
func (l *Local) Why(ctx context.Context, k TaskKey) (Explanation, error) {
	s, err := l.look(ctx, k)
	if err != nil {
		return Explanation{}, err
	}
	x := explainer{l: l, sighting: s}
	if err := x.explain(ctx); err != nil {
		return Explanation{}, wrapped(err)
	}
	return Explanation{ID: string(s.id), Name: s.name(), Queue: s.queue, State: string(s.state()), At: s.now.UTC(), Reasons: x.reasons, Notes: s.notes}, nil
}

// explainer collects the reasons for one task.
type explainer struct {
	l *Local
	*sighting
	reasons []Reason
}

// add appends a reason with a formatted text.
func (x *explainer) add(r Reason, text string, args ...any) {
	r.Text = fmt.Sprintf(text, args...)
	x.reasons = append(x.reasons, r)
}

// explain adds the reasons of the task's place: at least one, the most important one first.
func (x *explainer) explain(ctx context.Context) error {
	switch {
	case x.running != nil:
		return x.explainRunning(ctx)
	case x.message != nil:
		return x.explainMessage(ctx)
	case x.dead != nil:
		x.explainDead()
	case x.deferral != nil:
		x.explainDeferral()
	case x.job != nil && !x.job.State.Over():
		return x.explainJob(ctx)
	case x.history != nil && (x.record == nil || !x.record.State.Terminal()):
		return x.explainHistory(ctx)
	case x.record != nil:
		x.explainRecord()
	default:
		x.add(Reason{Kind: KindUnknown}, "No part knows this task: it was never submitted, or its workflow has not come to this step, or it waits in a burst, or it has ended and has no record, or its queue was not searched (%s).", searched(x.searched))
	}
	return nil
}

func searched(queues []string) string {
	if len(queues) == 0 {
		return "none was"
	}
	return "searched: " + strings.Join(queues, ", ")
}

// explainRunning explains a task that a consumer shows. Returns the errors of the settings.
func (x *explainer) explainRunning(ctx context.Context) error {
	r := x.running
	reason := Reason{Kind: KindRuns, At: r.Since, Queue: r.Queue, Node: r.Node, Help: cancelTask(x.id, r.Queue)}
	if !x.held {
		x.add(reason, "It has been running on %s since %s, in attempt %d.", r.Node, phrase.Stamp(r.Since), r.Attempt)
		return nil
	}
	reason.Kind = KindHeld
	x.add(reason, "%s has fetched it, and starts it when a worker, the rate limit of its name or a pool is free.", r.Node)
	if w := x.census.nodes[r.Node]; w != nil {
		for _, q := range w.Serves {
			if q.Name == r.Queue && q.Active >= q.Workers {
				busy := Reason{Kind: KindBusy, Queue: q.Name, Node: r.Node, Help: scaleWorkers(q.Name, q.Workers+1)}
				if err := x.limited(ctx, &busy, q.Workers); err != nil {
					return err
				}
				x.add(busy, "%s of queue %s on %s runs a task already.", phrase.Each(q.Workers, "worker"), q.Name, r.Node)
			}
		}
	}
	return nil
}

// explainMessage explains a task whose message waits in a queue.
func (x *explainer) explainMessage(ctx context.Context) error {
	at := x.message.At
	if !at.After(x.now) {
		at = time.Time{}
	}
	retry := x.record != nil && x.record.State == task.StateRetrying && x.record.Error != nil
	unknown := retry && errors.Is(x.record.Error, task.ErrUnknownTask)
	switch {
	case unknown && !at.IsZero():
		x.add(Reason{Kind: KindNoHandler, At: at, Queue: x.queue, Node: x.record.NodeID, Help: registerHandler(x.name(), x.queue)},
			"The consumer that received it has no handler for %s. It is delivered again at %s.", x.name(), phrase.Stamp(at))
	case retry && !at.IsZero():
		x.add(Reason{Kind: KindRetry, At: at, Queue: x.queue, Node: x.record.NodeID, Help: cancelTask(x.id, x.queue)},
			"Attempt %d has failed, and the next one begins at %s%s.", max(x.record.Retries, 1), phrase.Stamp(at), phrase.Because(x.record.Error.Error()))
	case !at.IsZero():
		w, err := waits.Due(ctx, x.l.cfg.Results, x.envelope, at)
		if err == nil {
			err = x.explainLimits(ctx, w.Key == "" && x.message.Message.Generation > 0)
		}
		if err != nil {
			return err
		}
		x.add(Reason{Kind: KindDelayed, At: w.At, Queue: x.queue, Key: w.Key, Task: w.Task, Help: cancelTask(x.id, x.queue)}, "%s", w.Text)
	case x.record != nil && x.record.State == task.StateRequeued:
		x.add(Reason{Kind: KindRequeued, Queue: x.queue}, "Its dead letter was requeued, and it waits in queue %s.", x.queue)
	}
	if at.IsZero() { // a limit of concurrency lowers the number of workers
		if err := x.explainLimits(ctx, false); err != nil {
			return err
		}
	}
	return x.explainQueue(ctx, at.IsZero())
}

// explainQueue adds what holds up the whole queue, or the tasks of the same name. If the task is
// ready and nothing does, it says that the task waits for a free worker.
func (x *explainer) explainQueue(ctx context.Context, ready bool) error {
	if x.queue == "" { // the event about it was lost
		if ready {
			x.add(Reason{Kind: KindReady}, "It waits in a queue that is not known.")
		}
		return nil
	}
	pause, err := x.l.pauseOrBreaker(ctx, settings.QueuePause(x.queue), settings.QueueBreaker(x.queue))
	if err != nil {
		return err
	}
	if pause != nil {
		x.explainPause("Queue "+x.queue+" is", resumeQueue(x.queue), pause)
	}
	if name := x.name(); name != "" {
		named, err := x.l.pauseOrBreaker(ctx, settings.TaskPause(name), settings.TaskBreaker(name))
		if err != nil {
			return err
		}
		if named != nil { // its message may be in a queue that no consumer serves
			x.explainPause("The tasks "+name+" are", resumeTasks(name), named)
			return nil
		}
	}
	if x.census == nil {
		if ready && pause == nil {
			x.add(Reason{Kind: KindReady, Queue: x.queue}, "It waits in queue %s for a consumer.", x.queue)
		}
		return nil
	}
	n, paused, workers, active, silent, stopping := 0, 0, 0, 0, 0, 0
	var ids []string
	x.census.consumers(x.queue, func(w *Worker, s *ServedQueue) {
		if w.Stopping {
			stopping++
			return
		}
		n++
		if s == nil {
			silent++
			return
		}
		ids = append(ids, w.Node)
		if s.Paused {
			paused++
			return
		}
		workers, active = workers+s.Workers, active+s.Active
	})
	switch {
	case n == 0 && stopping > 0:
		x.add(Reason{Kind: KindNoConsumer, Queue: x.queue, Help: startConsumer(x.queue)}, "Each consumer of queue %s is stopping.", x.queue)
	case n == 0:
		x.add(Reason{Kind: KindNoConsumer, Queue: x.queue, Help: startConsumer(x.queue)}, "No consumer of queue %s answers or sends heartbeats.", x.queue)
	case pause != nil: // what consumers do follows from it
		return nil
	case paused == n:
		x.add(Reason{Kind: KindPaused, Queue: x.queue, Help: resumeQueue(x.queue)}, "%s of queue %s has paused the queue.", phrase.Each(n, "consumer"), x.queue)
	case !ready:
	default:
		knows, err := x.handled(ctx, ids)
		switch {
		case err != nil:
			return err
		case !knows && silent == 0:
			x.add(Reason{Kind: KindNoHandler, Queue: x.queue, Help: registerHandler(x.name(), x.queue)}, "No consumer of queue %s has a handler for %s.", x.queue, x.name())
		case workers > 0 && active >= workers && silent == 0:
			busy := Reason{Kind: KindBusy, Queue: x.queue, Help: scaleWorkers(x.queue, workers/max(n-paused, 1)+1)}
			if err := x.limited(ctx, &busy, workers/max(n-paused, 1)); err != nil {
				return err
			}
			x.add(busy, "%s of queue %s runs a task already.", phrase.Each(workers, "worker"), x.queue)
		default:
			x.add(Reason{Kind: KindReady, Queue: x.queue}, "It waits in queue %s for a free worker of its %d consumers.", x.queue, n-paused)
		}
	}
	if paused > 0 && paused < n {
		x.add(Reason{Kind: KindPaused, Queue: x.queue, Help: resumeQueue(x.queue)}, "%d of %d consumers of queue %s have paused it.", paused, n, x.queue)
	}
	return nil
}

// limited adds the stored limit of the queue of busy as the reason, if that limit allows no more
// workers in each consumer than these. busy then has no help of its own. Returns the errors of the
// settings.
func (x *explainer) limited(ctx context.Context, busy *Reason, workers int) error {
	if x.l.cfg.Settings == nil {
		return nil
	}
	l, found, err := settings.QueueLimit(busy.Queue).Get(ctx, x.l.cfg.Settings)
	if err != nil || !found || l.Concurrency == 0 || l.Concurrency > workers {
		return err
	}
	x.add(Reason{Kind: KindLimit, Queue: busy.Queue, Key: settings.QueueLimit(busy.Queue).String(), Help: endQueueLimit(busy.Queue)},
		"The limit of queue %s is %d at once, so that no consumer has more workers.", busy.Queue, l.Concurrency)
	busy.Help = nil
	return nil
}

// explainPause adds a pause. of is the beginning of the sentence: the paused thing and a verb.
func (x *explainer) explainPause(of string, help *Action, p *StoredPause) {
	until, by := "until it is resumed", ""
	if !p.Until.IsZero() {
		until = "until " + phrase.Stamp(p.Until)
	}
	if p.By != "" {
		by = " by " + p.By
	}
	x.add(Reason{Kind: KindPaused, At: p.Until, Queue: x.queue, Help: help}, "%s paused%s, %s%s.", of, by, until, phrase.Because(p.Reason))
}

// handled reports whether one of the consumers has a handler for the task, or it is not known.
func (x *explainer) handled(ctx context.Context, nodes []string) (bool, error) {
	name := x.name()
	if name == "" || len(nodes) == 0 {
		return true, nil
	}
	nodes = nodes[:min(len(nodes), control.MaxTargets)]
	replies, err := x.l.send(ctx, control.Command{Do: control.DoRegistered, Nodes: nodes})
	if err != nil && CodeOf(err) != CodeNoConsumer {
		return false, err
	}
	knows := func(r control.Reply) bool { return r.Error != "" || slices.Contains(r.Names, name) }
	return len(replies) < len(nodes) || slices.ContainsFunc(replies, knows), nil
}

// explainDead explains a dead letter.
func (x *explainer) explainDead() {
	attempts := ""
	if x.dead.Attempts > 0 {
		attempts = fmt.Sprintf(" in attempt %d", x.dead.Attempts)
	}
	x.add(Reason{Kind: KindDead, At: x.dead.At, Queue: x.queue, Help: requeueDead(x.id, x.queue)},
		"It failed for good at %s%s, and is a dead letter of queue %s%s.", phrase.Stamp(x.dead.At), attempts, x.queue, phrase.Because(x.dead.Reason))
}

// explainDeferral explains a task that waits for an answer from outside.
func (x *explainer) explainDeferral() {
	d := x.deferral
	x.queue = d.Queue
	r := Reason{Kind: KindAnswer, At: d.Deadline, Queue: d.Queue, Key: d.Key, Help: answerTask(d.Name, d.Key)}
	if d.Phase != jobstore.DeferralAwaiting {
		r.Help = startConsumer(d.Queue)
		x.add(r, "The wait for the answer for key %q is over, and a consumer of queue %s must handle that.", d.Key, d.Queue)
		return
	}
	x.add(r, "It awaits the answer for key %q until %s.", d.Key, phrase.Stamp(d.Deadline))
}

// explainJob explains a task with conditions by its job.
func (x *explainer) explainJob(ctx context.Context) error {
	e, err := x.l.WhyJob(ctx, int64(x.job.ID))
	x.reasons = e.Reasons
	return err
}

// explainRecord explains a task of which only the record is known.
func (x *explainer) explainRecord() {
	r := x.record
	ended := r.FinishedAt
	over := func(text string, args ...any) {
		x.add(Reason{Kind: KindOver, At: ended, Node: r.NodeID}, text, args...)
	}
	failure := ""
	if r.Error != nil {
		failure = r.Error.Error()
	}
	switch r.State {
	case task.StateSucceeded:
		over("It has succeeded at %s on %s, in attempt %d.", phrase.Stamp(ended), r.NodeID, r.Retries+1)
	case task.StateFailed:
		over("It has failed for good at %s%s.", phrase.Stamp(ended), phrase.Because(failure))
	case task.StateRevoked:
		text := "It was revoked, or its workflow ended before it"
		if !ended.IsZero() {
			text = "It was revoked, and ended at " + phrase.Stamp(ended)
		}
		over("%s.", text)
	case task.StateExpired:
		over("It has expired before its start: at %s it was too late.", phrase.Stamp(ended))
	case task.StateAwaiting:
		x.add(Reason{Kind: KindAnswer, Node: r.NodeID}, "It awaits an answer from outside; the store of jobs knows its key and its deadline.")
	case task.StateRetrying:
		x.add(Reason{Kind: KindRetry, Node: r.NodeID}, "An attempt on %s has ended, and the next one is queued%s.", r.NodeID, phrase.Because(failure))
	case task.StateStarted:
		x.explainStarted(r.NodeID, r.StartedAt, r.Retries+1)
	default:
		x.add(Reason{Kind: KindRequeued, Node: r.NodeID}, "Its dead letter, or that of a step before it, was requeued.")
	}
}

// explainStarted explains a task that has started on a node, and that no consumer shows.
func (x *explainer) explainStarted(node string, at time.Time, attempt int) {
	w := (*Worker)(nil)
	if x.census != nil {
		w = x.census.nodes[node]
	}
	if w != nil && !w.Offline && w.Role == events.RoleConsumer {
		x.add(Reason{Kind: KindRuns, At: at, Node: node, Queue: x.queue}, "It started on %s at %s, in attempt %d.", node, phrase.Stamp(at), attempt)
		return
	}
	x.add(Reason{Kind: KindLost, At: at, Node: node, Queue: x.queue},
		"It started on %s at %s, and that consumer is silent. When its lease ends, the broker delivers the task again.", node, phrase.Stamp(at))
}

// explainHistory explains a task by its last event, because no other part shows where it is.
func (x *explainer) explainHistory(ctx context.Context) error {
	r := x.history
	x.queue = r.Queue
	due := r.Due
	if !due.After(x.now) {
		due = time.Time{}
	}
	switch r.State {
	case history.Started:
		x.explainStarted(r.Node, r.Started, max(r.Attempts, 1))
	case history.Received:
		x.add(Reason{Kind: KindHeld, At: r.Received, Node: r.Node, Queue: r.Queue}, "%s has received it at %s, and has not started it.", r.Node, phrase.Stamp(r.Received))
	case history.Awaiting:
		x.add(Reason{Kind: KindAnswer, Node: r.Node, Queue: r.Queue}, "It awaits an answer from outside; the store of jobs knows its key and its deadline.")
	case history.Pending, history.Retrying:
		if err := x.explainLimits(ctx, false); err != nil {
			return err
		}
		if r.State == history.Retrying {
			x.add(Reason{Kind: KindRetry, At: due, Node: r.Node, Queue: r.Queue}, "Attempt %d has failed, and the next one is queued%s.", max(r.Attempts, 1), phrase.Because(r.Error))
		} else if !due.IsZero() {
			x.add(Reason{Kind: KindDelayed, At: due, Queue: r.Queue, Help: cancelTask(x.id, r.Queue)}, "It is due at %s.", phrase.Stamp(due))
		}
		return x.explainQueue(ctx, due.IsZero() && r.State == history.Pending)
	default:
		x.add(Reason{Kind: KindOver, At: r.Ended, Node: r.Node, Queue: r.Queue}, "It has %s at %s%s.", string(r.State), phrase.Stamp(r.Ended), phrase.Because(r.Error))
	}
	return nil
}
