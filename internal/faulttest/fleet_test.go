package faulttest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/ledger"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/open"
	_ "github.com/swarmiji/swarmiji/open/all"
)

// patience limits every wait. It is long enough for a busy machine, so only a test that hangs
// reaches it.
const patience = 3 * time.Minute

// look is the pause between two looks at a ledger. Under the race detector a look at a long ledger
// takes some 20 ms of a processor that the programs need.
const look = 100 * time.Millisecond

// fleet is a queue with its producers, its consumers and their common ledger.
type fleet struct {
	t      *testing.T
	url    string
	queue  string
	ledger string
	n      int // number of programs started so far
	all    []*program
}

func newFleet(t *testing.T, url string) *fleet {
	t.Helper()
	return &fleet{t: t, url: url, queue: testserver.Namespace(), ledger: filepath.Join(t.TempDir(), "ledger")}
}

// settings holds the variables of a program, by name without the prefix CHAOS_.
type settings map[string]any

func (f *fleet) consumer(s settings) *program { return f.start("consumer", s) }
func (f *fleet) producer(s settings) *program { return f.start("producer", s) }

func (f *fleet) start(role string, s settings) *program {
	f.t.Helper()
	f.n++
	name := fmt.Sprintf("%s-%d", role, f.n)
	all := settings{"ROLE": role, "BROKER_URL": f.url, "QUEUE": f.queue, "LEDGER": f.ledger, "ID": name}
	for k, v := range s {
		all[k] = v
	}
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "CHAOS_") })
	for k, v := range all {
		env = append(env, fmt.Sprintf("CHAOS_%s=%v", k, v))
	}
	p := start(f.t, name, env)
	f.all = append(f.all, p)
	return p
}

func (f *fleet) history() ledger.History {
	f.t.Helper()
	h, err := ledger.Load(f.ledger)
	if err != nil {
		f.t.Fatal(err)
	}
	return h
}

// await waits until cond holds for the ledger, and returns the ledger. It fails the test after
// patience.
func (f *fleet) await(what string, cond func(h ledger.History) bool) ledger.History {
	f.t.Helper()
	return f.awaitWithin(patience, what, cond)
}

func (f *fleet) awaitWithin(d time.Duration, what string, cond func(h ledger.History) bool) ledger.History {
	f.t.Helper()
	deadline := time.NewTimer(d)
	defer deadline.Stop()
	tick := time.NewTicker(look) // each tick reads the whole ledger
	defer tick.Stop()
	for {
		h := f.history()
		if cond(h) {
			return h
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			f.explain(h)
			f.t.Fatalf("%v passed without: %s\n%s", d, what, summary(h))
		}
	}
}

// explain logs the confirmed tasks that no consumer has taken or finished, and the queue. It ends
// the programs so that their logs show their goroutines.
func (f *fleet) explain(h ledger.History) {
	for i, t := range h.Lacking(ledger.Confirmed, ledger.Taken) {
		if i == 20 {
			break
		}
		f.t.Logf("%s was confirmed at %s and not taken", t.ID, t.Lines[0].At.Format(time.StampMilli))
	}
	open := h.Open()
	for _, t := range open[:min(len(open), 20)] {
		f.t.Logf("not finished: %v", t)
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	if i, ok := capability.As[broker.Inspector](f.connect(f.url).Broker); ok {
		s, err := i.Stats(ctx, f.queue)
		f.t.Logf("queue %s: %+v, error %v", f.queue, s, err)
	}
	for _, p := range f.all {
		if !p.ended() {
			p.signal(syscall.SIGQUIT)
			p.awaitEnd(5 * time.Second)
		}
	}
}

// atLeast returns the condition that at least n tasks have the event.
func atLeast(n int, e ledger.Event) func(ledger.History) bool {
	return func(h ledger.History) bool { return len(h.Tasks(e)) >= n }
}

// running returns the condition that p has started a confirmed task and not finished it.
func running(p *program) func(ledger.History) bool {
	return func(h ledger.History) bool {
		return slices.ContainsFunc(h.Open(), func(t *ledger.Task) bool {
			last := t.Lines[len(t.Lines)-1]
			return last.Event == ledger.Started && last.By == p.name
		})
	}
}

// nothingLost is the condition that no confirmed task is lost.
func nothingLost(h ledger.History) bool { return len(h.Check(ledger.NoLoss)) == 0 }

func allTaken(h ledger.History) bool { return len(h.Lacking(ledger.Confirmed, ledger.Taken)) == 0 }

func summary(h ledger.History) string {
	s := "the ledger has"
	for _, e := range []ledger.Event{ledger.Submitted, ledger.Confirmed, ledger.Failed, ledger.Started, ledger.Finished, ledger.Result} {
		s += " " + strconv.Itoa(len(h.Tasks(e))) + " " + string(e)
	}
	return s + fmt.Sprintf("; %d confirmed and not finished", len(h.Check(ledger.NoLoss)))
}

// check checks the ledger against the rules. It fails the test if no task has finished.
func (f *fleet) check(rules ...ledger.Rule) {
	f.t.Helper()
	h := f.history()
	f.t.Log(summary(h))
	if len(h.Tasks(ledger.Finished)) == 0 {
		f.t.Error("no task finished: the test shows nothing")
	}
	vs := h.Check(rules...)
	for i, v := range vs {
		if i == 10 {
			f.t.Errorf("and %d more", len(vs)-i)
			break
		}
		f.t.Error(v)
	}
}

// awaitLog waits until a program has logged a text.
func (f *fleet) awaitLog(p *program, text string) {
	f.t.Helper()
	f.await(p.name+" logs "+strconv.Quote(text), func(ledger.History) bool { return strings.Contains(p.output(), text) })
}

// held returns the ids of the tasks that a process which dies now may leave to other processes.
// These are the running tasks, and the tasks that finished after since: their acknowledgement may
// not have reached the broker.
func held(h ledger.History, since time.Time) map[string]bool {
	ids := make(map[string]bool)
	for _, t := range h.Open() {
		ids[t.ID] = true
	}
	for _, t := range h.Tasks(ledger.Finished) {
		if t.Lines[len(t.Lines)-1].At.After(since) {
			ids[t.ID] = true
		}
	}
	return ids
}

// submittedBefore returns the ids of the tasks submitted before a time.
func submittedBefore(h ledger.History, moment time.Time) map[string]bool {
	ids := make(map[string]bool)
	for _, t := range h.Tasks(ledger.Submitted) {
		if t.Lines[0].At.Before(moment) {
			ids[t.ID] = true
		}
	}
	return ids
}

// startedAfter returns the condition that a task was started after a time.
func startedAfter(moment time.Time) func(ledger.History) bool {
	return func(h ledger.History) bool { return !firstStart(h, moment).IsZero() }
}

// firstStart returns the time of the first start after a moment. It returns the zero time if no
// task was started after it.
func firstStart(h ledger.History, moment time.Time) time.Time {
	var first time.Time
	for _, t := range h {
		for _, l := range t.Lines {
			if l.Event == ledger.Started && l.At.After(moment) && (first.IsZero() || l.At.Before(first)) {
				first = l.At
			}
		}
	}
	return first
}

// connect opens the broker in this process.
func (f *fleet) connect(url string) *open.Swarm {
	f.t.Helper()
	s, err := open.Open(f.t.Context(), url, open.Options{Logger: quiet()})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			f.t.Errorf("close: %v", err)
		}
	})
	return s
}

// quiet returns a logger that discards the expected log lines of faults.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// awaitStats waits until cond holds for the statistics of the queue.
func (f *fleet) awaitStats(b broker.Broker, what string, cond func(broker.Stats) bool) {
	f.t.Helper()
	inspector, ok := capability.As[broker.Inspector](b)
	if !ok {
		f.t.Fatal("the broker cannot tell the length of a queue")
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last broker.Stats
	var lastErr error
	for {
		s, err := inspector.Stats(ctx, f.queue)
		switch {
		case err == nil && cond(s):
			return
		case err == nil:
			last = s
		case ctx.Err() == nil:
			lastErr = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			f.t.Fatalf("%v passed without: %s; the queue had %+v, the last error was %v", patience, what, last, lastErr)
		}
	}
}

// drain waits until no message waits or is held, ends the consumers, and repeats that with another
// consumer for messages that came back.
//
// It is not enough that all confirmed tasks have finished:
//
//   - The second message of a task that was submitted twice may still wait.
//   - Redis may give back a finished task whose end its replica does not know.
//   - RabbitMQ does not count the messages that its consumers hold.
//   - A consumer that stops gives back a message if it has not yet read that message's earlier
//     starts.
func (f *fleet) drain(consumers ...*program) {
	f.t.Helper()
	b := f.connect(f.url).Broker
	hold := 100 * time.Millisecond // each consumer has more time to begin its messages than the last
	for begin := time.Now(); ; consumers, hold = []*program{f.consumer(settings{})}, 2*hold {
		f.awaitStats(b, "nothing left to do", idleFor(hold))
		for _, c := range consumers {
			c.terminate()
		}
		var left broker.Stats
		f.awaitStats(b, "an answer", func(s broker.Stats) bool { left = s; return true })
		if idle(left) {
			return
		}
		if time.Since(begin) > patience {
			f.t.Fatalf("consumer after consumer stops without having run what is left: %+v", left)
		}
		f.t.Logf("the consumers gave back %d messages of tasks that have finished", left.Ready)
	}
}

// idle reports whether no message waits and no consumer holds one, as far as the broker counts
// them.
func idle(s broker.Stats) bool { return s.Ready == 0 && s.Held <= 0 }

// idleFor reports whether all statistics that it was asked about for a time d were idle.
func idleFor(d time.Duration) func(s broker.Stats) bool {
	var since time.Time
	return func(s broker.Stats) bool {
		switch {
		case !idle(s):
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		}
		return !since.IsZero() && time.Since(since) >= d
	}
}

// awaitEmpty waits until the queue has neither ready messages nor dead letters.
func (f *fleet) awaitEmpty(b broker.Broker) {
	f.t.Helper()
	f.awaitStats(b, "an empty queue without dead letters", func(s broker.Stats) bool { return s.Ready == 0 && s.Dead == 0 })
}

// awaitAge waits until the fleet's queue is old enough for its server to be killed. It does nothing
// unless the engine is RabbitMQ.
//
// A single RabbitMQ 3.10 node may lose a quorum queue's content or leader. That happens if the node
// is killed within seconds of the queue's declaration.
func (f *fleet) awaitAge(e *engine) {
	f.t.Helper()
	if e.name != "rabbit" {
		return
	}
	born := time.Now()
	f.await("a queue of 6 s", func(ledger.History) bool { return time.Since(born) > 6*time.Second })
}
