package endtoend

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/deadletter"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// broken is a task that no consumer knows at first, so it becomes a dead letter. repaired is its
// handler.
var broken = task.New[int, int]("broken")

// runs records the runs of repaired.
type runs struct {
	mu   sync.Mutex
	seen []task.Request
}

func (n *runs) handle(ctx context.Context, i int) (int, error) {
	req, _ := task.FromContext(ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seen = append(n.seen, *req)
	return i * 10, nil
}

func (n *runs) all() []task.Request {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]task.Request(nil), n.seen...)
}

// newBroken is like newWorks, with a consumer that dead-letters unknown tasks after few retries.
func newBroken(t *testing.T, open Open, change ...func(*producer.Config, *consumer.Config)) *road {
	return newWorks(t, open, append(change, func(_ *producer.Config, c *consumer.Config) { c.Tuning.UnknownRetries = 2 })...)
}

// letters returns the dead letters as an operator's process sees them, and its result store.
func (r *road) letters(b broker.Broker, change func(resultstore.ResultStore) resultstore.ResultStore) (*deadletter.Letters, resultstore.ResultStore) {
	r.t.Helper()
	results := r.h.Results(r.t)
	r.t.Cleanup(func() { _ = results.Close(context.Background()) })
	store := results
	if change != nil {
		store = change(store)
	}
	l, err := deadletter.New(deadletter.Config{Broker: b, Results: store, Wire: serializer.Wire{Formats: nil}})
	if err != nil {
		r.t.Fatal(err)
	}
	return l, results
}

// requeue requeues one dead letter and returns the report.
func (r *road) requeue(l *deadletter.Letters, id task.ID) deadletter.Report {
	r.t.Helper()
	got, err := l.Requeue(r.ctx(), queueName, deadletter.Filter{IDs: []task.ID{id}})
	if err != nil {
		r.t.Fatalf("requeue %s: %v", id, err)
	}
	return got
}

// wantElsewhere waits in another process for the result of a task. It does nothing if the store
// replies only to the submitter.
func (r *road) wantElsewhere(id task.ID, value int) {
	r.t.Helper()
	if p := r.pendingElsewhere(id, nil); p != nil {
		want(r, task.FutureOf[int](p), value)
	}
}

// testRequeued: a requeued dead letter starts its next generation. Its counts begin again, it
// succeeds, the skipped steps run, and the futures of another process report that.
func testRequeued(t *testing.T, open Open) {
	r := newBroken(t, open)
	r.start()
	run := submitWork(r, task.Chain3(broken, inc, inc), 4)
	wantError(r, run.Future, task.ErrUnknownTask)
	first, second := run.Steps()[0].ID(), run.Steps()[1].ID()
	r.wantDead(string(first), "broken")
	l, results := r.letters(r.broker, nil)
	r.eventually("the letter is listed", func() (found bool) {
		err := l.List(r.ctx(), queueName, deadletter.Filter{Task: "brok*"}, func(letter *deadletter.Letter) bool {
			var arg int
			if err := letter.Bind(&arg); err != nil || arg != 4 || letter.ID != first || letter.Name() != "broken" {
				t.Errorf("letter %+v, argument %d, %v", letter, arg, err)
			}
			found = true
			return true
		})
		return err == nil && found
	})
	var n runs
	handle(r, broken, n.handle)
	report := r.requeue(l, first)
	if report.Done != 1 || report.Refused != 0 || (report.Unfenced == 1) != resultstore.RepliesOnly(results) {
		t.Fatalf("report %+v", report)
	}
	r.eventually("the requeued task runs", func() bool { return len(n.all()) > 0 })
	if got := n.all()[0]; got.Life != 1 || got.Retries != 0 || got.Parked != 0 || got.ID != first {
		t.Errorf("the new life began with life %d, retries %d, parked %d, id %s", got.Life, got.Retries, got.Parked, got.ID)
	}
	r.wantElsewhere(first, 40)
	r.wantElsewhere(second, 41)
	r.wantElsewhere(run.ID(), 42)
	r.eventually("the letter is gone", func() bool { return !r.isDead(string(first)) })
	if got := r.requeue(l, first); got.Done != 0 {
		t.Errorf("a letter that is gone was requeued: %+v", got)
	}
	if got := n.all(); len(got) != 1 {
		t.Errorf("%d runs, want 1", len(got))
	}
}

// testRequeuedAgain: a requeued task that fails again is a dead letter of its new generation. Each
// generation has its own error task.
func testRequeuedAgain(t *testing.T, open Open) {
	r := newBroken(t, open)
	failures, ids := make(chan task.Failure, 10), make(map[task.ID]bool)
	errorIDs := make(chan task.ID, 10)
	onError := task.New[task.Failure, int]("on-error")
	handle(r, onError, func(ctx context.Context, f task.Failure) (int, error) {
		req, _ := task.FromContext(ctx)
		errorIDs <- req.ID
		failures <- f
		return 0, nil
	})
	r.start()
	run := submitWork(r, task.OnError(task.Chain(broken, inc), onError), 4)
	id := run.Steps()[0].ID()
	l, _ := r.letters(r.broker, nil)
	for life := range 2 {
		select {
		case f := <-failures:
			if f.ID != id {
				t.Fatalf("the error task of life %d got %+v", life, f)
			}
			ids[<-errorIDs] = true
		case <-r.ctx().Done():
			t.Fatalf("the error task of life %d did not run", life)
		}
		r.wantDead(string(id), "broken")
		if life == 0 {
			if got := r.requeue(l, id); got.Done != 1 {
				t.Fatalf("report %+v", got)
			}
		}
	}
	if len(ids) != 2 {
		t.Errorf("error tasks of two lives have %d ids", len(ids))
	}
	var n runs
	handle(r, broken, n.handle)
	r.eventually("the letter of the second life is there", func() (ok bool) {
		_ = l.List(r.ctx(), queueName, deadletter.Filter{}, func(letter *deadletter.Letter) bool { ok = letter.Life == 1; return true })
		return ok
	})
	if got := r.requeue(l, id); got.Done != 1 {
		t.Fatalf("report %+v", got)
	}
	r.eventually("the requeued task runs", func() bool { return len(n.all()) > 0 })
	if got := n.all()[0]; got.Life != 2 {
		t.Errorf("life %d, want 2", got.Life)
	}
	r.wantElsewhere(run.ID(), 41)
}

// testRequeuedSealed: requeueing a sealed task needs no key. Its arguments are not shown, and the
// following steps run.
func testRequeuedSealed(t *testing.T, open Open) {
	ring := keyRing(t, "k")
	r := newBroken(t, open, func(p *producer.Config, c *consumer.Config) { p.Wire.Sealer, c.Wire.Sealer = ring, ring })
	r.start()
	run := submitWork(r, task.Chain(broken, inc), 4)
	wantError(r, run.Future, task.ErrUnknownTask)
	id := run.Steps()[0].ID()
	r.wantDead(string(id), "broken")
	l, results := r.letters(r.broker, nil)
	if err := l.List(r.ctx(), queueName, deadletter.Filter{Task: "broken"}, func(letter *deadletter.Letter) bool {
		var arg int
		if err := letter.Bind(&arg); err == nil || letter.Unread == nil {
			t.Errorf("the arguments of a sealed letter were read without a key: %d", arg)
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	var n runs
	handle(r, broken, n.handle)
	if got := r.requeue(l, id); got.Done != 1 {
		t.Fatalf("report %+v", got)
	}
	r.eventually("the requeued task runs", func() bool { return len(n.all()) > 0 })
	if got := n.all()[0]; got.Life != 1 || got.Parked != 0 {
		t.Errorf("the new life began with life %d, parked %d", got.Life, got.Parked)
	}
	if resultstore.RepliesOnly(results) {
		return
	}
	// before, the last step's record may show the failure of the first generation
	r.eventually("its record says that it has succeeded", func() bool {
		rec, err := results.Load(r.ctx(), id)
		return err == nil && rec.State == task.StateSucceeded
	})
	want(r, task.FutureOf[int](r.pendingElsewhere(run.ID(), ring)), 41)
}

var errCrash = errors.New("the process that requeues has crashed")

// crashingBroker crashes once, before or after it has published.
type crashingBroker struct {
	broker.Broker
	before, after bool
}

func (b *crashingBroker) Unwrap() any { return b.Broker }

func (b *crashingBroker) Publish(ctx context.Context, queue string, m *broker.Message) error {
	if b.before {
		b.before = false
		return errCrash
	}
	err := b.Broker.Publish(ctx, queue, m)
	if err == nil && b.after {
		b.after = false
		return errCrash
	}
	return err
}

// crashingStore crashes once, after it has saved.
type crashingStore struct {
	resultstore.ResultStore
	after bool
}

func (s *crashingStore) Save(ctx context.Context, rec resultstore.Record) error {
	err := s.ResultStore.Save(ctx, rec)
	if err == nil && s.after {
		s.after = false
		return errCrash
	}
	return err
}

// testRequeueCrashes: a process that dies after any step of Requeue leaves a dead letter that can
// be requeued again. With a store that keeps records the task still runs once.
func testRequeueCrashes(t *testing.T, open Open) {
	for _, at := range []string{"saved", "not published", "published"} {
		t.Run(at, func(t *testing.T) {
			r := newBroken(t, open)
			running := r.start()
			f := submit(r, broken, 4)
			wantError(r, f, task.ErrUnknownTask)
			r.wantDead(string(f.ID()), "broken")
			if err := running.stop(); err != nil {
				t.Fatal(err)
			}
			b := &crashingBroker{Broker: r.broker, before: at == "not published", after: at == "published"}
			var store *crashingStore
			l, results := r.letters(b, func(s resultstore.ResultStore) resultstore.ResultStore {
				if resultstore.RepliesOnly(s) {
					return s
				}
				store = &crashingStore{s, at == "saved"}
				return store
			})
			if at == "saved" && store == nil {
				return // with reply queues there is nothing to save
			}
			if _, err := l.Requeue(r.ctx(), queueName, deadletter.Filter{}); !errors.Is(err, errCrash) {
				t.Fatalf("the crash shows as %v", err)
			}
			if !r.isDead(string(f.ID())) {
				t.Fatal("the letter is gone")
			}
			if got := r.requeue(l, f.ID()); got.Done != 1 || got.Already != 0 || got.Refused != 0 {
				t.Fatalf("report %+v", got)
			}
			var n runs
			r.second(func(c *consumer.Consumer) {
				if err := broken.Handle(c, n.handle); err != nil {
					t.Fatal(err)
				}
			})
			r.eventually("the requeued task runs", func() bool { return len(n.all()) > 0 })
			r.wantElsewhere(f.ID(), 40)
			if r.isDead(string(f.ID())) {
				t.Error("the letter is still there")
			}
			r.quietQueue()
			if seen := n.all(); len(seen) != 1 && !resultstore.RepliesOnly(results) {
				t.Errorf("%d runs, want 1", len(seen))
			}
		})
	}
}

// quietQueue waits until the queue has neither ready nor held messages.
func (r *road) quietQueue() {
	r.t.Helper()
	i, ok := capability.As[broker.Inspector](r.broker)
	if !ok {
		return
	}
	r.eventually("the queue is empty", func() bool {
		s, err := i.Stats(r.ctx(), queueName)
		return err == nil && s.Ready <= 0 && s.Held <= 0 && s.Delayed <= 0
	})
}

// testOldLifeIsFenced: a consumer dies after it has dead-lettered its task and before it has
// acknowledged it. Once the letter is requeued, late writes of the old generation are refused. Its
// message, when it is redelivered, is dropped.
func testOldLifeIsFenced(t *testing.T, open Open) {
	// otherwise it would only be counted
	r := newBroken(t, open, func(_ *producer.Config, c *consumer.Config) { c.Tuning.MaxCrashes = -1 })
	l, results := r.letters(r.broker, nil)
	if resultstore.RepliesOnly(results) {
		return // reply queues fence no writer; testRequeued checks their report
	}
	if err := broker.Declare(r.ctx(), r.broker, broker.Queue{Name: queueName}); err != nil {
		t.Fatal(err)
	}
	f := submit(r, broken, 4)
	sub, err := r.broker.Subscribe(r.ctx(), queueName, broker.SubscribeOptions{Prefetch: 1})
	if err != nil {
		t.Fatal(err)
	}
	d, err := sub.Receive(r.ctx())
	if err != nil {
		t.Fatal(err)
	}
	old := resultstore.Record{ID: f.ID(), Name: "broken", State: task.StateFailed, Deliveries: 1, Error: &task.RemoteError{Type: "crash", Message: "crash"}}
	if err := results.Save(r.ctx(), old); err != nil {
		t.Fatal(err)
	}
	dl, _ := capability.As[broker.DeadLetterer](r.broker)
	copied := *d.Message()
	if err := dl.PutDead(r.ctx(), queueName, broker.Dead{Message: &copied, Reason: "crash", Attempts: 1}); err != nil {
		t.Fatal(err)
	}
	if got := r.requeue(l, f.ID()); got.Done != 1 || got.Unfenced != 0 {
		t.Fatalf("report %+v", got)
	}
	for _, rec := range []resultstore.Record{old, {ID: f.ID(), State: task.StateSucceeded, Deliveries: 5}} {
		if err := results.Save(r.ctx(), rec); !errors.Is(err, resultstore.ErrStale) {
			t.Errorf("a record of the old life, %s: %v, want ErrStale", rec.State, err)
		}
	}
	if rec, err := results.Load(r.ctx(), f.ID()); err != nil || rec.State != task.StateRequeued || rec.Life != 1 {
		t.Errorf("the record is %+v, %v", rec, err)
	}
	if err := errors.Join(d.Release(r.ctx(), 0), sub.Close(r.ctx())); err != nil {
		t.Fatal(err)
	}
	var n runs
	handle(r, broken, n.handle)
	r.start()
	r.wantElsewhere(f.ID(), 40)
	if r.h.Uncounted {
		return // no record shows that the message of the old generation was delivered before
	}
	r.quietQueue()
	for _, req := range n.all() {
		if req.Life != 1 {
			t.Errorf("a message of life %d was run", req.Life)
		}
	}
}

// testRequeueRefused: a letter that cannot start again is refused with a reason and stays. Such are
// a member of a group whose end was counted, and a task that has succeeded.
func testRequeueRefused(t *testing.T, open Open) {
	r := newBroken(t, open)
	r.start()
	run := submitWork(r, task.Chord(task.Group(broken.Bound(1), inc.Bound(2)), sum), task.None{})
	wantError(r, run.Future, task.ErrUnknownTask)
	var member string
	r.eventually("the member is among the dead letters", func() bool {
		dead, err := broker.ListDead(r.ctx(), r.broker, queueName, 10)
		if err == nil && len(dead) == 1 {
			member = dead[0].Message.ID
		}
		return member != ""
	})
	l, results := r.letters(r.broker, nil)
	got := r.requeue(l, task.ID(member))
	if got.Refused != 1 || got.Done != 0 || len(got.Problems) != 1 || !contains(got.Problems[0].Reason, "group") {
		t.Fatalf("the member of a group: %+v", got)
	}
	if !r.isDead(member) {
		t.Fatal("a letter that was refused is gone")
	}
	if resultstore.RepliesOnly(results) {
		return
	}
	id := task.ID("succeeded-" + r.producer.NodeID())
	if err := results.Save(r.ctx(), resultstore.Record{ID: id, Name: "broken", State: task.StateSucceeded, Deliveries: 1}); err != nil {
		t.Fatal(err)
	}
	dl, _ := capability.As[broker.DeadLetterer](r.broker)
	dead := broker.Dead{Message: &broker.Message{ID: string(id), ContentType: "application/json", Body: []byte(`{"task":"broken","args":1}`), Priority: 100}}
	dead.Reason, dead.At = "put by hand", time.Now()
	if err := dl.PutDead(r.ctx(), queueName, dead); err != nil {
		t.Fatal(err)
	}
	if got := r.requeue(l, id); got.Refused != 1 || !contains(got.Problems[0].Reason, "succeeded") {
		t.Fatalf("a task that has succeeded: %+v", got)
	}
}
