package hworkerbroker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker/hworkerbroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/deadletter"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// one makes a consumer run one job at a time.
func (f *foreign) one(c *consumer.Config) {
	c.Queues = map[string]consumer.QueueConfig{f.queue: {Task: "mail.send", Workers: 1}}
}

// TestWorkerPushesFailuresToABoundedList shows that a job that fails in a consumer goes to the
// failed list byte for byte. The newest ones are kept, and the error is logged. Promises: H15, H16,
// H24, H25.
func TestWorkerPushesFailuresToABoundedList(t *testing.T) {
	f, log := newForeign(t), &logBook{}
	f.push(`["u0", {"to":"a"}]`, `["u1",{"to": "b"} ]`, ` ["u2",{"to":"c"}]`, `["u3",{"to":"panic"}]`)
	f.worker(f.broker(hworkerbroker.Config{FailedSize: 2, Logger: log.logger()}), func(_ context.Context, m mail) (string, error) {
		if m.To == "panic" {
			panic("boom")
		}
		return "", errors.New("mailbox of " + m.To + " is full")
	}, f.one)
	f.eventually("all have failed", func() bool { return len(f.list(f.jobs)) == 0 && len(f.hash(f.progress)) == 0 })
	if got, want := f.list(f.failed), []string{` ["u2",{"to":"c"}]`, `["u3",{"to":"panic"}]`}; !slices.Equal(got, want) {
		t.Errorf("the failed list, oldest first, is %q, want %q", got, want)
	}
	// the log follows the move of the job
	for _, line := range []string{"Failure: mailbox of a is full", "Failure: Exception raised: ", "boom"} {
		f.eventually(line+" is logged", func() bool { return log.has(line) })
	}
}

// TestWorkerPutsWhatDoesNotBindToTheBrokenOnes shows that a job that does not fit its queue's type
// goes to the broken jobs with its bytes. It is logged, and neither run nor retried. Promises: H18,
// H19.
func TestWorkerPutsWhatDoesNotBindToTheBrokenOnes(t *testing.T) {
	f, log := newForeign(t), &logBook{}
	bad := []string{`["u0", {"to":5}]`, `["u1",["a@example.org"]]`, `["u2",7]`, `["u3","a@example.org"]`}
	f.push(bad...)
	f.push(`["good",{"to":"a"}]`)
	ran := make(chan mail, 10)
	b := f.broker(hworkerbroker.Config{Logger: log.logger()})
	f.worker(b, func(_ context.Context, m mail) (string, error) {
		ran <- m
		return "", nil
	}, f.one)
	f.eventually("all have ended", func() bool { return len(f.list(f.jobs)) == 0 && len(f.hash(f.progress)) == 0 })
	broken := f.hash(f.broken)
	for _, payload := range bad {
		if !stamp.MatchString(broken[payload]) {
			t.Errorf("%s has the time %q among the broken ones", payload, broken[payload])
		}
	}
	if failed := f.list(f.failed); len(broken) != len(bad) || len(failed) != 0 || len(ran) != 1 {
		t.Errorf("%d are broken, want %d; failed are %q; %d ran, want 1", len(broken), len(bad), failed, len(ran))
	}
	f.eventually("it is logged", func() bool { return log.has("goes to the broken jobs") })
}

// TestLettersThatAreNoMessage shows that dead drop removes the letters that dead list and dead
// export have shown, including payloads that are not messages. Requeued, they are unchanged.
func TestLettersThatAreNoMessage(t *testing.T) {
	f := newForeign(t)
	bad := []string{`not json`, `["u6"]`, `{"x":1}`, `["u7",{"swj":5}]`}
	f.push(bad...)
	f.push(`["u8",["does not bind"]]`)
	b := f.broker(hworkerbroker.Config{Logger: (&logBook{}).logger()})
	f.worker(b, func(context.Context, mail) (string, error) { return "", nil }, f.one)
	f.eventually("all are broken", func() bool { return len(f.hash(f.broken)) == 5 && len(f.hash(f.progress)) == 0 })
	letters, err := deadletter.New(deadletter.Config{Broker: b})
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if n, err := letters.Export(t.Context(), f.queue, deadletter.Filter{}, &file); n != 5 || err != nil {
		t.Errorf("%d letters were exported of 5: %v", n, err)
	}
	if n, err := letters.Drop(t.Context(), f.queue, deadletter.Filter{}); n != 5 || err != nil {
		t.Errorf("%d letters were dropped of 5: %v", n, err)
	}
	if n, err := letters.Import(t.Context(), f.queue, &file); n != 5 || err != nil {
		t.Errorf("%d letters were imported of 5: %v", n, err)
	}
	if r, err := letters.Requeue(t.Context(), f.queue, deadletter.Filter{}); r.Done != 5 || err != nil {
		t.Errorf("requeue: %+v, %v", r, err)
	}
	f.eventually("all are broken again", func() bool {
		broken := f.hash(f.broken)
		for _, payload := range bad {
			if broken[payload] == "" {
				return false
			}
		}
		return len(broken) == 5
	})
}

// TestWorkerTakesWhatItWorksOn shows that a consumer claims as many jobs as it has workers. Further
// jobs wait in the queue, for any worker. Promises: H1, H11.
func TestWorkerTakesWhatItWorksOn(t *testing.T) {
	f := newForeign(t)
	for i := range 10 {
		f.push(fmt.Sprintf(`["u%d",{"to":"a"}]`, i))
	}
	started, end := make(chan struct{}, 10), make(chan struct{})
	f.worker(f.broker(hworkerbroker.Config{}), func(context.Context, mail) (string, error) {
		started <- struct{}{}
		<-end
		return "", nil
	}, func(c *consumer.Config) {
		c.Queues = map[string]consumer.QueueConfig{f.queue: {Task: "mail.send", Workers: 2}}
	})
	<-started
	<-started
	if n := len(f.hash(f.progress)); n != 2 {
		t.Errorf("%d jobs are in progress while 2 run", n)
	}
	close(end)
	f.eventually("all are done", func() bool { return f.keysThere() == 0 })
}

// TestWorkerKeepsWhatWaits shows that a job's time begins when a worker starts it. Jobs that a
// consumer has claimed in advance do not expire meanwhile. Promises: H1, H11.
func TestWorkerKeepsWhatWaits(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: jobs wait for longer than their timeout")
	}
	f := newForeign(t)
	const timeout = 3 * time.Second
	for i := range 6 {
		f.push(fmt.Sprintf(`["u%d",{"to":"%d"}]`, i, i))
	}
	var order []string
	var lost atomic.Int32
	f.worker(f.broker(hworkerbroker.Config{Timeout: timeout}), func(ctx context.Context, m mail) (string, error) {
		order = append(order, m.To)
		work := time.NewTimer(timeout / 3)
		defer work.Stop()
		select {
		case <-work.C:
		case <-ctx.Done():
			lost.Add(1)
		}
		return "", nil
	}, func(c *consumer.Config) {
		c.Queues = map[string]consumer.QueueConfig{f.queue: {Task: "mail.send", Workers: 1, Prefetch: 6}}
	})
	f.eventually("all are done", func() bool { return f.keysThere() == 0 })
	if got := strings.Join(order, " "); got != "0 1 2 3 4 5" || lost.Load() != 0 {
		t.Errorf("ran %s; %d of them lost their job", got, lost.Load())
	}
}

// TestWorkerRetriesTheSameJob shows that a retry is the same job with the same uuid, for any JSON
// value, and that another program reads it as before. Promises: H14.
func TestWorkerRetriesTheSameJob(t *testing.T) {
	for _, job := range []string{`{"to":"a"}`, `{}`, `["a",{"b":[1.50]}]`, `"a"`, `7.50`, `null`, `true`} {
		t.Run(job, func(t *testing.T) {
			f, log := newForeign(t), &logBook{}
			type start struct {
				id      task.ID
				retries int
				args    string
			}
			starts, end := make(chan start, 10), make(chan struct{})
			cfg := consumer.Config{
				Broker: f.broker(hworkerbroker.Config{Logger: log.logger()}), Queues: map[string]consumer.QueueConfig{f.queue: {Task: "any"}},
			}
			c := ok[*consumer.Consumer](t)(consumer.New(cfg))
			whatever := task.New[json.RawMessage, string]("any")
			if err := whatever.Handle(c, func(ctx context.Context, args json.RawMessage) (string, error) {
				r, _ := task.FromContext(ctx)
				starts <- start{r.ID, r.Retries, string(args)}
				if r.Retries < 2 {
					return "", task.Retry(errors.New("mailbox full"), task.After(0))
				}
				<-end
				return "", nil
			}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- c.Run(ctx) }()
			f.push(`["6f1c0000-0000-4000-8000-000000000001",` + job + `]`)
			for i := range 3 {
				if got, want := <-starts, (start{"6f1c0000-0000-4000-8000-000000000001", i, job}); got != want {
					t.Errorf("start %+v, want %+v", got, want)
				}
			}
			for payload := range f.hash(f.progress) {
				var parts []json.RawMessage
				var uuid string
				if err := errors.Join(json.Unmarshal([]byte(payload), &parts), json.Unmarshal(parts[0], &uuid)); err != nil {
					t.Fatal(err)
				}
				var want, got any
				if err := errors.Join(json.Unmarshal([]byte(job), &want), json.Unmarshal(parts[1], &got)); err != nil {
					t.Fatal(err)
				}
				if object, ok := got.(map[string]any); ok {
					delete(object, "swj")
				}
				if diff := cmp.Diff(want, got); diff != "" || !strings.HasPrefix(uuid, "6f1c0000-0000-4000-8000-000000000001") {
					t.Errorf("another program reads the retry %s as job %s:\n%s", payload, uuid, diff)
				}
			}
			f.eventually("the message of the retry is logged", func() bool { return log.has("Retry: mailbox full") })
			close(end)
			f.eventually("it is done", func() bool { return f.keysThere() == 0 })
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWorkerLogsAnEndThatCameTooLate shows that the end of a job that is no longer in progress is
// logged. Promises: H13.
func TestWorkerLogsAnEndThatCameTooLate(t *testing.T) {
	f, log := newForeign(t), &logBook{}
	f.worker(f.broker(hworkerbroker.Config{Logger: log.logger()}), func(context.Context, mail) (string, error) {
		f.done(`["u1",{"to":"a"}]`) // as a monitor does, or another worker of an equal payload
		return "", nil
	}, f.one)
	f.push(`["u1",{"to":"a"}]`)
	f.eventually("it is logged", func() bool { return log.has("Success: ") })
}

// TestProducerWritesBareJobs shows that a producer for workers of bare jobs writes exactly the
// published form, so any program can be the worker. A worker of ours answers it. Promises: H3, H9.
func TestProducerWritesBareJobs(t *testing.T) {
	f := newForeign(t)
	b := f.broker(hworkerbroker.Config{})
	results := f.worker(b, func(_ context.Context, m mail) (string, error) { return "sent to " + m.To, nil }, func(c *consumer.Config) {
		c.Queues = map[string]consumer.QueueConfig{f.queue + "-ours": {Task: "mail.send"}}
	})
	p := ok[*producer.Producer](t)(producer.New(producer.Config{
		Broker: b, Results: results, Router: router.Static(f.queue), Wire: serializer.Wire{Serializers: []serializer.Serializer{serializer.JSON{}}, QueueFormats: map[string]serializer.Format{f.queue: serializer.BareFormat{}, f.queue + "-ours": serializer.BareFormat{}}},
	}))
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	ids := make(map[string]bool)
	for range 2 {
		ids[string(ok[*task.Future[string]](t)(send.Submit(testwait.Long(t), p, mail{"a"})).ID())] = true
	}
	for range 2 {
		payload, _ := f.take(recent())
		var uuid string
		if err := json.Unmarshal([]byte(strings.TrimSuffix(strings.TrimPrefix(payload, "["), `,{"to":"a"}]`)), &uuid); err != nil || !ids[uuid] {
			t.Errorf("a foreign worker takes %q, %v; the ids are %v", payload, err, ids)
		}
		delete(ids, uuid)
	}
	future := ok[*task.Future[string]](t)(send.Submit(testwait.Long(t), p, mail{"you"}, task.WithQueue(f.queue+"-ours")))
	if got, err := future.Get(testwait.Long(t)); err != nil || got != "sent to you" {
		t.Errorf("the result is %q, %v", got, err)
	}
}
