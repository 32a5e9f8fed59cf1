package producer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

func TestMain(m *testing.M) {
	if suite.ProcessNode() != "" {
		member := dispatcher
		if os.Getenv(memberDatabase) != "" {
			member = buyer
		}
		if err := member(); err != nil {
			_, _ = fmt.Fprintln(os.Stdout, err)
		}
		return
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper))
}

var number = task.New[int, int]("number")

// answer returns a record as a consumer saves it.
func answer(id task.ID, to string) resultstore.Record {
	return resultstore.Record{ID: id, State: task.StateSucceeded, ContentType: serializer.ContentJSON, Result: []byte("42"), ReplyTo: to}
}

func newProducer(t *testing.T, c producer.Config) *producer.Producer {
	t.Helper()
	p, err := producer.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// silent is a store without notifications.
type silent struct{ resultstore.ResultStore }

// replies is a store that only sends records, and whose stream cannot be opened.
type replies struct{ resultstore.ResultStore }

func (replies) Replies(ctx context.Context, _ string) (resultstore.Replies, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// away is a broker that is unreachable.
type away struct{ broker.Broker }

func (away) Publish(ctx context.Context, _ string, _ *broker.Message) error {
	<-ctx.Done()
	return errors.Join(broker.ErrUnavailable, ctx.Err())
}

// uncertain is a broker whose confirms are lost.
type uncertain struct{ broker.Broker }

func (uncertain) Publish(context.Context, string, *broker.Message) error {
	return broker.ErrIndeterminate
}

func TestResultIsFoundWithoutNotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memresults.New(memresults.Config{})
		p := newProducer(t, producer.Config{Broker: membroker.New(), Results: silent{store}})
		f, err := number.Submit(t.Context(), p, 1)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // the bubble's clock: meanwhile the store is asked many times
		if err := store.Save(t.Context(), answer(f.ID(), "")); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if got, err := f.Get(t.Context()); err != nil || got != 42 {
			t.Fatal(got, err)
		}
		if waited := time.Since(begin); waited > 15*time.Second {
			t.Fatalf("a stored result was found after %s", waited)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = store.Close(t.Context())
	})
}

func TestPendingOfAnotherProducersTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memresults.New(memresults.Config{})
		p := newProducer(t, producer.Config{Broker: membroker.New(), Results: store})
		f := task.FutureOf[int](p.Pending("elsewhere"))
		if err := store.Save(t.Context(), answer("elsewhere", "another-node")); err != nil {
			t.Fatal(err)
		}
		if got, err := f.Get(t.Context()); err != nil || got != 42 {
			t.Fatal(got, err)
		}
		if s, err := p.Pending("unknown").State(t.Context()); !errors.Is(err, task.ErrNotFound) || !errors.Is(err, resultstore.ErrNotFound) || s != "" {
			t.Fatal(s, err)
		}
		_ = p.Close(t.Context())
		_ = store.Close(t.Context())
		none := newProducer(t, producer.Config{Broker: membroker.New()})
		if err := none.Pending("x").Result(t.Context(), nil); !errors.Is(err, task.ErrNoResult) {
			t.Fatal(err)
		}
	})
}

func TestSubmitHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := away{membroker.New()}
		p := newProducer(t, producer.Config{Broker: b})
		begin := time.Now()
		_, err := number.Submit(t.Context(), p, 1)
		if !errors.Is(err, broker.ErrUnavailable) || time.Since(begin) != producer.DefaultTimeout {
			t.Fatalf("%v after %s", err, time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin = time.Now()
		if _, err := number.Submit(ctx, p, 1); err == nil || time.Since(begin) != time.Second {
			t.Fatalf("the caller's deadline: %v after %s", err, time.Since(begin))
		}
		_ = p.Close(t.Context())
	})
}

// TestReplyStreamComesFirst shows that with a store that only replies nothing is sent before its
// stream is open.
func TestReplyStreamComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New()
		p := newProducer(t, producer.Config{Broker: b, Results: replies{memresults.New(memresults.Config{})}})
		if _, err := number.Submit(t.Context(), p, 1); !errors.Is(err, broker.ErrUnavailable) {
			t.Fatal(err)
		}
		if s, err := b.Stats(t.Context(), "default"); err != nil || s.Ready != 0 {
			t.Fatalf("%+v, %v: a task was sent that nobody could answer", s, err)
		}
		if _, err := number.Submit(t.Context(), p, 1, task.WithIgnoreResult(true)); err != nil {
			t.Fatalf("a task without a result needs no stream: %v", err)
		}
		_ = p.Close(t.Context())
	})
}

// TestUncertainTaskKeepsItsWaiter shows that the same id can be submitted again, and that both
// futures get the result of either copy.
func TestUncertainTaskKeepsItsWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memresults.New(memresults.Config{})
		server := membroker.NewServer(membroker.Config{})
		first := newProducer(t, producer.Config{Broker: uncertain{server.Connect()}, Results: store, Report: events.Report{NodeID: "node-1"}})
		if _, err := number.Submit(t.Context(), first, 1, task.WithID("same")); !errors.Is(err, broker.ErrIndeterminate) {
			t.Fatal(err)
		}
		if err := store.Save(t.Context(), answer("same", "node-1")); err != nil {
			t.Fatal(err)
		}
		if got, err := task.FutureOf[int](first.Pending("same")).Get(t.Context()); err != nil || got != 42 {
			t.Fatal(got, err)
		}
		_ = first.Close(t.Context())
		_ = store.Close(t.Context())
	})
}

// TestForeignResultsAreCounted shows that the result of an unknown task is counted and ignored (bad
// input 21).
func TestForeignResultsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memresults.New(memresults.Config{})
		m := new(middleware.Metrics)
		p := newProducer(t, producer.Config{Broker: membroker.New(), Results: store, Report: events.Report{NodeID: "node-1"}, Metrics: m})
		f, err := number.Submit(t.Context(), p, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []task.ID{"other-1", "other-2"} {
			if err := store.Save(t.Context(), answer(id, "node-1")); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := m.Rejected.Count(); n != 2 {
			t.Fatalf("%d results rejected, want 2", n)
		}
		select {
		case <-f.Done():
			t.Fatal("another task's result resolved this future")
		default:
		}
		_ = p.Close(t.Context())
		_ = store.Close(t.Context())
	})
}

// Promises: S2.
func TestCloseEndsFutures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memresults.New(memresults.Config{})
		p := newProducer(t, producer.Config{Broker: membroker.New(), Results: store})
		f, err := number.Submit(t.Context(), p, 1)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := p.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := f.Get(t.Context()); !errors.Is(err, producer.ErrClosed) {
			t.Fatal(err)
		}
		if _, err := p.SubmitAll(t.Context(), []task.Call{number.Call(1)}); !errors.Is(err, producer.ErrClosed) {
			t.Fatal(err)
		}
		_ = store.Close(t.Context())
	})
}

func TestConfigNamesEveryProblem(t *testing.T) {
	_, err := producer.New(producer.Config{
		Report: events.Report{NodeID: "a b"}, Defaults: task.Metadata{Priority: task.Set(-1)}, Wire: serializer.Wire{MaxBody: -1, QueueFormats: map[string]serializer.Format{"*": nil}},
		Stores: map[string]resultstore.ResultStore{"x": nil}, Queues: []broker.Queue{{Name: "$"}},
	})
	if err == nil {
		t.Fatal("taken")
	}
	for _, part := range []string{"Broker", "NodeID", "Defaults", "MaxBody", "Stores", "Queues", "QueueFormats"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s is missing in %q", part, err)
		}
	}
	p := newProducer(t, producer.Config{Broker: membroker.New()})
	if _, err := number.Submit(t.Context(), p, 1, task.WithResultStore("nowhere")); !errors.Is(err, task.ErrBadMetadata) {
		t.Errorf("an unknown store: %v", err)
	}
	if _, err := number.Submit(t.Context(), p, 1, task.WithSerializer("text/klingon")); !errors.Is(err, serializer.ErrUnknownType) {
		t.Errorf("an unknown serializer: %v", err)
	}
}

func TestPrioritiesNeedLevels(t *testing.T) {
	b := membroker.New()
	p := newProducer(t, producer.Config{Broker: b, Queues: []broker.Queue{{Name: "default", Levels: []int{10, 100, 1000}}}})
	for i, prio := range []int{500, 100, 0} {
		if _, err := number.Submit(t.Context(), p, i, task.WithPriority(prio), task.WithIgnoreResult(true)); err != nil {
			t.Fatal(err)
		}
	}
	sub, err := b.Subscribe(t.Context(), "default", broker.SubscribeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{0, 100, 500} {
		d, err := sub.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Message().Priority; got != want {
			t.Fatalf("received priority %d, want %d", got, want)
		}
	}
	_ = b.Close(t.Context())
}

// unreachable is a broker whose queues cannot be declared.
type unreachable struct{ broker.Broker }

func (unreachable) Declare(ctx context.Context, _ ...broker.Queue) error {
	<-ctx.Done()
	return errors.Join(broker.ErrUnavailable, ctx.Err())
}

// TestEachSubmitHasItsOwnDeadline shows that a submission that waits for the broker does not delay
// another one beyond its deadline.
func TestEachSubmitHasItsOwnDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProducer(t, producer.Config{Broker: unreachable{membroker.New()}})
		patient, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		first := make(chan error)
		go func() {
			_, err := number.Submit(patient, p, 1)
			first <- err
		}()
		synctest.Wait()
		hasty, cancelHasty := context.WithTimeout(t.Context(), time.Second)
		defer cancelHasty()
		begin := time.Now()
		if _, err := number.Submit(hasty, p, 2); !errors.Is(err, broker.ErrUnavailable) || time.Since(begin) != time.Second {
			t.Fatalf("%v after %s", err, time.Since(begin))
		}
		if err := <-first; !errors.Is(err, broker.ErrUnavailable) {
			t.Fatal(err)
		}
		_ = p.Close(t.Context())
	})
}

// TestBadIDDoesNotHoldUpOthers shows that the handle of a malformed id returns an error, and that
// the store is asked for other tasks as before.
func TestBadIDDoesNotHoldUpOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memresults.New(memresults.Config{})
		p := newProducer(t, producer.Config{Broker: membroker.New(), Results: silent{store}})
		if err := p.Pending("no such\nid").Result(t.Context(), nil); !errors.Is(err, task.ErrBadID) {
			t.Fatal(err)
		}
		f := task.FutureOf[int](p.Pending("later"))
		f.Done()
		if err := store.Save(t.Context(), answer("later", "")); err != nil {
			t.Fatal(err)
		}
		if got, err := f.Get(t.Context()); err != nil || got != 42 {
			t.Fatal(got, err)
		}
		_ = p.Close(t.Context())
		_ = store.Close(t.Context())
	})
}

// TestBadSuccessorsAreRefused shows that malformed successors are refused before anything is sent.
func TestBadSuccessorsAreRefused(t *testing.T) {
	p := newProducer(t, producer.Config{Broker: membroker.New()})
	for _, l := range []task.Link{{Name: "a b"}, {Name: "ok", Queue: "$"}, {Name: "ok", ID: "a b"}, {Name: "ok", Then: []task.Link{{}}}} {
		c := number.Call(1)
		c.Else = []task.Link{l}
		if _, err := p.Submit(t.Context(), c); !errors.Is(err, task.ErrBadName) && !errors.Is(err, task.ErrBadID) {
			t.Errorf("%+v: %v", l, err)
		}
	}
}

// TestGroupWithoutMembers shows that the error of a group without members says the cause.
func TestGroupWithoutMembers(t *testing.T) {
	b, store := membroker.New(), memresults.New(memresults.Config{})
	p := newProducer(t, producer.Config{Broker: b, Results: store})
	defer func() {
		ctx := context.Background()
		if err := errors.Join(p.Close(ctx), store.Close(ctx), b.Close(ctx)); err != nil {
			t.Error(err)
		}
	}()
	_, err := task.Group[int, int]().Submit(t.Context(), p, 1)
	if !errors.Is(err, task.ErrBadMetadata) || !strings.Contains(err.Error(), "a group has no members") {
		t.Errorf("a group without members: %v", err)
	}
	_, err = task.Chain(number, task.New[int, int]("")).Submit(t.Context(), p, 1)
	if !errors.Is(err, task.ErrBadMetadata) || !strings.Contains(err.Error(), "a step has no name") {
		t.Errorf("a step without a name: %v", err)
	}
}
