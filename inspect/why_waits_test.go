package inspect_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/settings/memsettings"
	"github.com/swarmiji/swarmiji/task"
)

var work = task.New[int, int]("work")

// waiting has one queue, which is fair and has no consumer.
type waiting struct {
	*testing.T
	broker   *membroker.Broker
	results  *memresults.Store
	settings settings.Store
	producer *producer.Producer
	api      *inspect.Local
}

// inWaiting calls fn in a bubble with a fair queue.
func inWaiting(t *testing.T, fn func(w *waiting)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &waiting{T: t, broker: membroker.New(), results: memresults.New(memresults.Config{}), settings: memsettings.New()}
		var err error
		w.producer, err = producer.New(producer.Config{Broker: w.broker, Results: w.results, Queues: []broker.Queue{{Name: "default", Fair: true}}})
		if err == nil {
			w.api, err = inspect.New(inspect.Config{Broker: w.broker, Results: w.results, Settings: w.settings, Logger: slog.New(slog.DiscardHandler)})
		}
		if err != nil {
			t.Fatal(err)
		}
		fn(w)
		for _, c := range []interface{ Close(context.Context) error }{w.producer, w.settings, w.broker, w.results} {
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

func (w *waiting) submit(opts ...task.Option) task.ID {
	w.Helper()
	f, err := work.Submit(w.Context(), w.producer, 1, opts...)
	if err != nil {
		w.Fatal(err)
	}
	return f.ID()
}

// want fails the test unless the first reason for the task id is of this kind, and has this key and
// text. It returns the reason.
func (w *waiting) want(id task.ID, kind inspect.Kind, key, text string) inspect.Reason {
	w.Helper()
	e, err := w.api.Why(w.Context(), inspect.TaskKey{ID: id, Queues: []string{"default"}})
	if err != nil {
		w.Fatal(err)
	}
	r := e.Reasons[0]
	if r.Kind != kind || r.Key != key || !strings.Contains(r.Text, text) {
		w.Errorf("the reasons are %+v; want %s with the key %q and the text %q", e.Reasons, kind, key, text)
	}
	return r
}

// TestWhyBurst shows that the reason for a debounced task is the time of its newest submission, not
// that of its message.
func TestWhyBurst(t *testing.T) {
	inWaiting(t, func(w *waiting) {
		burst := task.WithDebounce("page 7", time.Minute, time.Hour)
		id := w.submit(burst)
		time.Sleep(40 * time.Second)
		if again := w.submit(burst); again != id {
			w.Fatalf("the submissions are the tasks %s and %s", id, again)
		}
		r := w.want(id, inspect.KindDelayed, "page 7", "another submission of its burst")
		if left := time.Until(r.At); left != time.Minute {
			w.Errorf("the task is due in %v, want the quiet time of its newest submission, 1m", left)
		}
	})
}

// TestWhyLatest shows that the reason for a task of task.WithLatest is the running task of its key.
// Only an at-most-once task has a message while it waits.
func TestWhyLatest(t *testing.T) {
	inWaiting(t, func(w *waiting) {
		c, err := consumer.New(consumer.Config{Broker: w.broker, Results: w.results, Logger: slog.New(slog.DiscardHandler), Queues: map[string]consumer.QueueConfig{"default": {Fair: true}}})
		if err != nil {
			w.Fatal(err)
		}
		end := make(chan struct{})
		if err := work.Handle(c, func(context.Context, int) (int, error) { <-end; return 1, nil }); err != nil {
			w.Fatal(err)
		}
		ctx, stop := context.WithCancel(w.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- c.Run(ctx) }()

		first := w.submit(task.WithLatest("account"), task.WithIdempotent(false))
		synctest.Wait()
		next := w.submit(task.WithLatest("account"), task.WithIdempotent(false))
		r := w.want(next, inspect.KindDelayed, "account", "It waits for the end of task "+string(first))
		if r.Task != first || next == first {
			w.Errorf("task %s waits for %s, want %s", next, r.Task, first)
		}
		close(end)
		stop()
		if err := <-stopped; err != nil {
			w.Error(err)
		}
	})
}

// TestWhyKey shows that the reason for a task whose fairness key has reached its stored bound is
// that bound.
func TestWhyKey(t *testing.T) {
	inWaiting(t, func(w *waiting) {
		bounds := settings.Bounds{
			Key:  &settings.Bound{Max: 1},
			Keys: map[string]settings.Bound{"rated": {Rate: "1/m"}},
		}
		if err := settings.BoundQueue(w.Context(), w.settings, "default", bounds); err != nil {
			w.Fatal(err)
		}
		w.submit(task.WithFairnessKey("full"))
		w.submit(task.WithFairnessKey("rated"))
		sub, err := w.broker.Subscribe(w.Context(), "default", broker.SubscribeOptions{
			Prefetch: 2,
			Bounds: broker.Bounds{
				Key:  broker.Bound{Max: 1},
				Keys: map[string]broker.Bound{"rated": {Rate: 1, Per: time.Minute}},
			},
		})
		if err != nil {
			w.Fatal(err)
		}
		for range 2 {
			if _, err := sub.Receive(w.Context()); err != nil {
				w.Fatal(err)
			}
		}
		full, rated, free := w.submit(task.WithFairnessKey("full")), w.submit(task.WithFairnessKey("rated")), w.submit(task.WithFairnessKey("free"))
		if err := sub.Close(w.Context()); err != nil { // it receives no more, and holds its messages
			w.Fatal(err)
		}
		w.want(full, inspect.KindLimit, "full", "1 of 1 tasks are held")
		if r := w.want(rated, inspect.KindLimit, "rated", "1/m, is used until"); time.Until(r.At) != time.Minute {
			w.Errorf("the rate is used until %v, want in a minute", r.At)
		}
		w.want(free, inspect.KindReady, "", "for a consumer")
	})
}
