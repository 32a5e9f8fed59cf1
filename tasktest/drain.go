package tasktest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing/synctest"
	"time"
)

const (
	patience    = 31 * 24 * time.Hour // how long a test may wait for something in the bubble
	maxAttempts = 100_000             // of handlers, before it is a loop
)

// Summary counts the ended tasks since the last Summary, and the waiting ones.
type Summary struct {
	Succeeded int // tasks that ended well
	Failed    int // tasks that failed for good
	Retried   int // attempts that ended with a retry
	Delayed   int // tasks that wait for their time now: delayed ones and retries
	Unclaimed int // tasks without a consumer: no consumer has their queue, or it is paused
}

// Drain waits until no task that a consumer can take is queued or running. Tasks that wait for a
// time, such as retries, are left. Time passes only as far as running handlers need it.
func (s *Swarm) Drain() Summary {
	s.helper()
	return s.drain("Drain", false)
}

// DrainAll is Drain that also passes the delays of tasks and retries. It does not wait for entries
// of schedules: see Advance.
func (s *Swarm) DrainAll() Summary {
	s.helper()
	return s.drain("DrainAll", true)
}

// Advance lets d pass, with the delays, retries, schedules, time limits and handlers of that time.
// Handlers that still run then keep running.
func (s *Swarm) Advance(d time.Duration) Summary {
	s.helper()
	s.begin("Advance", d)
	time.Sleep(d)
	synctest.Wait()
	return s.summary()
}

func (s *Swarm) drain(method string, delayed bool) Summary {
	s.helper()
	s.begin(method, 0)
	busy, step := time.Now(), time.Second
	for {
		synctest.Wait()
		if s.idle(false) {
			if !delayed || s.idle(true) {
				return s.summary()
			}
			busy = time.Now()
		}
		if time.Since(busy) > patience {
			s.fatalf("tasktest: %s waits in vain: %s", method, s.describe())
		}
		s.watchdog.Reset(2 * patience)
		late := time.NewTimer(step)
		select {
		case <-s.changed:
			busy, step = time.Now(), time.Second
		// some changes come without a notification, such as the end of a delay of a task without a
		// consumer
		case <-late.C:
			step = min(2*step, patience/2)
		}
		late.Stop()
	}
}

// begin is called by what lets time pass.
func (s *Swarm) begin(method string, d time.Duration) {
	s.helper()
	if !s.bubble {
		s.fatalf("tasktest: %s needs a testing/synctest bubble: use Run", method)
	}
	s.watchdog.Reset(patience + d)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts = 0
}

// change says that something has changed which Drain waits for.
func (s *Swarm) change() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// knows notes the name of a queue.
func (s *Swarm) knows(queue string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queues[queue] = struct{}{}
}

// sizes are the tasks of one queue.
type sizes struct {
	queue                string
	ready, held, delayed int
	consumed             bool
}

// state returns the queues in the order of their names, the number of running handlers, and the
// totals of ended tasks.
func (s *Swarm) state() (queues []sizes, active int, total Summary) {
	s.mu.Lock()
	names, consumers := slices.Sorted(maps.Keys(s.queues)), slices.Clone(s.consumers)
	s.mu.Unlock()
	consumed := map[string]bool{}
	for _, c := range consumers {
		stats := c.Stats()
		total.Succeeded += int(stats.Succeeded)
		total.Failed += int(stats.Failed)
		total.Retried += int(stats.Retried)
		if c.Crashed() || !stats.Running {
			continue
		}
		active += stats.Active
		for _, q := range stats.Queues {
			consumed[q.Name] = consumed[q.Name] || !q.Paused
		}
	}
	inspect := s.server.Connect()
	defer func() { _ = inspect.Close(context.Background()) }()
	for _, name := range names {
		stats, err := inspect.Stats(context.Background(), name)
		if err != nil { // it was named, and not made
			continue
		}
		queues = append(queues, sizes{queue: name, ready: stats.Ready, held: stats.Held, delayed: stats.Delayed, consumed: consumed[name]})
	}
	return queues, active, total
}

func (s *Swarm) idle(delayed bool) bool {
	queues, active, _ := s.state()
	for _, q := range queues {
		if q.held > 0 || q.consumed && (q.ready > 0 || delayed && q.delayed > 0) {
			return false
		}
	}
	return active == 0
}

func (s *Swarm) summary() Summary {
	queues, _, total := s.state()
	s.mu.Lock()
	defer s.mu.Unlock()
	since := Summary{
		Succeeded: total.Succeeded - s.seen.Succeeded,
		Failed:    total.Failed - s.seen.Failed,
		Retried:   total.Retried - s.seen.Retried,
	}
	s.seen = total
	for _, q := range queues {
		since.Delayed += q.delayed
		if !q.consumed {
			since.Unclaimed += q.ready
		}
	}
	return since
}

// describe returns the contents of the queues as text.
func (s *Swarm) describe() string {
	queues, active, _ := s.state()
	texts := []string{fmt.Sprintf("%d handlers run", active)}
	for _, q := range queues {
		if q.ready+q.held+q.delayed == 0 {
			continue
		}
		text := fmt.Sprintf("queue %s has %d tasks ready, %d taken, %d delayed", q.queue, q.ready, q.held, q.delayed)
		if !q.consumed {
			text += " and no consumer"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "; ")
}

// giveUp ends a test that waits for an event that does not come. Without it the test would run for
// ever, or end in a deadlock without this text.
func (s *Swarm) giveUp() {
	panic("tasktest: the test has waited for a month of its clock, without Advance, Drain or DrainAll: " + s.describe())
}
