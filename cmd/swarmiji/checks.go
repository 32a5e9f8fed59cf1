package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// settings checks the URL itself.
func (a *app) settings(f *findings) {
	f.ok("broker", "%s", open.Redact(a.broker))
	_, query, _ := strings.Cut(a.broker, "?")
	params, _ := url.ParseQuery(query) // an unreadable query is refused when the URL is opened
	for _, at := range []string{a.broker, params.Get("results"), params.Get("events")} {
		if at != "" {
			checkEncryption(f, at)
		}
	}
	scheme, _, _ := strings.Cut(open.Redact(a.broker), "://")
	if strings.Contains(a.broker, "queue_type=classic") {
		f.warn("durability", "classic queues live on one node of RabbitMQ; with its disk they are lost. Quorum queues are the default")
	}
	if u, err := url.Parse(a.broker); err == nil && scheme == "nats-embedded" && u.Query().Get("sync") != "always" {
		f.warn("durability", "the embedded server writes to the disk from time to time; a power cut loses what it confirmed since. sync=always does not")
	}
	if strings.HasPrefix(scheme, "hworker") {
		f.warn("durability", "hworker's keys can neither count, delay nor bury for a reason; see docs/capabilities.md for all that is weaker")
	}
}

// checkEncryption warns if traffic to another machine is not encrypted.
func checkEncryption(f *findings, at string) {
	scheme, hosts, _ := strings.Cut(open.Redact(at), "://")
	verified := strings.Contains(at, "sslmode=verify-") || !strings.Contains(at, "sslmode=") && strings.HasPrefix(os.Getenv("PGSSLMODE"), "verify-")
	if strings.HasPrefix(scheme, "postgres") && !verified && !local(hosts) {
		f.warn("encryption", "%s://%s sends results and passwords in plain text; over a network that others use, add sslmode=verify-full", scheme, hosts)
	}
	if slices.Contains([]string{"amqp", "nats", "redis", "redis-cluster", "redis-sentinel", "hworker+redis"}, scheme) && !local(hosts) {
		f.warn("encryption", "%s://%s sends tasks and passwords in plain text; over a network that others use, take the scheme through TLS", scheme, hosts)
	}
}

// local reports whether all hosts of a redacted URL are this machine.
func local(hosts string) bool {
	for host := range strings.SplitSeq(hosts, ",") {
		name, _, err := net.SplitHostPort(host)
		if err != nil {
			name = host // without a port
		}
		if ip := net.ParseIP(name); name != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return false
		}
	}
	return true
}

// checkResults checks that the result store answers, and warns if results end with their process.
func checkResults(ctx context.Context, s *open.Swarm, f *findings) {
	if resultstore.RepliesOnly(s.Results) {
		f.warn("results", "reply queues: a result is lost with the process that submitted its task, and swarmiji result shows none; results= names a store that keeps them")
		return
	}
	if _, err := s.Results.Load(ctx, "swarmiji-doctor"); err != nil && !errors.Is(err, resultstore.ErrNotFound) {
		f.fail("results", err)
		return
	}
	f.ok("results", "the store keeps the results of tasks")
}

// doctorEvent is the type of the event that the doctor sends to itself.
const doctorEvent = "doctor"

// checkEvents sends an event and waits until it comes back. It also checks the retention of events.
func checkEvents(ctx context.Context, s *open.Swarm, f *findings, patience time.Duration) {
	// a bus that loses events must not use up the time of the other checks
	waiting, cancel := context.WithTimeout(ctx, patience)
	took, err := roundTrip(waiting, s.Events)
	cancel()
	if err != nil {
		f.fail("events", fmt.Errorf("an event that was sent did not come back: %w", err))
		return
	}
	f.ok("events", "one came back after %v", took.Round(time.Millisecond))
	r, ok := capability.As[events.Retainer](s.Events)
	if !ok {
		f.warn("retention", "this bus keeps no events")
		return
	}
	sub, err := r.Replay(ctx, events.Filter{Types: []string{doctorEvent}}, time.Now())
	switch {
	case errors.Is(err, events.ErrNotRetained):
		f.ok("retention", "the bus keeps no events for late listeners; the parameter retain= of the URL changes that. Revocations have their own bus")
	case err != nil:
		f.fail("retention", err)
	default:
		f.ok("retention", "the bus keeps events for late listeners")
		_ = sub.Close(ctx) // no event is needed
	}
}

func roundTrip(ctx context.Context, bus events.EventBus) (time.Duration, error) {
	id := task.ID("swarmiji-doctor-" + rand.Text())
	sub, err := bus.Subscribe(ctx, events.Filter{Types: []string{doctorEvent}, TaskID: id})
	if err != nil {
		return 0, err
	}
	defer func() { _ = sub.Close(context.WithoutCancel(ctx)) }() // no further event is needed
	begin := time.Now()
	if err := bus.Publish(ctx, events.Event{Type: doctorEvent, TaskID: id, Time: begin}); err != nil {
		return 0, err
	}
	_, err = sub.Receive(ctx)
	return time.Since(begin), err
}

// clockSlack is the difference of clocks above which the doctor warns. Results, expiry and signed
// commands depend on clocks.
const clockSlack = time.Second

// checkClocks compares the clocks of consumers with the local one. The command was sent after begin
// and all answers came before now. A time outside of this interval is an error of the consumer's
// clock.
func checkClocks(f *findings, replies []control.Reply, begin time.Time) {
	end, good := time.Now(), true
	for _, r := range replies {
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

// checkQueues checks the named queues, the queues of the consumers, and the default queue.
func checkQueues(ctx context.Context, s *open.Swarm, f *findings, named []string, c *census) {
	i, ok := capability.As[broker.Inspector](s.Broker)
	if !ok {
		f.warn("queues", "this broker does not tell what waits")
		return
	}
	audit(ctx, s, f, "")
	names := append(c.names(), named...)
	slices.Sort(names)
	for _, q := range slices.Compact(names) {
		st, err := i.Stats(ctx, q)
		switch {
		case errors.Is(err, broker.ErrNoQueue) && slices.Contains(named, q):
			f.fail("queue "+q, fmt.Errorf("it does not exist: %w", err))
			continue
		case errors.Is(err, broker.ErrNoQueue):
			continue // no program uses this queue
		case err != nil:
			f.fail("queue "+q, err)
			continue
		}
		checkQueue(f, q, st, c, s.Events != nil)
		audit(ctx, s, f, q)
		if side, err := i.Stats(ctx, q+".suspects"); err == nil && side.Ready+side.Held+side.Dead > 0 {
			f.warn("queue "+q, "an older version has left its side queue %s.suspects: %d waiting, %d held, %d dead letters; consumers of this version run what waits there from their next start on, and dead letters are requeued by 'swarmiji dead requeue %s.suspects'", q, side.Ready, side.Held, side.Dead, q)
		}
	}
}

// audit reports settings of the server that weaken the promises of the adapter.
func audit(ctx context.Context, s *open.Swarm, f *findings, q string) {
	auditor, ok := capability.As[broker.Auditor](s.Broker)
	if !ok {
		return
	}
	notes, err := auditor.Audit(ctx, q)
	if err != nil {
		f.fail("settings", err)
	}
	for _, note := range notes {
		if !slices.ContainsFunc(f.list, func(known finding) bool { return known.Detail == note }) {
			f.warn("settings", "%s", note)
		}
	}
}

// checkQueue warns about waiting tasks without a consumer, about consumers that have paused the
// queue, and about dead letters. heard is true if there is a bus on which consumers tell their
// queues.
func checkQueue(f *findings, q string, st broker.Stats, c *census, heard bool) {
	check := "queue " + q
	good := true
	if heard && c.queues[q] == 0 && st.Ready > 0 {
		good = false
		f.warn(check, "%d tasks wait, and no consumer that answers or sends heartbeats takes them; start its consumer", st.Ready)
	}
	if n := c.paused[q]; n > 0 {
		good = false
		f.warn(check, "is paused on %d of %d consumers, %s waiting: swarmiji resume %s", n, c.queues[q], told(st.Ready), q)
	}
	if st.Dead > 0 {
		good = false
		f.warn(check, "has %d dead letters: swarmiji dead list %s", st.Dead, q)
	}
	if good {
		f.ok(check, "%s waiting, %s held, %s delayed, %s dead", told(st.Ready), told(st.Held), told(st.Delayed), told(st.Dead))
	}
}

// collector gathers the warnings that adapters log about the settings of their servers. Safe for
// concurrent use.
type collector struct {
	mu    sync.Mutex
	lines []string
}

func (c *collector) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(c, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: func(groups []string, at slog.Attr) slog.Attr {
		if len(groups) == 0 && (at.Key == slog.TimeKey || at.Key == slog.LevelKey) {
			return slog.Attr{}
		}
		return at
	}}))
}

// Write adds a log line, at most 100, each one once. It implements io.Writer and never fails.
func (c *collector) Write(line []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if text := strings.TrimSpace(string(line)); len(c.lines) < 100 && !slices.Contains(c.lines, text) {
		c.lines = append(c.lines, text)
	}
	return len(line), nil
}

func (c *collector) taken() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.lines)
}
