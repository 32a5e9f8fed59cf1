package endtoend

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
)

// revokable is a road with a consumer that follows revocations, and a revoker.
type revokable struct {
	*road
	open    Open
	bus     events.EventBus // the consumer's connection
	list    *revoke.List
	revoker *revoke.Revoker
	metrics *middleware.Metrics
}

func newRevokable(t *testing.T, open Open, change ...func(*producer.Config, *consumer.Config)) *revokable {
	t.Helper()
	h := open(t)
	v := &revokable{open: func(*testing.T) *Harness { return h }, metrics: new(middleware.Metrics)}
	v.list, v.bus = v.newList(t, h)
	change = append(change, func(_ *producer.Config, c *consumer.Config) { c.Revocations, c.Metrics = v.list, v.metrics })
	v.road = newRoad(t, v.open, change...)
	bus := h.Revocations(t)
	var err error
	if v.revoker, err = revoke.NewRevoker(revoke.RevokerConfig{Events: bus}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(t, bus) })
	return v
}

// newHeardRevokable is like newRevokable, with a subscription to the task-revoked events.
func newHeardRevokable(t *testing.T, open Open) (v *revokable, heard events.Subscription) {
	t.Helper()
	v = newRevokable(t, open, func(_ *producer.Config, c *consumer.Config) {
		h := open(t)
		c.Events = h.Events(t)
		listen := h.Events(t)
		t.Cleanup(func() { _, _ = listen.Close(context.Background()), c.Events.Close(context.Background()) })
		var err error
		if heard, err = listen.Subscribe(t.Context(), events.Filter{Types: []string{events.TaskRevoked}}); err != nil {
			t.Fatal(err)
		}
	})
	return v, heard
}

// newList makes a revocation list with its own connection.
func (v *revokable) newList(t *testing.T, h *Harness) (*revoke.List, events.EventBus) {
	t.Helper()
	bus := h.Revocations(t)
	list, err := revoke.New(revoke.Config{Events: bus})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(t, list, bus) })
	return list, bus
}

func closeAll(t *testing.T, cs ...interface{ Close(context.Context) error }) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, c := range cs {
		if err := c.Close(ctx); err != nil {
			t.Errorf("close %T: %v", c, err)
		}
	}
}

func (v *revokable) revoke(o revoke.Options, ids ...task.ID) []revoke.Outcome {
	v.t.Helper()
	outcomes, err := v.revoker.Revoke(v.ctx(), o, ids...)
	if errors.Is(err, revoke.ErrUnheard) && v.running == nil { // the consumer is started later
		return outcomes
	}
	if err != nil {
		v.t.Fatalf("revoke %d tasks: %v", len(ids), err)
	}
	return outcomes
}

// testRevokedUnheard: a consumer without a list logs a warning at its start, and Revoke reports
// that no consumer listens. With a list neither happens.
func testRevokedUnheard(t *testing.T, open Open) {
	h := open(t)
	same := func(*testing.T) *Harness { return h }
	const warning = "this consumer runs revoked tasks"
	deaf := newRoad(t, same)
	deaf.start()
	deaf.eventually("the consumer warns", func() bool { return contains(deaf.log.String(), warning) })
	v := newRevokable(t, same)
	outcomes, err := v.revoker.Revoke(v.ctx(), revoke.Options{}, "nobody")
	if !errors.Is(err, revoke.ErrUnheard) || len(outcomes) != 1 || outcomes[0] != revoke.Noted {
		t.Errorf("Revoke where no consumer has a list: %v, %v", outcomes, err)
	}
	v.start()
	v.eventually("Revoke is heard", func() bool {
		_, err := v.revoker.Revoke(v.ctx(), revoke.Options{}, "somebody")
		return err == nil
	})
	if contains(v.log.String(), warning) {
		t.Error("a consumer with a list warns")
	}
}

// known waits until the consumer has received a revocation.
func (v *revokable) known(id task.ID) {
	v.t.Helper()
	v.eventually("the consumer knows of the revocation", func() bool { return v.list.Knows(queueName, &task.Envelope{ID: id}) })
}

// testRevokedWhileDown: of 1,000 queued tasks, 500 are revoked while no consumer runs. Exactly the
// other tasks run, and the futures of the revoked ones end (S69, S70, fault 36).
func testRevokedWhileDown(t *testing.T, open Open) {
	v, heard := newHeardRevokable(t, open)
	const n = 1000
	runs := make([]atomic.Int64, n)
	handle(v.road, work, func(_ context.Context, i int) (int, error) { runs[i].Add(1); return i, nil })
	calls := make([]task.Call, n)
	var revoked []task.ID
	for i := range calls {
		id := task.ID(fmt.Sprintf("down-%d", i))
		calls[i] = work.Call(i, task.WithID(id))
		if i%2 == 1 {
			revoked = append(revoked, id)
		}
	}
	pending, err := v.producer.SubmitAll(v.ctx(), calls)
	if err != nil {
		t.Fatal(err)
	}
	v.revoke(revoke.Options{}, revoked...)
	v.start()
	for i, p := range pending {
		f := task.FutureOf[int](p)
		if i%2 == 0 {
			want(v.road, f, i)
		} else {
			wantError(v.road, f, task.ErrRevoked)
			if state, err := f.State(v.ctx()); err != nil || state != task.StateRevoked {
				t.Fatalf("the state of %s is %q, %v", f.ID(), state, err)
			}
		}
	}
	for range revoked {
		e, err := heard.Receive(v.ctx())
		if err != nil || e.Fields["terminated"] != false || e.Fields["expired"] != false {
			t.Fatalf("event %+v, %v", e, err)
		}
	}
	if err := v.running.stop(); err != nil {
		t.Fatal(err)
	}
	for i := range runs {
		if got, want := runs[i].Load(), int64(1-i%2); got != want {
			t.Fatalf("task %d ran %d times, want %d", i, got, want)
		}
	}
	if got := v.metrics.Revoked.Count(); got != n/2 {
		t.Fatalf("%d tasks are counted as revoked, want %d", got, n/2)
	}
}

// testRevokedBetweenRetries: a task is revoked while it waits for its next attempt. That attempt
// does not run, even if a consumer that started later receives it. A submitter that waits gets the
// failure.
func testRevokedBetweenRetries(t *testing.T, open Open) {
	v := newRevokable(t, open)
	runs := atomic.Int64{}
	first := make(chan struct{}, 1)
	handle(v.road, fail, func(context.Context, string) (int, error) {
		if runs.Add(1) == 1 {
			first <- struct{}{}
		}
		return 0, task.Retry(errBroken, task.After(700*time.Millisecond))
	})
	after := make(chan task.Failure, 1)
	onError := task.New[task.Failure, int]("on-error")
	handle(v.road, onError, func(_ context.Context, f task.Failure) (int, error) { after <- f; return 0, nil })
	v.start()
	c := fail.Call("", task.WithMaxRetries(100))
	c.Else = []task.Link{{Name: "on-error"}}
	p := v.submit(c)
	<-first
	v.revoke(revoke.Options{}, p.ID())
	before := runs.Load()
	if err := v.running.stop(); err != nil {
		t.Fatal(err)
	}

	later := newRoad(t, v.open, func(_ *producer.Config, c *consumer.Config) { c.Revocations, _ = v.newList(t, v.h) })
	handle(later, fail, func(context.Context, string) (int, error) { runs.Add(1); return 1, nil })
	handle(later, onError, func(_ context.Context, f task.Failure) (int, error) { after <- f; return 0, nil })
	later.start()
	wantError(v.road, task.FutureOf[int](p), task.ErrRevoked)
	if f := <-after; f.ID != p.ID() {
		t.Fatalf("the error task got %+v", f)
	}
	// an attempt that had begun when the revocation arrived may end
	if got := runs.Load(); got > before+1 {
		t.Fatalf("a revoked task ran %d times more", got-before)
	}
}

// testRevokedRunning: a running attempt continues unless the revocation terminates it. An attempt
// that obeys its context is then revoked, and the event says that it was terminated (fault 37).
func testRevokedRunning(t *testing.T, open Open) {
	v, heard := newHeardRevokable(t, open)
	started, release := make(chan struct{}, 2), make(chan struct{})
	handle(v.road, work, func(ctx context.Context, i int) (int, error) {
		started <- struct{}{}
		select {
		case <-release:
			return i, nil
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	})
	v.start()
	if v.h.NoQueues {
		t.Skip("a submission waits for the run")
	}
	alone := submit(v.road, work, 1)
	<-started
	v.revoke(revoke.Options{}, alone.ID())
	v.known(alone.ID())
	ended := submit(v.road, work, 2)
	<-started
	v.revoke(revoke.Options{Terminate: true}, ended.ID())
	wantError(v.road, ended, task.ErrRevoked)
	e, err := heard.Receive(v.ctx())
	if err != nil || e.TaskID != ended.ID() || e.Fields["terminated"] != true || e.Fields["expired"] != false {
		t.Fatalf("event %+v, %v", e, err)
	}
	close(release)
	want(v.road, alone, 1)
}

// testRevokedDelayed: a delayed task can be revoked, and a task can be revoked before it is
// submitted. A producer with a list refuses such a task; without a list, the consumer skips it. A
// message that the broker can find is removed.
func testRevokedDelayed(t *testing.T, open Open) {
	v := newRevokable(t, open)
	runs := atomic.Int64{}
	handle(v.road, work, func(_ context.Context, i int) (int, error) { runs.Add(1); return i, nil })
	handle(v.road, task.New[task.Failure, int]("after"), func(context.Context, task.Failure) (int, error) { return 0, nil })
	v.start()
	v.revoke(revoke.Options{}, "not-yet")
	v.known("not-yet")
	delayed := v.revokeInTime(&runs)
	early := submit(v.road, work, 2, task.WithID("not-yet"))
	wantError(v.road, early, task.ErrRevoked)
	wantError(v.road, delayed, task.ErrRevoked)

	list, _ := v.newList(t, v.h)
	refusing := newRoad(t, v.open, func(p *producer.Config, _ *consumer.Config) {
		p.Middleware = []middleware.SendMiddleware{list.Refuse()}
	})
	if _, err := work.Submit(v.ctx(), refusing.producer, 3, task.WithID("not-yet")); !errors.Is(err, task.ErrRevoked) {
		t.Fatalf("a producer that knows of the revocation: %v", err)
	}

	if _, ok := capability.As[broker.Finder](v.broker); ok {
		v.testRemoved()
	}
	if n := runs.Load(); n != 0 {
		t.Fatalf("revoked tasks ran %d times", n)
	}
}

// revokeInTime submits delayed tasks until one of them was revoked before its time, and returns its
// future.
func (v *revokable) revokeInTime(runs *atomic.Int64) *task.Future[int] {
	v.t.Helper()
	for delay := 500 * time.Millisecond; ; delay *= 2 {
		due := time.Now().Add(delay)
		f := submit(v.road, work, 1, task.WithNotBefore(due))
		v.revoke(revoke.Options{}, f.ID())
		v.known(f.ID())
		if time.Now().Before(due) {
			return f
		}
		<-f.Done()
		runs.Store(0)
	}
}

func (v *revokable) testRemoved() {
	v.t.Helper()
	results := v.h.Results(v.t)
	bus := v.h.Revocations(v.t)
	defer closeAll(v.t, results, bus)
	remover, err := revoke.NewRevoker(revoke.RevokerConfig{Events: bus, Broker: v.broker, Results: results, Queues: []string{queueName}})
	if err != nil {
		v.t.Fatal(err)
	}
	gone := submit(v.road, work, 4, task.WithDelay(time.Hour))
	linked := work.Call(5, task.WithDelay(time.Hour))
	linked.Else = []task.Link{{Name: "after"}}
	left := v.submit(linked)
	got, err := remover.Revoke(v.ctx(), revoke.Options{}, gone.ID(), left.ID(), "nowhere")
	if err != nil || got[0] != revoke.Removed || got[1] != revoke.Noted || got[2] != revoke.Noted {
		v.t.Fatalf("outcomes are %v, %v", got, err)
	}
	wantError(v.road, gone, task.ErrRevoked)
	// made due, and settled by the consumer
	wantError(v.road, task.FutureOf[int](left), task.ErrRevoked)
}

// testRevokedBySelector: tasks are revoked by a header, and no other tasks are.
func testRevokedBySelector(t *testing.T, open Open) {
	v := newRevokable(t, open)
	handle(v.road, work, func(_ context.Context, i int) (int, error) { return i, nil })
	blue := submit(v.road, work, 1, task.WithHeader("tenant", "blue"))
	red := submit(v.road, work, 2, task.WithHeader("tenant", "red"))
	plain := submit(v.road, work, 3)
	err := v.revoker.RevokeMatching(v.ctx(), revoke.Options{}, revoke.Selector{Header: "tenant", Value: "blue", Name: "work"})
	if !errors.Is(err, revoke.ErrUnheard) {
		t.Fatalf("revoke by a selector while no consumer runs: %v", err)
	}
	v.start()
	want(v.road, red, 2)
	want(v.road, plain, 3)
	wantError(v.road, blue, task.ErrRevoked)
}
