package inspect

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/inspect/internal/asides"
	"github.com/swarmiji/swarmiji/inspect/internal/stats"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// checkID is the id of the record for which a check asks, and the beginning of the id of its event.
const checkID = "swarmiji-doctor"

// checkEvent is the type of the event that a check sends to itself.
const checkEvent = "doctor"

// eventTime limits the wait for the event of a check.
const eventTime = 5 * time.Second

// clockSlack is the difference of clocks above which a check warns. Results, expiry and signed
// commands depend on clocks.
const clockSlack = time.Second

// findings collects the results of checks.
type findings struct{ list []Finding }

func (f *findings) ok(check, format string, args ...any) {
	f.list = append(f.list, Finding{Check: check, Outcome: Fine, Detail: fmt.Sprintf(format, args...)})
}

func (f *findings) warn(check, format string, args ...any) {
	f.list = append(f.list, Finding{Check: check, Outcome: Warn, Detail: fmt.Sprintf(format, args...)})
}

func (f *findings) fail(check string, err error) {
	f.list = append(f.list, Finding{Check: check, Outcome: Failed, Detail: err.Error(), Code: CodeOf(err)})
}

// Check implements [Health].
func (l *Local) Check(ctx context.Context, q CheckQuery) (Report, error) {
	for _, name := range q.Queues {
		if err := task.CheckName(name); err != nil {
			return Report{}, wrapped(err)
		}
	}
	f := &findings{list: []Finding{}}
	if l.cfg.Results != nil {
		l.checkResults(ctx, f)
	}
	if l.cfg.Events != nil {
		l.checkEvents(ctx, f)
	}
	l.forget() // the clocks need answers of now
	c, err := l.consumers(ctx)
	if err != nil {
		return Report{f.list}, err
	}
	if c != nil {
		checkConsumers(c, f)
	}
	if l.cfg.Broker != nil {
		l.checkQueues(ctx, f, q.Queues, c)
	}
	return Report{f.list}, wrapped(ctx.Err())
}

// checkResults checks that the result store answers, and warns if results end with their process.
func (l *Local) checkResults(ctx context.Context, f *findings) {
	if resultstore.RepliesOnly(l.cfg.Results) {
		f.warn("results", "reply queues: a result is lost with the process that submitted its task, and swarmiji result shows none; results= names a store that keeps them")
		return
	}
	if _, err := l.cfg.Results.Load(ctx, checkID); err != nil && !errors.Is(err, resultstore.ErrNotFound) {
		f.fail("results", err)
		return
	}
	f.ok("results", "the store keeps the results of tasks")
}

// checkEvents sends an event and waits until it comes back. It also checks the retention of events.
func (l *Local) checkEvents(ctx context.Context, f *findings) {
	// a bus that loses events must not use up the time of the other checks
	patience := eventTime
	if end, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(end)/4)
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	took, err := roundTrip(waiting, l.cfg.Events)
	cancel()
	if err != nil {
		f.fail("events", fmt.Errorf("an event that was sent did not come back: %w", err))
		return
	}
	f.ok("events", "one came back after %v", took.Round(time.Millisecond))
	r, ok := capability.As[events.Retainer](l.cfg.Events)
	if !ok {
		f.warn("retention", "this bus keeps no events")
		return
	}
	sub, err := r.Replay(ctx, events.Filter{Types: []string{checkEvent}}, time.Now())
	switch {
	case errors.Is(err, events.ErrNotRetained):
		f.ok("retention", "the bus keeps no events for late listeners; the parameter retain= of the URL changes that. Revocations have their own bus")
	case err != nil:
		f.fail("retention", err)
	default:
		f.ok("retention", "the bus keeps events for late listeners")
		closeSub(ctx, sub)
	}
}

func roundTrip(ctx context.Context, bus events.EventBus) (time.Duration, error) {
	id := task.ID(checkID + "-" + rand.Text())
	sub, err := bus.Subscribe(ctx, events.Filter{Types: []string{checkEvent}, TaskID: id})
	if err != nil {
		return 0, err
	}
	defer closeSub(ctx, sub)
	begin := time.Now()
	if err := bus.Publish(ctx, events.Event{Type: checkEvent, TaskID: id, Time: begin}); err != nil {
		return 0, err
	}
	_, err = sub.Receive(ctx)
	return time.Since(begin), err
}

// checkConsumers checks that consumers answer, and their clocks.
func checkConsumers(c *census, f *findings) {
	text := noAnswer
	if c.refused > 0 {
		text = fmt.Sprintf("%s (%d answers were not signed with the given keys)", noAnswer, c.refused)
	}
	switch n := c.quiet(); {
	case c.err != nil && len(c.replies) == 0 && CodeOf(c.err) != CodeUnsupported:
		f.fail("consumers", c.err)
	case len(c.replies) > 0:
		f.ok("consumers", "%d answer", len(c.replies))
		checkClocks(f, c.replies, c.began, c.at)
		checkStuck(f, c.replies)
	case n > 0:
		f.warn("consumers", "%d send heartbeats, but %s", n, text)
	default:
		f.warn("consumers", "%s", text)
	}
}

// checkClocks compares the clocks of consumers with the local one. The command was sent after begin
// and all answers came before end. A time outside of this interval is an error of the consumer's
// clock.
func checkClocks(f *findings, replies []control.Reply, begin, end time.Time) {
	good := true
	for i := range replies {
		r := &replies[i]
		var off time.Duration
		switch {
		case r.At.Before(begin.Add(-clockSlack)):
			off = r.At.Sub(begin)
		case r.At.After(end.Add(clockSlack)):
			off = r.At.Sub(end)
		default:
			continue
		}
		good = false
		f.warn("clock", "that of %s is off by %v; delays and expiry go by clocks, and signed commands from %v on are refused", r.Node, off.Round(time.Millisecond), control.DefaultWindow)
	}
	if good {
		f.ok("clock", "no consumer's is off by more than %v", clockSlack+end.Sub(begin).Round(time.Second))
	}
}

// checkStuck warns about consumers with handlers that run beyond their hard time limit.
func checkStuck(f *findings, replies []control.Reply) {
	good := true
	for _, r := range replies {
		if r.Stats == nil {
			continue
		}
		for _, q := range r.Stats.Queues {
			if q.Stuck > 0 {
				good = false
				f.warn("handlers", "%d of queue %s on %s still run after their hard time limit; only a restart of the process ends them", q.Stuck, q.Name, r.Node)
			}
		}
	}
	if good {
		f.ok("handlers", "none runs beyond its hard time limit")
	}
}

// checkQueues checks the named queues and all known ones. c may be nil.
func (l *Local) checkQueues(ctx context.Context, f *findings, named []string, c *census) {
	i, ok := capability.As[broker.Inspector](l.cfg.Broker)
	if !ok {
		f.warn("queues", "this broker does not tell what waits")
		return
	}
	l.audit(ctx, f, "")
	names, err := l.names(ctx, c)
	if err != nil {
		f.fail("queues", err)
	}
	aside, err := asides.Read(ctx, l.cfg.Settings)
	if err != nil {
		f.fail("stored settings", err)
	}
	names = append(names, named...)
	slices.Sort(names)
	r, err := l.queueReader(ctx, i, c, "")
	if err != nil {
		f.fail("queues", err)
		r = &queueReader{broker: i, census: c} // without rates and pauses
	}
	names = slices.Compact(names)
	parts := make([]findings, len(names))
	stats.Each(len(names), func(k int) {
		l.checkOne(ctx, &parts[k], r, &aside, names[k], slices.Contains(named, names[k]))
	})
	for _, p := range parts {
		for _, one := range p.list {
			if one.Check != "settings" || !slices.Contains(f.list, one) { // queues share servers
				f.list = append(f.list, one)
			}
		}
	}
}

// checkOne checks a queue. It is wrong only for a named queue that it does not exist.
func (l *Local) checkOne(ctx context.Context, f *findings, r *queueReader, aside *asides.Known, name string, named bool) {
	found, err := r.read(ctx, []string{name})
	switch {
	case err != nil:
		f.fail("queue "+name, err)
		return
	case len(found) == 0 && named:
		f.fail("queue "+name, fmt.Errorf("it does not exist: %w", broker.ErrNoQueue))
		return
	case len(found) == 0:
		return // no program uses this queue
	}
	q := &found[0]
	checkQueue(f, q, checkAside(f, aside, q, r.census))
	l.audit(ctx, f, name)
	l.checkKeys(ctx, f, name)
	if side, err := r.broker.Stats(ctx, name+".suspects"); err == nil && side.Ready+side.Held+side.Dead > 0 {
		f.warn("queue "+name, "an older version has left its side queue %s.suspects: %d waiting, %d held, %d dead letters; consumers of this version run what waits there from their next start on, and dead letters are requeued by 'swarmiji dead requeue %s.suspects'", name, side.Ready, side.Held, side.Dead, name)
	}
}

// checkKeys warns about tasks with fairness keys among the first ones of a queue that is not fair.
func (l *Local) checkKeys(ctx context.Context, f *findings, name string) {
	if q, err := broker.Describe(ctx, l.cfg.Broker, name); err != nil || q.Fair {
		return // the broker does not tell, or the keys have an effect
	}
	page, err := broker.List(ctx, l.cfg.Broker, name, broker.ListQuery{Place: broker.PlaceWaiting, Limit: 100})
	if err == nil && slices.ContainsFunc(page.Messages, func(m broker.Listed) bool { return m.Message.Key != "" }) {
		f.warn("queue "+name, "its tasks have fairness keys, and it is not fair, so the keys have no effect; move them to a new queue that producers and consumers declare with Fair")
	}
}

// audit reports settings of the server that weaken the promises of the adapter.
func (l *Local) audit(ctx context.Context, f *findings, queue string) {
	auditor, ok := capability.As[broker.Auditor](l.cfg.Broker)
	if !ok {
		return
	}
	notes, err := auditor.Audit(ctx, queue)
	if err != nil {
		f.fail("settings", err)
	}
	for _, note := range notes {
		if !slices.ContainsFunc(f.list, func(known Finding) bool { return known.Detail == note }) {
			f.warn("settings", "%s", note)
		}
	}
}

// checkQueue warns about waiting tasks without a consumer, about consumers that have paused the
// queue, and about dead letters. explained says that another finding names why its tasks wait.
func checkQueue(f *findings, q *Queue, explained bool) {
	check := "queue " + q.Name
	good := !explained
	if q.Consumers == 0 && q.Ready > 0 && !explained {
		good = false
		f.warn(check, "%d tasks wait, and no consumer takes them: none answers or sends heartbeats, or each is stopping; start one", q.Ready)
	}
	if q.Paused > 0 {
		good = false
		f.warn(check, "is paused on %d of %d consumers, %s waiting: swarmiji resume %s", q.Paused, q.Consumers, told(q.Ready), q.Name)
	}
	if q.Dead > 0 {
		good = false
		f.warn(check, "has %d dead letters: swarmiji dead list %s", q.Dead, q.Name)
	}
	if good {
		f.ok(check, "%s waiting, %s held, %s delayed, %s dead", told(q.Ready), told(q.Held), told(q.Delayed), told(q.Dead))
	}
}

// told formats a number of a queue for people.
func told(n int) string {
	if n < 0 {
		return "?"
	}
	return strconv.Itoa(n)
}
