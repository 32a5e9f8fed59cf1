// Command schedules measures a store of schedules, and prints one line of JSON.
//
//	go run ./bench/schedules -store URL [-broker URL] [-entries 100000] [-n 10000]
//
// The store is any that package open accepts. The measurement has three parts:
//
//   - The store is filled with entries that are due in later years.
//   - A listener waits for five seconds; idle_percent is its share of one core.
//   - n more entries are due in the same second. last_ms is the time from that second until the
//     last of them was dispatched: to an empty handler in this process, or with -broker as a
//     confirmed task.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/swarmiji/swarmiji/open"
	_ "github.com/swarmiji/swarmiji/open/all"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/task"
)

// Report is the line that is printed.
type Report struct {
	Store   string  `json:"store"`
	Broker  string  `json:"broker"` // "": the handler runs in this process
	Entries int     `json:"entries"`
	N       int     `json:"n"`
	Add     float64 `json:"add"`          // entries per second, a thousand in a call
	Idle    float64 `json:"idle_percent"` // of one core
	First   float64 `json:"first_ms"`
	Last    float64 `json:"last_ms"`
	CPU     float64 `json:"cpu_ms"` // of this process, for the n entries
}

// How long the listener settles before the measurement, and how long the measurement takes.
const (
	idleAfter = time.Second
	idleFor   = 5 * time.Second
)

// work is the task of all entries.
var work = task.New[int, task.None]("bench.work", task.WithIgnoreResult(true))

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "schedules:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	fs := flag.NewFlagSet("schedules", flag.ContinueOnError)
	url := fs.String("store", "mem://", "`URL` of the store")
	broker := fs.String("broker", "", "`URL` of the broker to which tasks are submitted; none: the handler runs in place")
	entries := fs.Int("entries", 100_000, "how many entries wait")
	n := fs.Int("n", 10_000, "how many entries are due together")
	if err := fs.Parse(args); err != nil || *n < 1 {
		return errors.Join(err, flag.ErrHelp)
	}
	name := "{bench-" + strings.ToLower(rand.Text()[:10]) + "}"
	st, err := open.Schedule(ctx, *url, open.ScheduleOptions{Name: name})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close(context.Background())) }()
	s, err := schedule.New(schedule.Config{Store: st})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, empty(s)) }()
	scheme, _, _ := strings.Cut(*url, ":")
	r := Report{Store: scheme, Entries: *entries, N: *n}
	if *broker != "" {
		r.Broker = open.Redact(*broker)
	}
	began := time.Now()
	if err := fill(ctx, s, schedule.ByCron("* 1 1 * 0 0 0"), *entries); err != nil {
		return err
	}
	r.Add = float64(*entries) / time.Since(began).Seconds()
	if err := listen(ctx, s, st, *broker, &r); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// perCall is the number of entries added in one call.
const perCall = 1000

func fill(ctx context.Context, s *schedule.Schedule, when schedule.When, n int) error {
	for from := 0; from < n; from += perCall {
		calls := make([]task.Call, min(perCall, n-from))
		for i := range calls {
			calls[i] = work.Call(from + i)
		}
		if _, err := s.AddAll(ctx, when, calls); err != nil {
			return err
		}
	}
	return nil
}

// empty removes all entries.
func empty(s *schedule.Schedule) error {
	ctx := context.Background()
	for it, err := range s.List(ctx) {
		if err != nil {
			return err
		}
		if _, err := s.Remove(ctx, it.ID); err != nil {
			return err
		}
	}
	return nil
}

// listen measures a listener: idle, and then with n entries that are due together.
func listen(ctx context.Context, s *schedule.Schedule, st open.ScheduleStore, url string, r *Report) (err error) {
	c := schedule.ListenerConfig{Store: st}
	if url != "" {
		swarm, err := open.Open(ctx, url, open.Options{Name: "bench-schedules"})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, swarm.Close(context.Background())) }()
		p, err := producer.New(producer.Config{Broker: swarm.Broker, Router: router.Static("bench-schedules")})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.Close(context.Background())) }()
		if c.Submit = p; r.N > 0 {
			if _, err := work.Submit(ctx, p, 0); err != nil { // declares the queue
				return err
			}
		}
	}
	l, err := schedule.NewListener(c)
	if err != nil {
		return err
	}
	if c.Submit == nil {
		err = work.Handle(l, func(context.Context, int) (task.None, error) { return task.None{}, nil })
	} else {
		err = schedule.Forward(l, work)
	}
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- l.Run(running) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	pass(ctx, idleAfter)
	before := cpuTime()
	pass(ctx, idleFor)
	r.Idle = 100 * float64(cpuTime()-before) / float64(idleFor)
	return together(ctx, s, l, r)
}

// together measures n entries that are due in the same second.
func together(ctx context.Context, s *schedule.Schedule, l *schedule.Listener, r *Report) error {
	at := time.Now().Add(3*time.Second + time.Duration(r.N)*200*time.Microsecond).Truncate(time.Second)
	if err := fill(ctx, s, schedule.AtTime(at), r.N); err != nil {
		return err
	}
	if spare := time.Until(at); spare < 500*time.Millisecond {
		return fmt.Errorf("adding took too long: the entries are due in %v", spare)
	}
	before := cpuTime()
	done := func() int64 { return l.Stats().Ran + l.Stats().Submitted }
	for done() < int64(r.N) {
		if pass(ctx, time.Millisecond); ctx.Err() != nil {
			return ctx.Err()
		}
		if r.First == 0 && done() > 0 {
			r.First = milliseconds(time.Since(at))
		}
	}
	r.Last, r.CPU = milliseconds(time.Since(at)), milliseconds(cpuTime()-before)
	return nil
}

func pass(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// cpuTime returns the processor time of this process so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
