package producer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/serializer/msgpack"
	"github.com/swarmiji/swarmiji/task"
)

// envelopes returns n tasks of a queue by their arguments.
func envelopes(t *testing.T, b broker.Broker, queue string, n int) map[string]*task.Envelope {
	t.Helper()
	sub, err := b.Subscribe(t.Context(), queue, broker.SubscribeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]*task.Envelope, n)
	for range n {
		d, err := sub.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		e, err := msgpack.Compact{}.Decode(d.Message())
		if err != nil {
			t.Fatal(err)
		}
		all[string(e.Args)] = e
		if err := d.Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// TestSubmissionsShareNothing shows that a submission, successful or not, leaves no data
// for a later one.
func TestSubmissionsShareNothing(t *testing.T) {
	b := membroker.New()
	defer func() { _ = b.Close(context.Background()) }()
	p := newProducer(t, producer.Config{Broker: b, Router: router.Static("q")})
	defer func() { _ = p.Close(context.Background()) }()
	rich := []task.Option{
		task.WithHeader("h", "x"), task.WithCorrelation("c"), task.WithMaxRetries(7), task.WithCompression(""), task.WithRetryDelay(1),
		func(c *task.Call) {
			c.Parent, c.Root = "parent", "root"
			c.Then = []task.Link{{Name: "next", Queue: "q"}}
			c.Member = &task.Membership{Group: "g", Index: 1, Size: 3, Chord: &task.Link{Name: "chord", Queue: "q"}}
		},
	}
	const n = 200
	var submitting sync.WaitGroup
	for range 4 {
		submitting.Go(func() {
			calls := make([]task.Call, 0, n)
			for i := range n {
				opts := rich
				if i%2 == 0 {
					opts = nil
				}
				if _, err := number.Submit(context.Background(), p, i, opts...); (err != nil) != (i%2 == 1) {
					t.Errorf("submission %d: %v", i, err)
				}
				calls = append(calls, number.Call(n+i, opts...))
			}
			if _, err := p.SubmitAll(context.Background(), calls); err == nil {
				t.Error("members of a group were taken without a gatherer")
			}
		})
	}
	submitting.Wait()
	for args, e := range envelopes(t, b, "q", 4*n) {
		want := &task.Envelope{Version: 1, ID: e.ID, Name: "number", ContentType: e.ContentType, Args: []byte(args), SentAt: e.SentAt, Origin: p.NodeID()}
		if diff := cmp.Diff(want, e, cmp.Comparer(func(a, b task.Metadata) bool { return a == b })); diff != "" {
			t.Fatalf("a plain task has something of another one (-want +got):\n%s", diff)
		}
	}
}

// TestMiddlewareMayKeepEnvelopes shows that envelopes that a middleware keeps do not change.
func TestMiddlewareMayKeepEnvelopes(t *testing.T) {
	b := membroker.New()
	defer func() { _ = b.Close(context.Background()) }()
	var kept []*task.Envelope
	keep := func(next middleware.Sender) middleware.Sender {
		return func(ctx context.Context, queue string, e *task.Envelope) error {
			kept = append(kept, e)
			return next(ctx, queue, e)
		}
	}
	p := newProducer(t, producer.Config{Broker: b, Router: router.Static("q"), Middleware: []middleware.SendMiddleware{keep}})
	defer func() { _ = p.Close(context.Background()) }()
	for i := range 20 {
		if _, err := number.Submit(t.Context(), p, i, task.WithID(task.ID(fmt.Sprint(i)))); err != nil {
			t.Fatal(err)
		}
	}
	for i, e := range kept {
		if string(e.ID) != fmt.Sprint(i) {
			t.Fatalf("the envelope of task %d is now that of %q", i, e.ID)
		}
	}
}
