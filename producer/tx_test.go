package producer_test

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/jobs/sqljobs"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tx"
)

// shop is a database that is broker and result store, with a consumer of the task number.
type shop struct {
	*open.Swarm
	url string
	p   *producer.Producer
}

// inShop runs fn on each kind of database.
func inShop(t *testing.T, fn func(ctx context.Context, t *testing.T, s *shop)) {
	for kind, url := range map[string]func(t *testing.T) string{
		"sqlite": func(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "app.db") },
		"postgres": func(t *testing.T) string {
			url, err := testserver.RequirePostgres(t).Database(t.Context(), testserver.Namespace())
			if err != nil {
				t.Fatal(err)
			}
			return url
		},
	} {
		t.Run(kind, func(t *testing.T) {
			ctx := testwait.Long(t)
			s := &shop{url: url(t)}
			var err error
			if s.Swarm, err = open.Open(ctx, s.url, open.Options{Logger: quiet}); err != nil {
				t.Fatal(err)
			}
			s.p = newProducer(t, producer.Config{Broker: s.Broker, Results: s.Results, Logger: quiet})
			c, err := consumer.New(consumer.Config{Broker: s.Broker, Results: s.Results, Logger: quiet, Queues: map[string]consumer.QueueConfig{router.DefaultQueue: {}}})
			if err == nil {
				err = number.Handle(c, func(_ context.Context, n int) (int, error) { return n + 1, nil })
			}
			if err == nil {
				err = s.p.Connect(ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
			life, stop := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() { ended <- c.Run(life) }()
			fn(ctx, t, s)
			stop()
			if err := errors.Join(<-ended, s.p.Close(ctx), s.Swarm.Close(ctx)); err != nil {
				t.Error(err)
			}
		})
	}
}

// ended returns a context that ends soon.
func ended(ctx context.Context, t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// A task of SubmitTx runs after the commit, and only then. Before it and after a rollback it is not
// known.
func TestSubmitTx(t *testing.T) {
	inShop(t, func(ctx context.Context, t *testing.T, s *shop) {
		var open []*task.Future[int]
		for i, commit := range []bool{true, false, true} {
			own := sqltest.Begin(t, s.url)
			f, err := number.SubmitTx(ctx, s.p, own.Tx, i)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.State(ctx); !errors.Is(err, task.ErrNotFound) || !strings.Contains(err.Error(), "transaction") {
				t.Errorf("State before the commit: %v", err)
			}
			if _, err := s.p.Pending(f.ID()).State(ctx); !errors.Is(err, task.ErrNotFound) {
				t.Errorf("State of another handle before the commit: %v", err)
			}
			if _, err := f.Get(ended(ctx, t)); !errors.Is(err, task.ErrNotFound) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Get before the commit: %v", err)
			}
			if !commit {
				if err := own.Rollback(); err != nil {
					t.Fatal(err)
				}
				open = append(open, f)
				continue
			}
			if err := own.Commit(); err != nil {
				t.Fatal(err)
			}
			if n, err := f.Get(ctx); err != nil || n != i+1 {
				t.Errorf("Get after the commit: %d, %v", n, err)
			}
			if state, err := f.State(ctx); err != nil || state != task.StateSucceeded {
				t.Errorf("State after the end: %s, %v", state, err)
			}
		}
		for _, f := range open {
			if _, err := f.Get(ended(ctx, t)); !errors.Is(err, task.ErrNotFound) {
				t.Errorf("Get after the rollback: %v", err)
			}
			select {
			case <-f.Done():
				t.Error("Done is closed after the rollback")
			default:
			}
		}
	})
}

// The steps of a workflow are stored together.
func TestSubmitTxWorkflow(t *testing.T) {
	inShop(t, func(ctx context.Context, t *testing.T, s *shop) {
		members := make([]task.Part[task.None, int], 150)
		for i := range members {
			members[i] = number.Bound(i)
		}
		for _, commit := range []bool{false, true} {
			own := sqltest.Begin(t, s.url)
			run, err := task.Group(members...).SubmitTx(ctx, s.p, own.Tx, task.None{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := run.State(ctx); !errors.Is(err, task.ErrNotFound) {
				t.Errorf("State before the commit: %v", err)
			}
			if !commit {
				if err := own.Rollback(); err != nil {
					t.Fatal(err)
				}
				if _, err := run.Get(ended(ctx, t)); !errors.Is(err, task.ErrNotFound) {
					t.Errorf("Get after the rollback: %v", err)
				}
				continue
			}
			if err := own.Commit(); err != nil {
				t.Fatal(err)
			}
			got, err := run.Get(ctx)
			if err != nil || len(got) != len(members) || !slices.IsSorted(got) || got[0] != 1 {
				t.Errorf("the group gives %v, %v", got, err)
			}
			chain, err := task.Chain(number, number).SubmitTx(ctx, s.p, begun(t, s.url, &own), 1)
			if err != nil {
				t.Fatal(err)
			}
			if err := own.Commit(); err != nil {
				t.Fatal(err)
			}
			if n, err := chain.Get(ctx); err != nil || n != 3 {
				t.Errorf("the chain gives %d, %v", n, err)
			}
		}
	})
}

// begun begins another transaction in own.
func begun(t *testing.T, url string, own *sqltest.Transaction) tx.Tx {
	*own = sqltest.Begin(t, url)
	return own.Tx
}

// A task with conditions becomes a job in the transaction.
func TestSubmitTxConditions(t *testing.T) {
	inShop(t, func(ctx context.Context, t *testing.T, s *shop) {
		store, err := sqljobs.New(sqljobs.Config{DB: sqltest.Open(t, s.url)})
		if err != nil {
			t.Fatal(err)
		}
		service, err := jobs.New(jobs.Config{Store: store, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := service.Create(ctx, jobs.Spec{Name: "makes the tables"}); err != nil {
			t.Fatal(err)
		}
		p := newProducer(t, producer.Config{Broker: s.Broker, Results: s.Results, Jobs: service, Logger: quiet})
		if err := p.Connect(ctx); err != nil {
			t.Fatal(err)
		}
		key := task.WithUniqueKey("k")
		for _, commit := range []bool{false, true} {
			own := sqltest.Begin(t, s.url)
			f, err := number.SubmitTx(ctx, p, own.Tx, 1, key, task.WithID("chosen"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := number.SubmitTx(ctx, p, own.Tx, 1, key, task.WithID("chosen")); err != nil {
				t.Errorf("the same task in the same transaction: %v", err)
			}
			if _, err := number.SubmitTx(ctx, p, own.Tx, 1, task.WithSequenceKey("s")); !errors.Is(err, broker.ErrUnsupported) {
				t.Errorf("a sequence: %v", err)
			}
			if !commit {
				if err := own.Rollback(); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if err := own.Commit(); err != nil {
				t.Fatal(err)
			}
			own = sqltest.Begin(t, s.url)
			_, err = number.SubmitTx(ctx, p, own.Tx, 1, key)
			if taken, ok := errors.AsType[*task.TakenError](err); !ok || taken.Task != f.ID() {
				t.Errorf("a second task with the key: %v", err)
			}
			if err := own.Commit(); err != nil {
				t.Errorf("Commit after the refusal: %v", err)
			}
		}
		if err := errors.Join(p.Close(ctx), service.Close(ctx), store.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
}

// untouched is a transaction in which no statement may run.
type untouched struct{ t *testing.T }

func (u untouched) Exec(_ context.Context, query string, _ ...any) (int64, error) {
	u.t.Errorf("a statement ran: %s", query)
	return 0, errors.New("refused")
}

func (u untouched) Query(_ context.Context, query string, _ ...any) (tx.Rows, error) {
	u.t.Errorf("a statement ran: %s", query)
	return nil, errors.New("refused")
}

// A task that cannot be part of a transaction is refused before any statement.
func TestSubmitTxRefused(t *testing.T) {
	b, results := membroker.New(), memresults.New(memresults.Config{})
	store, err := memjobs.New(memjobs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	service, err := jobs.New(jobs.Config{Store: store, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	plain := newProducer(t, producer.Config{Broker: b, Results: results})
	boxed := newProducer(t, producer.Config{Broker: b, Results: results, Outbox: &box{}, Jobs: service})
	ctx, none := t.Context(), untouched{t}
	stream := func(func(any) bool) {}
	for name, c := range map[string]struct {
		submit func() error
		texts  []string
	}{
		"broker": {func() error { _, err := number.SubmitTx(ctx, plain, none, 1); return err }, []string{"Config.Outbox", "PostgreSQL"}},
		"unique": {func() error {
			_, err := number.SubmitTx(ctx, boxed, none, 1, task.WithUnique("k", time.Hour))
			return err
		}, []string{"WithID"}},
		"no jobs": {func() error {
			_, err := number.SubmitTx(ctx, plain, none, 1, task.WithUniqueKey("k"))
			return err
		}, []string{"Config.Jobs"}},
		"jobs in memory": {func() error {
			_, err := number.SubmitTx(ctx, boxed, none, 1, task.WithUniqueKey("k"))
			return err
		}, []string{"transaction"}},
		"at most once": {func() error {
			_, err := number.SubmitTx(ctx, boxed, none, 1, task.WithIdempotent(false))
			return err
		}, []string{"outbox", "at most once"}},
		"at most once in a workflow": {func() error {
			_, err := task.Chain(task.New[int, int]("once", task.WithIdempotent(false)), number).SubmitTx(ctx, boxed, none, 1)
			return err
		}, []string{"outbox", "at most once"}},
		"stream": {func() error {
			_, err := boxed.SubmitWorkTx(ctx, none, task.Work{Node: &task.Node{}, Stream: stream})
			return err
		}, []string{"task.Stream"}},
		"workflow": {func() error {
			_, err := task.Chain(number, number).SubmitTx(ctx, plain, none, 1)
			return err
		}, []string{"Config.Outbox"}},
	} {
		err := c.submit()
		if !errors.Is(err, broker.ErrUnsupported) {
			t.Errorf("%s: %v, want ErrUnsupported", name, err)
			continue
		}
		for _, text := range c.texts {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v does not name %s", name, err, text)
			}
		}
	}
	if n := producer.Waiters(plain) + producer.Waiters(boxed); n != 0 {
		t.Errorf("%d tasks are waited for after the refusals", n)
	}
	if err := errors.Join(plain.Close(ctx), boxed.Close(ctx), service.Close(ctx), store.Close(ctx), b.Close(ctx), results.Close(ctx)); err != nil {
		t.Error(err)
	}
	if _, err := number.SubmitTx(ctx, boxed, none, 1); !errors.Is(err, producer.ErrClosed) {
		t.Errorf("SubmitTx after Close: %v", err)
	}
}

// box is an outbox that keeps the messages.
type box struct {
	kept []broker.Outgoing
	err  error
}

func (b *box) PublishTx(_ context.Context, _ tx.Tx, ms []broker.Outgoing) error {
	if b.err == nil {
		b.kept = append(b.kept, ms...)
	}
	return b.err
}

// ear is a bus that notes the types of events.
type ear struct {
	mu    sync.Mutex
	types []string
}

func (b *ear) Publish(_ context.Context, e events.Event) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.types = append(b.types, e.Type)
	return nil
}

func (*ear) Subscribe(context.Context, events.Filter) (events.Subscription, error) { return nil, nil }
func (*ear) Close(context.Context) error                                           { return nil }

// deaf is a store of results whose notifications cannot be opened.
type deaf struct{ resultstore.ResultStore }

func (deaf) Notify(context.Context, string) (resultstore.Notifications, error) {
	return nil, resultstore.ErrUnavailable
}

// An outbox gets the tasks, also if the broker and the notifications of results cannot be reached;
// their store is asked then. Middleware learns the outcome. No
// event says that a task was sent. A handle that the program drops costs nothing.
func TestSubmitTxOutbox(t *testing.T) {
	out, bus, results := &box{}, &ear{}, memresults.New(memresults.Config{})
	var outcomes []error
	p := newProducer(t, producer.Config{
		Broker: away{membroker.New()}, Outbox: out, Results: deaf{results}, Events: bus, Logger: quiet,
		Middleware: []middleware.SendMiddleware{func(next middleware.Sender) middleware.Sender {
			return func(ctx context.Context, queue string, e *task.Envelope) error {
				if c, ok := middleware.ConfirmerFrom(ctx); ok {
					c.OnConfirm(func(err error) { outcomes = append(outcomes, err) })
				}
				return next(ctx, queue, e)
			}
		}},
	})
	ctx, none := testwait.Long(t), untouched{t}
	f, err := number.SubmitTx(ctx, p, none, 1, task.WithQueue("other"), task.WithID("first"))
	if err != nil {
		t.Fatal(err)
	}
	if len(out.kept) != 1 || out.kept[0].Queue != "other" || out.kept[0].Message.ID != "first" {
		t.Fatalf("the outbox has %+v", out.kept)
	}
	out.err = errors.New("full")
	if _, err := number.SubmitTx(ctx, p, none, 1, task.WithID("second")); !errors.Is(err, out.err) {
		t.Errorf("SubmitTx: %v", err)
	}
	if len(outcomes) != 2 || outcomes[0] != nil || !errors.Is(outcomes[1], out.err) {
		t.Errorf("the middleware learns %v", outcomes)
	}
	if n := producer.Waiters(p); n != 1 {
		t.Errorf("%d tasks are waited for, want the first alone", n)
	}
	if err := results.Save(ctx, answer(f.ID(), p.NodeID())); err != nil {
		t.Fatal(err)
	}
	if n, err := f.Get(ctx); err != nil || n != 42 {
		t.Errorf("Get: %d, %v", n, err)
	}

	out.err = nil
	done := func() <-chan struct{} { // the handles are out of reach after it
		dropped, err := number.SubmitTx(ctx, p, none, 1)
		if err != nil {
			t.Fatal(err)
		}
		_ = dropped
		awaited, err := number.SubmitTx(ctx, p, none, 1, task.WithID("awaited"))
		if err != nil {
			t.Fatal(err)
		}
		return awaited.Done()
	}()
	testwait.Until(t, "the dropped handle is released", func() bool {
		runtime.GC()
		return producer.Waiters(p) == 1
	})
	runtime.GC()
	if err := results.Save(ctx, answer("awaited", p.NodeID())); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
	case <-ctx.Done():
		t.Error("Done is not closed: the handle was released although the program waits for its channel")
	}
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
	bus.mu.Lock()
	defer bus.mu.Unlock()
	if len(bus.types) == 0 || slices.Contains(bus.types, events.TaskSent) {
		t.Errorf("the events are %v: want those of the producer, and none of its tasks", bus.types)
	}
	if err := results.Close(ctx); err != nil {
		t.Error(err)
	}
}

// On SQLite a transaction keeps the producer from declaring queues. SubmitTx says so and does not
// wait for ever. Connect before it, or the rollback, ends that.
func TestSubmitTxUndeclared(t *testing.T) {
	ctx := testwait.Long(t)
	url := "sqlite://" + filepath.Join(t.TempDir(), "app.db")
	swarm, err := open.Open(ctx, url, open.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	p := newProducer(t, producer.Config{Broker: swarm.Broker, Results: swarm.Results, Logger: quiet})
	own := sqltest.Begin(t, url)
	_, err = number.SubmitTx(ctx, p, own.Tx, 1)
	if !errors.Is(err, broker.ErrUnavailable) || !strings.Contains(err.Error(), "Producer.Connect") {
		t.Errorf("SubmitTx without queues: %v", err)
	}
	if err := own.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := p.Connect(ctx); err != nil {
		t.Fatal(err)
	}
	own = sqltest.Begin(t, url)
	if _, err := number.SubmitTx(ctx, p, own.Tx, 1); err != nil {
		t.Errorf("SubmitTx after Connect: %v", err)
	}
	if err := own.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.Close(ctx), swarm.Close(ctx)); err != nil {
		t.Error(err)
	}
}
