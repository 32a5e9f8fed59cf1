package producer_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// TestBurstRefused shows that options without a meaning for a burst are refused before any I/O.
func TestBurstRefused(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *sender) {
		latest := task.WithLatest("key")
		next := func(c *task.Call) { c.Then = []task.Link{{Name: "next"}} }
		for name, opts := range map[string][]task.Option{
			"an id":      {latest, task.WithID("id")},
			"a delay":    {latest, task.WithDelay(time.Hour)},
			"unique":     {latest, task.WithUnique("key", time.Hour)},
			"conditions": {latest, task.WithUniqueKey("key")},
			"successors": {latest, next},
		} {
			if _, err := number.Submit(t.Context(), p, 1, opts...); !errors.Is(err, broker.ErrUnsupported) {
				t.Errorf("with %s: %v, want ErrUnsupported", name, err)
			}
		}
		for name, o := range map[string]task.Option{
			"no key":         task.WithLatest(""),
			"no UTF-8":       task.WithLatest("\xff"),
			"no quiet":       task.WithDebounce("key", 0, 0),
			"a long quiet":   task.WithDebounce("key", 25*time.Hour, 0),
			"most < quiet":   task.WithDebounce("key", time.Minute, time.Second),
			"a long most":    task.WithDebounce("key", time.Minute, 8*24*time.Hour),
			"latest, quiet":  func(c *task.Call) { c.Burst = &task.Burst{Key: "key", Latest: true, Quiet: time.Second} },
			"a negative one": task.WithDebounce("key", -time.Second, 0),
		} {
			if _, err := number.Submit(t.Context(), p, 1, o); !errors.Is(err, task.ErrBadMetadata) {
				t.Errorf("%s: %v, want ErrBadMetadata", name, err)
			}
		}
		if _, err := task.Chain(number.With(latest), number).Submit(t.Context(), p, 1); !errors.Is(err, broker.ErrUnsupported) {
			t.Errorf("a step of a workflow: %v, want ErrUnsupported", err)
		}
		if sent := p.post.tasks(); len(sent) > 0 {
			t.Errorf("messages were sent: %v", sent)
		}
	})
	inBubble(t, func(c *producer.Config) { c.Results = nil }, func(t *testing.T, p *sender) {
		if _, err := number.Submit(t.Context(), p, 1, task.WithLatest("key")); !errors.Is(err, broker.ErrUnsupported) {
			t.Errorf("without a store of bursts: %v, want ErrUnsupported", err)
		}
	})
}

// TestBurstBatch shows that the tasks of one key in a batch are one task and one message, and that
// middleware learns which submissions have joined.
func TestBurstBatch(t *testing.T) {
	var joined int
	confirm := func(next middleware.Sender) middleware.Sender {
		return func(ctx context.Context, queue string, e *task.Envelope) error {
			middleware.OnConfirm(ctx, func(err error) {
				if errors.Is(err, producer.ErrJoined) {
					joined++
				} else if err != nil {
					t.Errorf("a submission ended with %v", err)
				}
			})
			return next(ctx, queue, e)
		}
	}
	inBubble(t, func(c *producer.Config) { c.Middleware = []middleware.SendMiddleware{confirm} }, func(t *testing.T, p *sender) {
		var calls []task.Call
		for i := range 10 {
			calls = append(calls, number.Call(i, task.WithLatest("key")), number.Call(i))
		}
		all, err := p.SubmitAll(t.Context(), calls)
		if err != nil {
			t.Fatal(err)
		}
		for i := range all {
			if same := all[i].ID() == all[0].ID(); same != (i%2 == 0) {
				t.Errorf("task %d has the id of the first one: %v", i, same)
			}
		}
		if sent := p.post.tasks(); len(sent) != 11 || !slices.Contains(sent, string(all[0].ID())) || joined != 9 {
			t.Errorf("%d messages were sent and %d submissions have joined; want 11 and 9", len(sent), joined)
		}
		if id := p.submit(task.WithLatest("key")); id != all[0].ID() || joined != 10 || len(p.post.tasks()) != 11 {
			t.Errorf("a later submission is task %s, want %s and no message", id, all[0].ID())
		}
	})
}

// TestBurstOutcomes tests the submission after a publish that failed. After a refusal the key is
// free. After an unknown outcome the next submission publishes again under the same id. If a
// producer dies, the key is free after 30 s. A message that does not come is sent again after more
// than a minute.
func TestBurstOutcomes(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *sender) {
		latest := task.WithLatest("key")
		p.post.answer(func(context.Context, string) error { return broker.ErrNoQueue })
		p.refuse(broker.ErrNoQueue, latest)
		p.post.answer(func(context.Context, string) error { return broker.ErrIndeterminate })
		p.refuse(broker.ErrIndeterminate, latest)
		p.post.answer(nil)
		sent := p.post.tasks()
		if id := p.submit(latest); string(id) != sent[1] || sent[0] == sent[1] {
			t.Errorf("after %v the next submission is task %s, want that with the unknown outcome", sent, id)
		}
		if n := len(p.post.tasks()); n != 3 {
			t.Errorf("%d messages were sent, want 3", n)
		}
		p.submit(latest)
		time.Sleep(50 * time.Second)
		p.submit(latest)
		if n := len(p.post.tasks()); n != 3 {
			t.Errorf("%d messages were sent within a minute, want 3", n)
		}
		time.Sleep(50 * time.Second)
		if id := p.submit(latest); string(id) != sent[1] || len(p.post.tasks()) != 4 {
			t.Errorf("after 100 s the next submission is task %s with %d messages, want %s and 4", id, len(p.post.tasks()), sent[1])
		}

		died := errors.New("died")
		p.post.answer(func(context.Context, string) error { panic(died) })
		func() {
			defer func() { _ = recover() }()
			_, _ = number.Submit(t.Context(), p, 1, task.WithLatest("dead"))
		}()
		p.post.answer(nil)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := number.Submit(ctx, p, 1, task.WithLatest("dead")); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited < 29*time.Second || waited > 31*time.Second {
			t.Errorf("a submission after a dead one waited %v, want 30 s", waited)
		}
	})
}
