package endtoend

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
)

// Wrappers as users write them: they change nothing and have an Unwrap method.
type (
	wrappedBroker  struct{ broker.Broker }
	wrappedResults struct{ resultstore.ResultStore }
	wrappedBus     struct{ events.EventBus }
)

func (w wrappedBroker) Unwrap() any  { return w.Broker }
func (w wrappedResults) Unwrap() any { return w.ResultStore }
func (w wrappedBus) Unwrap() any     { return w.EventBus }

// testWrapped: the optional interfaces of broker, store and bus are found through wrappers.
func testWrapped(t *testing.T, open Open) {
	gathers, claims := false, false
	r := newRoad(t, open, func(p *producer.Config, c *consumer.Config) {
		gathers = resultstore.GathererOf(nil, p.Results) != nil
		claims = resultstore.ClaimerOf(nil, p.Results) != nil
		h := open(t)
		p.Events, c.Events = wrappedBus{h.Events(t)}, wrappedBus{h.Events(t)}
		t.Cleanup(func() { closeAll(t, p.Events, c.Events) })
		p.Broker, c.Broker = wrappedBroker{p.Broker}, wrappedBroker{c.Broker}
		p.Results, c.Results = wrappedResults{p.Results}, wrappedResults{c.Results}
	})
	handle(r, inc, func(_ context.Context, i int) (int, error) { return i + 1, nil })
	r.start()
	if n, err := submit(r, inc, 1).Get(r.ctx()); n != 2 || err != nil {
		t.Errorf("a task came to %d, %v; want 2", n, err)
	}
	all, err := r.producer.SubmitAll(r.ctx(), []task.Call{inc.Call(1), inc.Call(2)})
	for _, p := range all {
		err = errors.Join(err, p.Result(r.ctx(), nil))
	}
	if err != nil {
		t.Errorf("tasks that were submitted together: %v", err)
	}
	if gathers {
		if _, err := submitWork(r, task.Group(inc, inc), 1).Get(r.ctx()); err != nil {
			t.Errorf("a group: %v", err)
		}
	}
	if claims {
		first, again := submit(r, inc, 7, task.WithUnique("wrapped", time.Minute)), submit(r, inc, 7, task.WithUnique("wrapped", time.Minute))
		if first.ID() != again.ID() {
			t.Errorf("a unique task was submitted twice: %s, %s", first.ID(), again.ID())
		}
	}
	if h := open(t); h.Revocations != nil {
		bus := h.Revocations(t)
		t.Cleanup(func() { closeAll(t, bus) })
		list, err := revoke.New(revoke.Config{Events: wrappedBus{bus}})
		if err != nil {
			t.Fatalf("a list of revocations: %v", err)
		}
		if err := errors.Join(list.Ready(r.ctx()), list.Close(r.ctx())); err != nil {
			t.Errorf("the list of revocations: %v", err)
		}
	}
}
