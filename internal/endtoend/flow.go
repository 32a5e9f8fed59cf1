package endtoend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

func contains(s, part string) bool { return strings.Contains(s, part) }

// testSuccessors: a successor gets the result, an error task gets the failure, and nested
// successors run too.
func testSuccessors(t *testing.T, open Open) {
	r := newRoad(t, open)
	handle(r, add, func(_ context.Context, p pair) (int, error) { return p.A + p.B, nil })
	double := task.New[int, int]("double")
	handle(r, double, func(_ context.Context, i int) (int, error) { return 2 * i, nil })
	last := make(chan task.Request, 4)
	end := task.New[int, int]("end")
	handle(r, end, func(ctx context.Context, i int) (int, error) {
		req, _ := task.FromContext(ctx)
		last <- *req
		return i, nil
	})
	handle(r, fail, func(context.Context, string) (int, error) { return 0, errBroken })
	failures := make(chan task.Failure, 1)
	onError := task.New[task.Failure, int]("on-error")
	handle(r, onError, func(_ context.Context, f task.Failure) (int, error) {
		failures <- f
		return 0, nil
	})
	r.start()

	c := add.Call(pair{1, 2})
	c.Then = []task.Link{{Name: "double", Then: []task.Link{{ID: "the-end", Name: "end"}}}}
	first := r.submit(c)
	select {
	case req := <-last:
		var i int
		if err := req.Bind(&i); err != nil || i != 6 || req.ID != "the-end" || req.Root != first.ID() || req.Parent != task.Derive(first.ID(), "then0") {
			t.Fatalf("the last task got %d, %v and is %+v", i, err, *req.Envelope)
		}
	case <-r.ctx().Done():
		t.Fatal("the chain did not come to its end")
	}

	c = fail.Call("")
	c.Then = []task.Link{{Name: "end"}}
	c.Else = []task.Link{{Name: "on-error"}}
	p := r.submit(c)
	select {
	case f := <-failures:
		if f.ID != p.ID() || f.Message != errBroken.Error() {
			t.Fatalf("the error task got %+v", f)
		}
	case <-r.ctx().Done():
		t.Fatal("the error task did not run")
	}
	if len(last) > 0 {
		t.Fatal("a successor of a failed task ran")
	}
}

// testAtMostOnce: such a task is acknowledged before it starts, and its retry is a new message
// (S24, S54).
func testAtMostOnce(t *testing.T, open Open) {
	r := newRoad(t, open)
	runs := atomic.Int64{}
	handle(r, work, func(ctx context.Context, i int) (int, error) {
		runs.Add(1)
		if req, _ := task.FromContext(ctx); i == 1 && req.Retries == 0 {
			return 0, task.Retry(errBroken, task.After(0))
		}
		return i, nil
	})
	r.start()
	early := work.With(task.WithIdempotent(false))
	want(r, submit(r, early, 0), 0)
	want(r, submit(r, early, 1), 1)
	if runs.Load() != 3 {
		t.Fatalf("%d runs, want 3", runs.Load())
	}
}

// testRawBytes: any bytes arrive unchanged, with the library's envelope and without it (S9).
func testRawBytes(t *testing.T, open Open) {
	raw := []byte{0, 0xff, '{', 0xc1, 0, 0x80, '\n'}
	r := newRoad(t, open, func(p *producer.Config, c *consumer.Config) {
		q := c.Queues[queueName]
		q.Task = "bytes"
		c.Queues[queueName] = q
		p.Wire.QueueFormats = map[string]serializer.Format{queueName: serializer.RawFormat{}}
	})
	bytesTask := task.New[[]byte, []byte]("bytes", task.WithSerializer(serializer.ContentRaw))
	foreign := make(chan []byte, 1)
	handle(r, bytesTask, func(_ context.Context, b []byte) ([]byte, error) {
		select {
		case foreign <- bytes.Clone(b):
		default:
		}
		return b, nil
	})
	r.start()
	got, err := submit(r, bytesTask, raw).Get(r.ctx())
	if err != nil || !bytes.Equal(got, raw) {
		t.Fatalf("raw bytes came back as %x, %v", got, err)
	}
	<-foreign
	if err := r.broker.Publish(r.ctx(), queueName, &broker.Message{ID: "foreign", Body: raw, Priority: task.DefaultPriority}); err != nil {
		t.Fatal(err)
	}
	select {
	case b := <-foreign:
		if !bytes.Equal(b, raw) {
			t.Fatalf("a foreign writer's bytes came as %x", b)
		}
	case <-r.ctx().Done():
		t.Fatal("bytes of a foreign writer did not reach their queue's task")
	}
}

// testRawContentTypes: a queue of raw work accepts bytes of any content type, also through a retry.
// It does not take a body for a task only because the body looks like one (S9).
func testRawContentTypes(t *testing.T, open Open) {
	r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) {
		q := c.Queues[queueName]
		q.Task = "bytes"
		c.Queues[queueName] = q
	})
	got := make(chan []byte, 1)
	handle(r, task.New[[]byte, int]("bytes", task.WithRetryDelay(0), task.WithIgnoreResult(true)), func(ctx context.Context, b []byte) (int, error) {
		if req, _ := task.FromContext(ctx); req.Retries == 0 {
			return 0, task.Retry(nil)
		}
		got <- bytes.Clone(b)
		return 0, nil
	})
	handle(r, work, func(context.Context, int) (int, error) { return 5, nil })
	r.start()
	want(r, submit(r, work, 1), 5) // an envelope is still an envelope
	for i, m := range []broker.Message{
		{ContentType: "image/png", Body: []byte{0x89, 'P', 'N', 'G', 0, 0xff}},
		{ContentType: "application/json; charset=utf-8", Body: []byte(`{"a":1}`)},
		{ContentType: "application/json", Body: []byte(`{"task":"` + work.Name() + `","args":1}`)},
		{ContentType: "text/plain", Body: []byte(`{"task":"nobody.knows.it"}`)},
		{ContentType: "application/json", Body: []byte(`{"task": broken`)},
		{ContentType: "application/msgpack", Body: []byte{0xc1}},
		{Body: []byte(`{"task":"` + work.Name() + `"}`)},
	} {
		sent := m
		sent.ID, sent.Priority = fmt.Sprintf("foreign-%d", i), task.DefaultPriority
		if err := r.broker.Publish(r.ctx(), queueName, &sent); err != nil {
			t.Fatal(err)
		}
		select {
		case b := <-got:
			if !bytes.Equal(b, m.Body) {
				t.Errorf("%s: %q came as %q", m.ContentType, m.Body, b)
			}
		case <-r.ctx().Done():
			t.Fatalf("%s: %q did not reach the task of its queue", m.ContentType, m.Body)
		}
	}
}

// testJSONByHand: a task written as JSON by a person or in another language runs.
func testJSONByHand(t *testing.T, open Open) {
	r := newRoad(t, open)
	type mail struct {
		To   string `json:"to"`
		Copy []int  `json:"copy"`
	}
	send := task.New[mail, string]("email.send")
	got := make(chan mail, 1)
	handle(r, send, func(_ context.Context, m mail) (string, error) {
		select {
		case got <- m:
		default:
		}
		return m.To, nil
	})
	r.start()
	submit(r, send, mail{}) // the consumer now listens
	<-got
	body := []byte(`{"task":"email.send","args":{"to":"you","copy":[1,2]}}`)
	if err := r.broker.Publish(r.ctx(), queueName, &broker.Message{ID: "by-hand", Body: body, Priority: task.DefaultPriority}); err != nil {
		t.Fatal(err)
	}
	select {
	case m := <-got:
		if m.To != "you" || len(m.Copy) != 2 {
			t.Fatalf("the handler got %+v", m)
		}
	case <-r.ctx().Done():
		t.Fatal("the task did not run")
	}
}

func testQueuedBeforeConsumer(t *testing.T, open Open) {
	r := newRoad(t, open)
	handle(r, add, func(_ context.Context, p pair) (int, error) { return p.A + p.B, nil })
	f := submit(r, add, pair{3, 4})
	if s, err := f.State(r.ctx()); err != nil || s != task.StatePending {
		t.Fatalf("state of a queued task: %q, %v", s, err)
	}
	short, cancel := context.WithTimeout(r.ctx(), time.Millisecond)
	defer cancel()
	if _, err := f.Get(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("waiting too short a time gives %v", err)
	}
	r.start()
	want(r, f, 7)
}

func testExpired(t *testing.T, open Open) {
	r := newRoad(t, open)
	handle(r, work, func(_ context.Context, i int) (int, error) { return i, nil })
	if r.h.NoTimes {
		r.refused(work.Call(1, task.WithExpires(time.Now().Add(time.Hour))), "an expiry")
		return
	}
	past := submit(r, work, 1, task.WithExpires(time.Now().Add(-time.Minute)))
	future := submit(r, work, 2, task.WithExpires(time.Now().Add(time.Hour)))
	r.start()
	want(r, future, 2)
	wantError(r, past, task.ErrExpired)
}

func testDelayed(t *testing.T, open Open) {
	r := newRoad(t, open)
	if r.h.NoTimes {
		r.refused(work.Call(1, task.WithNotBefore(time.Now().Add(time.Hour))), "a delay")
		return
	}
	started := make(chan time.Time, 1)
	handle(r, work, func(_ context.Context, i int) (int, error) { started <- time.Now(); return i, nil })
	r.start()
	for _, d := range []time.Duration{time.Millisecond, 300 * time.Millisecond} {
		due := time.Now().Add(d)
		want(r, submit(r, work, 1, task.WithNotBefore(due)), 1)
		if at := <-started; at.Before(due) {
			t.Errorf("a task delayed by %s started %s too early", d, due.Sub(at))
		}
	}
}

// refused fails the test unless Submit says that the broker does not support the call.
func (r *road) refused(c task.Call, what string) {
	r.t.Helper()
	if _, err := r.producer.Submit(r.ctx(), c); !errors.Is(err, broker.ErrUnsupported) {
		r.t.Errorf("%s: %v, want ErrUnsupported", what, err)
	}
}

func testNoSuchQueue(t *testing.T, open Open) {
	r := newRoad(t, open)
	if _, err := r.producer.Submit(r.ctx(), add.Call(pair{}, task.WithQueue("nowhere"))); !errors.Is(err, broker.ErrNoQueue) {
		t.Fatalf("a queue that neither the router names nor anybody declared: %v", err)
	}
}

// testUnreadable: an unreadable message becomes a dead letter byte for byte, and the consumer
// continues (fault 34).
func testUnreadable(t *testing.T, open Open) {
	r := newRoad(t, open)
	handle(r, add, func(_ context.Context, p pair) (int, error) { return p.A + p.B, nil })
	r.start()
	want(r, submit(r, add, pair{1, 2}), 3)
	for i, m := range []*broker.Message{
		{ContentType: serializer.ContentCompact, Body: []byte{0xdd, 0xff, 0xff, 0xff, 0xff}},
		{ContentType: serializer.ContentCompact, Body: bytes.Repeat([]byte{0x91}, 100_000)},
		{ContentType: serializer.ContentCompact, Body: nil},
		{ContentType: serializer.ContentJSON, Body: []byte(`{"task":"add","task":"add"}`)},
		{ContentType: serializer.ContentJSON, Body: []byte(`{"task":"../../bin/sh"}`)},
		{Body: []byte("no task at all")},
		{Body: []byte(`{"task":"add"}`), Properties: map[string]string{"content-encoding": "gzip"}},
		{ContentType: serializer.ContentJSON, Body: append([]byte(`{"task":"add","args":"`), append(bytes.Repeat([]byte{'x'}, 1<<20), `"}`...)...)},
	} {
		m.ID, m.Priority = "bad-"+string(rune('a'+i)), task.DefaultPriority
		body := bytes.Clone(m.Body)
		if err := r.broker.Publish(r.ctx(), queueName, m); err != nil {
			t.Fatal(err)
		}
		if dead := r.wantDead("bad-"+string(rune('a'+i)), ""); !bytes.Equal(dead.Message.Body, body) || (dead.Reason == "") != r.h.Reasonless {
			t.Errorf("message %d was buried as %d bytes for %q", i, len(dead.Message.Body), dead.Reason)
		}
	}
	want(r, submit(r, add, pair{1, 2}), 3)
}

// testReplyTo: a message can send its result only to a node's reply address (bad input 19).
func testReplyTo(t *testing.T, open Open) {
	r := newRoad(t, open)
	handle(r, add, func(_ context.Context, p pair) (int, error) { return p.A + p.B, nil })
	r.start()
	want(r, submit(r, add, pair{1, 2}), 3)
	for _, to := range []string{"amq.rabbitmq.trace", "$SYS.>", "../other", "somebody-else-1"} {
		body := []byte(`{"task":"add","args":{"A":1,"B":1},"reply_to":"` + to + `"}`)
		if err := r.broker.Publish(r.ctx(), queueName, &broker.Message{ID: "by-hand", Body: body, Priority: task.DefaultPriority}); err != nil {
			t.Fatal(err)
		}
	}
	want(r, submit(r, add, pair{1, 2}), 3)
}
