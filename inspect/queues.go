package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/inspect/internal/stats"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/task"
)

// inspector returns the broker's counters.
func (l *Local) inspector() (broker.Inspector, error) {
	if l.cfg.Broker == nil {
		return nil, missing("queues", needBroker)
	}
	i, ok := capability.As[broker.Inspector](l.cfg.Broker)
	if !ok {
		return nil, wrapped(fmt.Errorf("this broker does not tell what waits: %w", broker.ErrUnsupported))
	}
	return i, nil
}

// ListQueues implements [Queues].
func (l *Local) ListQueues(ctx context.Context, q QueueQuery) (QueuePage, error) {
	page := QueuePage{Queues: []Queue{}}
	n, err := pageLimit(q.Limit)
	if err != nil {
		return page, err
	}
	i, err := l.inspector()
	if err != nil {
		return page, err
	}
	for _, name := range q.Names {
		if err := task.CheckName(name); err != nil {
			return page, wrapped(err)
		}
	}
	c, err := l.consumers(ctx)
	if err != nil {
		return page, err
	}
	names := slices.Sorted(slices.Values(q.Names))
	if len(names) == 0 {
		if names, err = l.names(ctx, c); err != nil {
			return page, wrapped(err)
		}
		if _, lists := capability.As[broker.QueueLister](l.cfg.Broker); !lists && (c == nil || len(c.queues()) == 0) {
			page.Notes = append(page.Notes, "no consumer answers or sends heartbeats, and this broker does not list its queues, so that only the queue \""+router.DefaultQueue+"\" is looked for; name the others")
		}
	}
	names = slices.DeleteFunc(slices.Compact(names), func(name string) bool { return q.Cursor != "" && name <= q.Cursor })
	r, err := l.queueReader(ctx, i, c, "")
	if err != nil {
		return page, wrapped(err)
	}
	page.Notes = append(page.Notes, r.notes...)
	for len(names) > 0 && len(page.Queues) < n {
		part := names[:min(len(names), n-len(page.Queues))]
		names = names[len(part):]
		found, err := r.read(ctx, part)
		if err != nil {
			return page, wrapped(err)
		}
		page.Queues = append(page.Queues, found...)
	}
	if len(names) > 0 {
		page.Next = page.Queues[n-1].Name
	}
	return page, nil
}

// GetQueue implements [Queues].
func (l *Local) GetQueue(ctx context.Context, name string) (Queue, error) {
	i, err := l.inspector()
	if err == nil {
		err = task.CheckName(name)
	}
	if err != nil {
		return Queue{}, wrapped(err)
	}
	c, err := l.consumers(ctx)
	if err != nil {
		return Queue{}, err
	}
	r, err := l.queueReader(ctx, i, c, name)
	if err != nil {
		return Queue{}, wrapped(err)
	}
	found, err := r.read(ctx, []string{name})
	if err == nil && len(found) == 0 {
		err = &Error{Code: CodeNotFound, Text: fmt.Sprintf("queue %s: not found", name), cause: broker.ErrNoQueue}
	}
	if err != nil {
		return Queue{}, wrapped(err)
	}
	return found[0], nil
}

// consumers is census, and nil without an error if no part can tell of consumers.
func (l *Local) consumers(ctx context.Context) (*census, error) {
	c, err := l.census(ctx)
	if CodeOf(err) == CodeUnsupported {
		return nil, nil
	}
	return c, err
}

// queueReader reads queues of the broker. It has their common parts. Safe for concurrent use.
type queueReader struct {
	broker broker.Inspector
	census *census                   // nil: no part can tell of consumers
	pauses map[string]settings.Pause // by queue
	since  time.Time                 // of the rates
	rates  map[string]*Rates         // by queue; nil: they are not known
	notes  []string
}

// queueReader returns a reader of the queues, or of one queue. It reads the stored pauses, and the
// counts of the history unless it has too many.
func (l *Local) queueReader(ctx context.Context, i broker.Inspector, c *census, queue string) (*queueReader, error) {
	r := &queueReader{broker: i, census: c, since: time.Now().Add(-rateWindow).UTC().Truncate(time.Minute)}
	if l.cfg.Settings != nil {
		values, err := l.cfg.Settings.List(ctx, "")
		if err != nil {
			return nil, err
		}
		r.pauses = settings.Read(values).QueuePauses
	}
	if l.cfg.History == nil {
		return r, nil
	}
	rows, err := l.cfg.History.Counts(ctx, history.CountQuery{Since: r.since, Queue: queue, PerQueue: true})
	if errors.Is(err, history.ErrQuery) {
		r.notes = []string{"too many queues have run tasks in the last minutes to show their rates; ask for one queue"}
		return r, nil
	}
	r.rates = make(map[string]*Rates)
	for k := range rows {
		one := r.ratesOf(rows[k].Queue)
		one.add(&rows[k])
		r.rates[rows[k].Queue] = one
	}
	return r, err
}

// ratesOf returns the counts of a queue in the last minutes, or nil if they are not known.
func (r *queueReader) ratesOf(queue string) *Rates {
	if one := r.rates[queue]; one != nil || r.rates == nil {
		return one
	}
	return &Rates{Since: r.since}
}

// read returns the queues with these names, in this order, with the answers of their consumers. It
// leaves out those that the broker does not have.
func (r *queueReader) read(ctx context.Context, names []string) ([]Queue, error) {
	counters, err := stats.Read(ctx, r.broker, names)
	if err != nil {
		return nil, err
	}
	all := make([]Queue, 0, len(names))
	for k, name := range names {
		st := counters[k]
		if st == nil {
			continue
		}
		q := Queue{Name: name, Rates: r.ratesOf(name), Ready: st.Ready, Held: st.Held, Delayed: st.Delayed, Dead: st.Dead, Oldest: utc(st.Oldest), Consumers: -1}
		if p, ok := r.pauses[name]; ok && p.Active(time.Now()) {
			q.Pause = pauseOf(&p)
		}
		if r.census != nil {
			q.Consumers = 0
			r.census.consumers(name, q.count)
		}
		all = append(all, q)
	}
	return all, nil
}

// count adds a consumer of the queue. served is nil if the consumer did not answer.
func (q *Queue) count(w *Worker, served *ServedQueue) {
	if !w.Stopping { // otherwise it takes no more tasks
		q.Consumers++
	}
	if served == nil {
		return
	}
	q.Active, q.Reserved = q.Active+served.Active, q.Reserved+served.Reserved
	if w.Stopping {
		return
	}
	if q.Workers += served.Workers; served.Paused {
		q.Paused++
	}
}

// existing returns the known queues that exist.
func (l *Local) existing(ctx context.Context, c *census) ([]string, error) {
	names, err := l.names(ctx, c)
	i, ok := capability.As[broker.Inspector](l.cfg.Broker)
	if err != nil || !ok {
		return names, err
	}
	return stats.Existing(ctx, i, names)
}

// ListMessages implements [Queues].
func (l *Local) ListMessages(ctx context.Context, q MessageQuery) (MessagePage, error) {
	page := MessagePage{Messages: []Message{}}
	n, err := l.pageOf(q.Queue, q.Limit, "messages")
	if err != nil {
		return page, err
	}
	found, err := broker.List(ctx, l.cfg.Broker, q.Queue, broker.ListQuery{Place: q.Place, Cursor: q.Cursor, Limit: n})
	if err != nil {
		return page, refused(err)
	}
	page.Next = found.Next
	for i := range found.Messages {
		page.Messages = append(page.Messages, l.message(q.Place, &found.Messages[i]))
	}
	return page, nil
}

// ListKeys implements [Queues].
func (l *Local) ListKeys(ctx context.Context, q KeyQuery) (KeyPage, error) {
	page := KeyPage{Keys: []QueueKey{}}
	n, err := l.pageOf(q.Queue, q.Limit, "keys")
	if err != nil {
		return page, err
	}
	found, err := broker.ListKeys(ctx, l.cfg.Broker, q.Queue, q.Cursor, n)
	page.Next = found.Next
	for _, k := range found.Keys {
		page.Keys = append(page.Keys, QueueKey{Key: k.Key, Ready: k.Ready, Held: k.Held, Oldest: utc(k.Oldest), Used: utc(k.Used)})
	}
	return page, refused(err)
}

// pageOf returns the size of a page of a queue. what names the records of the page.
func (l *Local) pageOf(queue string, limit int, what string) (int, error) {
	n, err := pageLimit(limit)
	if err == nil {
		err = task.CheckName(queue)
	}
	if err == nil && l.cfg.Broker == nil {
		err = missing(what, needBroker)
	}
	return n, wrapped(err)
}

// refused returns an error of the broker for the caller: ErrInvalid for a call that is malformed.
func refused(err error) error {
	if errors.Is(err, broker.ErrMalformed) {
		return errorf(CodeInvalid, "%v", err)
	}
	return wrapped(err)
}

// message describes a message of a queue.
func (l *Local) message(place broker.Place, found *broker.Listed) Message {
	b := found.Message
	m := Message{ID: task.ID(b.ID), Place: place, At: utc(found.At), Generation: b.Generation, Priority: b.Priority, Key: b.Key, Weight: b.Weight, Size: len(b.Body)}
	if found.Dead != nil {
		m.Reason = found.Dead.Reason
	}
	e, _, err := l.codec.Decode(b)
	if err != nil {
		m.Unread = err.Error()
		return m
	}
	m.Name, m.Sent, m.Attempt, m.Root = e.Name, utc(e.SentAt), e.Retries+1, e.RootID()
	if e.ID != "" {
		m.ID = e.ID
	}
	return m
}

// PurgeQueue implements [Queues].
func (l *Local) PurgeQueue(ctx context.Context, p Purge) (Change, error) {
	c := Change{Do: DoPurgeQueue, Target: p.Queue, DryRun: p.DryRun}
	i, err := l.inspector()
	if err == nil {
		err = task.CheckName(p.Queue)
	}
	if err != nil {
		return c, wrapped(err)
	}
	return l.change(ctx, c, nil, func(c *Change) (err error) {
		if !p.DryRun {
			c.Done, err = i.Purge(ctx, p.Queue)
			return err
		}
		st, err := i.Stats(ctx, p.Queue)
		c.Done = st.Ready
		return err
	})
}

// PauseQueue implements [Queues]. Without settings it pauses the consumers that run now, and a note
// says so. With settings it stores the pause, which consumers obey soon after.
func (l *Local) PauseQueue(ctx context.Context, p Pause) (Change, error) {
	c := Change{Do: DoPauseQueue, Target: p.Queue}
	if err := task.CheckName(p.Queue); err != nil {
		return c, wrapped(err)
	}
	if l.cfg.Settings != nil {
		return l.change(ctx, c, p, func(c *Change) error {
			err := c.stored(settings.PauseQueue(ctx, l.cfg.Settings, p.Queue, l.pauseBy(ctx, p.Until, p.Reason)))
			if err == nil {
				c.Notes = l.unknownQueue(ctx, p.Queue)
			}
			return err
		})
	}
	if !p.Until.IsZero() {
		return c, missing("a pause with an end", needSettings)
	}
	return l.change(ctx, c, p, func(c *Change) error {
		err := l.command(ctx, c, control.Command{Do: control.DoPause, Queues: []string{p.Queue}})
		c.Notes = append(c.Notes, "the pause is not stored: consumers that start later do not pause the queue")
		return err
	})
}

// unknownQueue returns a note if neither the broker nor a consumer knows the queue of a stored
// change. It is nil if the broker cannot tell, or the queue is known.
func (l *Local) unknownQueue(ctx context.Context, queue string) []string {
	i, ok := capability.As[broker.Inspector](l.cfg.Broker)
	if !ok {
		return nil
	}
	if _, err := i.Stats(ctx, queue); !errors.Is(err, broker.ErrNoQueue) {
		return nil // another error does not concern the change, which is made
	}
	// only now, because consumers declare their queues and have some time to answer
	if c, err := l.consumers(ctx); err != nil || c != nil && slices.Contains(c.queues(), queue) {
		return nil
	}
	return []string{"the broker has no queue " + queue + ", and no consumer of it is known: check the name; the setting is stored, and applies as soon as there is one"}
}

// ResumeQueue implements [Queues].
func (l *Local) ResumeQueue(ctx context.Context, queue string) (Change, error) {
	c := Change{Do: DoResumeQueue, Target: queue}
	if err := task.CheckName(queue); err != nil {
		return c, wrapped(err)
	}
	return l.change(ctx, c, nil, func(c *Change) error {
		stored := false
		if l.cfg.Settings != nil {
			var err error
			if stored, err = settings.ResumeQueue(ctx, l.cfg.Settings, queue); err != nil {
				return err
			}
		}
		// A command may have paused single consumers as well.
		err := l.command(ctx, c, control.Command{Do: control.DoResume, Queues: []string{queue}})
		if stored {
			c.Done, c.Stored = 1, true
			if code := CodeOf(err); code == CodeNoConsumer || code == CodeUnsupported {
				return nil
			}
		}
		return err
	})
}

// command sends a command to consumers, and adds their answers to c. Done counts the consumers that
// have executed it. Returns ErrNoConsumer if none answers.
func (l *Local) command(ctx context.Context, c *Change, cmd control.Command) error {
	if l.cfg.Control == nil {
		return missing("consumers", needControl)
	}
	replies, err := l.send(ctx, cmd)
	c.Nodes = make([]NodeAnswer, len(replies))
	for i := range replies {
		r := &replies[i]
		c.Nodes[i] = NodeAnswer{Node: r.Node, At: r.At, Queues: r.Queues, Error: r.Error}
		if r.Error == "" {
			c.Done++
		}
	}
	return err
}

// send sends a command and waits for answers, at most for Config.Listen: for Config.Replies, or
// for those of the named nodes, or for those of the consumers that Run knows. Fewer answers than
// Config.Replies or named nodes are an error, which comes with the answers.
func (l *Local) send(ctx context.Context, cmd control.Command) ([]control.Reply, error) {
	before := l.cfg.Control.Refused()
	wait := control.Wait{Replies: l.cfg.Replies, Timeout: l.cfg.Listen}
	guess := wait.Replies == 0 && (len(cmd.Nodes) == 0 || len(cmd.Queues) > 0)
	if guess {
		wait = l.patience(l.knownNodes(), cmd.Nodes, cmd.Queues)
	}
	replies, err := l.cfg.Control.Send(ctx, cmd, wait)
	if guess && errors.Is(err, control.ErrMissing) && len(replies) > 0 {
		err = nil // a consumer may have ended meanwhile
	}
	if err != nil && (!errors.Is(err, control.ErrMissing) || len(replies) > 0) {
		return replies, err
	}
	if len(replies) > 0 {
		return replies, nil
	}
	text := noAnswer
	if n := l.cfg.Control.Refused() - before; n > 0 {
		text = fmt.Sprintf("%s (%d answers were not signed with the given keys)", noAnswer, n)
	}
	if len(cmd.Queues) > 0 {
		text += "; the command is only for consumers of " + strings.Join(cmd.Queues, ", ")
	}
	return nil, errorf(CodeNoConsumer, "%s", text)
}
