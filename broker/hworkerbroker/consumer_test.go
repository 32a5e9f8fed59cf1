package hworkerbroker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/hworkerbroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

type mail struct {
	To string `json:"to"`
}

var send = task.New[mail, string]("mail.send")

// worker runs a consumer of f's queue, whose jobs without a name are mail.send.
func (f *foreign) worker(b *hworkerbroker.Broker, fn func(context.Context, mail) (string, error), change ...func(*consumer.Config)) *memresults.Store {
	f.t.Helper()
	results := memresults.New(memresults.Config{})
	cfg := consumer.Config{Broker: b, Results: results, Queues: map[string]consumer.QueueConfig{f.queue: {Task: "mail.send"}}}
	for _, c := range change {
		c(&cfg)
	}
	c := ok[*consumer.Consumer](f.t)(consumer.New(cfg))
	if err := send.Handle(c, fn); err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	f.t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, results.Close(context.Background())); err != nil {
			f.t.Errorf("Run: %v", err)
		}
	})
	return results
}

// TestH04BareJobsOfOneType shows that a bare job of another program runs as the task of its queue,
// with the job as its argument. Its retry is still a job that the other program reads. Promises:
// H3, H4.
func TestH04BareJobsOfOneType(t *testing.T) {
	f := newForeign(t)
	got := make(chan mail, 10)
	block := make(chan struct{})
	f.worker(f.broker(hworkerbroker.Config{}), func(ctx context.Context, m mail) (string, error) {
		got <- m
		if r, _ := task.FromContext(ctx); r.Retries == 0 {
			return "", task.Retry(errors.New("later"), task.After(0))
		}
		<-block
		return "", nil
	})
	f.push(`["u1",{"to":"a@example.org"}]`)
	for range 2 {
		if m := <-got; m.To != "a@example.org" {
			t.Fatalf("the handler got %+v", m)
		}
	}
	for payload := range f.hash(f.progress) {
		var parts []json.RawMessage
		var m mail
		if err := errors.Join(json.Unmarshal([]byte(payload), &parts), json.Unmarshal(parts[1], &m)); err != nil || m.To != "a@example.org" {
			t.Errorf("another program reads the retry %s as %+v, %v", payload, m, err)
		}
	}
	close(block)
	f.eventually("nothing is left", func() bool { return f.keysThere() == 0 })
}

// TestH05ResultsAndH06Exceptions shows that success, retry and failure follow from the handler's
// result. A panic is a failure unless the consumer's policy is different, and the worker survives
// it. Promises: H5, H6, H7, H15, H16.
func TestH05ResultsAndH06Exceptions(t *testing.T) {
	for _, retries := range []bool{false, true} {
		t.Run(fmt.Sprintf("panics are retried=%t", retries), func(t *testing.T) {
			f := newForeign(t)
			runs := make(chan string, 100)
			results := f.worker(f.broker(hworkerbroker.Config{}), func(ctx context.Context, m mail) (string, error) {
				r, _ := task.FromContext(ctx)
				runs <- fmt.Sprint(m.To, r.Retries)
				switch {
				case m.To == "panic" && r.Retries == 0:
					panic("boom")
				case m.To == "fails":
					return "", errors.New("no such person")
				}
				return "sent", nil
			}, func(c *consumer.Config) {
				if retries {
					c.Middleware = []middleware.Middleware{middleware.Retry(middleware.RetryConfig{
						On: func(err error) bool { return errors.Is(err, task.ErrPanic) }, Backoff: task.Backoff{Strategy: task.BackoffConstant, Base: time.Millisecond},
					})}
				}
			})
			f.push(`["1",{"task":"mail.send","id":"p-`+f.queue+`","args":{"to":"panic"}}]`, `["2",{"task":"mail.send","id":"f-`+f.queue+`","args":{"to":"fails"}}]`,
				`["3",{"task":"mail.send","id":"s-`+f.queue+`","args":{"to":"works"}}]`)
			state := func(id string) task.State {
				rec, err := results.Load(testwait.Long(t), task.ID(id+f.queue))
				if err != nil {
					return task.StatePending
				}
				return rec.State
			}
			f.eventually("all have ended", func() bool {
				// the failed list
				return state("p-").Terminal() && state("f-").Terminal() && state("s-").Terminal() && f.keysThere() == 1
			})
			wantPanic := map[bool]task.State{false: task.StateFailed, true: task.StateSucceeded}[retries]
			if state("p-") != wantPanic || state("f-") != task.StateFailed || state("s-") != task.StateSucceeded {
				t.Errorf("the one that panicked %s, the failing one %s, the good one %s", state("p-"), state("f-"), state("s-"))
			}
			if n := len(runs); n != 3+map[bool]int{true: 1}[retries] {
				t.Errorf("%d runs", n)
			}
		})
	}
}

// TestUnreadableTasksAreDeadLetters shows that a job that is not a task becomes a dead letter among
// the broken ones, and can be read and queued again. Promises: H18.
func TestUnreadableTasksAreDeadLetters(t *testing.T) {
	f := newForeign(t)
	b := f.broker(hworkerbroker.Config{})
	f.worker(b, func(context.Context, mail) (string, error) { return "", nil })
	const payload = `["u1",["../../bin/sh"]]`
	f.push(payload)
	f.eventually("it is broken", func() bool { return f.hash(f.broken)[payload] != "" })
	if letters := ok[[]broker.Dead](t)(broker.ListDead(testwait.Long(t), b, f.queue, 10)); len(letters) != 1 || letters[0].Message.ID != "u1" || letters[0].At.IsZero() {
		t.Errorf("the dead letters are %+v", letters)
	}
}

// TestSubmitAndRefusals shows that a future works on the four keys, with its task as JSON in the
// payload. Submit refuses delays, priorities and expiry.
func TestSubmitAndRefusals(t *testing.T) {
	f := newForeign(t)
	b := f.broker(hworkerbroker.Config{})
	results := f.worker(b, func(_ context.Context, m mail) (string, error) { return "sent to " + m.To, nil })
	p := ok[*producer.Producer](t)(producer.New(producer.Config{
		Broker: f.broker(hworkerbroker.Config{}), Results: results, Router: router.Static(f.queue), Wire: serializer.Wire{Formats: []serializer.Format{serializer.JSONFormat{}}, Serializers: []serializer.Serializer{serializer.JSON{}}},
	}))
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	future := ok[*task.Future[string]](t)(send.Submit(testwait.Long(t), p, mail{"you"}))
	if got, err := future.Get(testwait.Long(t)); err != nil || got != "sent to you" {
		t.Fatalf("the result is %q, %v", got, err)
	}
	for name, o := range map[string]task.Option{
		"a delay": task.WithNotBefore(time.Now().Add(time.Hour)), "a priority": task.WithPriority(1), "an expiry": task.WithExpires(time.Now().Add(time.Hour)),
	} {
		if _, err := send.Submit(testwait.Long(t), p, mail{"you"}, o); !errors.Is(err, broker.ErrUnsupported) {
			t.Errorf("%s: %v, want ErrUnsupported", name, err)
		}
	}
}

// TestIdleConsumerRests shows that an idle consumer uses little processor time, although it polls.
func TestIdleConsumerRests(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds to see that nothing happens")
	}
	f := newForeign(t)
	f.subscribe(f.broker(hworkerbroker.Config{}), 64)
	before, calls := cpu(t), f.calls()
	timer := time.NewTimer(3 * time.Second)
	<-timer.C
	used, looks := cpu(t)-before, f.calls()-calls
	t.Logf("%v of CPU in 3 s, %d looks", used, looks)
	if looks > 25 { // a little more than four a second
		t.Errorf("it looked %d times in 3 s", looks)
	}
}

// calls returns how many scripts the server has run.
func (f *foreign) calls() int {
	f.t.Helper()
	info := ok[string](f.t)(f.rdb.Info(testwait.Long(f.t), "commandstats").Result())
	_, after, found := strings.Cut(info, "cmdstat_evalsha:calls=")
	n := 0
	if found {
		_, _ = fmt.Sscanf(after, "%d", &n)
	}
	return n
}

// cpu returns the processor time that this process has used.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
