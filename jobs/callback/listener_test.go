package callback

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/jobs"
)

// bench is a running listener over a book, in a bubble.
type bench struct {
	t       *testing.T
	broker  broker.Broker
	book    *book
	l       *Listener
	stop    func() error
	sent    int // messages sent by send
	mu      sync.Mutex
	reports []Report
}

// listen starts a listener that stops with the test.
func listen(t *testing.T, br broker.Broker, c ListenerConfig) *bench {
	t.Helper()
	b := &bench{t: t, broker: br, book: newBook()}
	c.Service, c.Broker, c.Queue, c.Logger = new(jobs.Service), br, "answers", quiet()
	c.OnReport = func(r Report) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.reports = append(b.reports, r)
	}
	l, err := NewListener(c)
	if err != nil {
		t.Fatal(err)
	}
	l.answer = b.book.all
	b.l = l
	return b
}

func (b *bench) start() *bench {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.l.Run(ctx) }()
	b.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	b.t.Cleanup(func() {
		if err := b.stop(); err != nil {
			b.t.Error(err)
		}
		if err := b.broker.Close(context.Background()); err != nil {
			b.t.Error(err)
		}
	})
	return b
}

func (b *bench) send(bodies ...string) {
	b.t.Helper()
	if err := broker.Declare(b.t.Context(), b.broker, broker.Queue{Name: "answers"}); err != nil {
		b.t.Fatal(err)
	}
	for _, body := range bodies {
		b.sent++
		m := &broker.Message{ID: fmt.Sprint("m-", b.sent), Body: []byte(body)}
		if err := b.broker.Publish(b.t.Context(), "answers", m); err != nil {
			b.t.Fatal(err)
		}
	}
}

// problems returns the reported problems.
func (b *bench) problems() []Problem {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ps []Problem
	for _, r := range b.reports {
		ps = append(ps, r.Problem)
	}
	return ps
}

// wantQueue checks the size of the queue.
func (b *bench) wantQueue(want broker.Stats) {
	b.t.Helper()
	in, _ := capability.As[broker.Inspector](b.broker)
	got, err := in.Stats(b.t.Context(), "answers")
	got.Oldest = time.Time{} // only the numbers are compared
	if err != nil || got != want {
		b.t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}

func answerText(key string) string { return fmt.Sprintf(`{"name":"print","key":%q,"result":1}`, key) }

// TestListener shows that answers are stored together and acknowledged, and that other messages are
// dead-lettered.
func TestListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := listen(t, membroker.New(), ListenerConfig{})
		b.send(answerText("a"), answerText("early"), `{"name":"print","key":"b","error":"no paper"}`, "what", answerText("late"), answerText("a"),
			`{"name":"print","key":"c","result":null,"error":null,"more":{}}`, `{"name":"print","key":"d"}`, `{"key":"e","result":1}`, `{"name":"print","result":1}`,
			`{"name":"print","key":"f","result":1,"error":"both"}`, `{"name":"print","key":7}`, `{"Name":"print","key":"g"}`)
		b.start()
		synctest.Wait()
		want := map[string]jobs.Answer{
			"print\x00a": {Name: "print", Key: "a", Result: []byte("1")},
			"print\x00b": {Name: "print", Key: "b", Refusal: "no paper"},
			"print\x00c": {Name: "print", Key: "c"},
			"print\x00d": {Name: "print", Key: "d"},
		}
		if diff := cmp.Diff(want, b.book.kept()); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(ListenerStats{Received: 13, Accepted: 4, Early: 1, Late: 1, Duplicate: 1, Unreadable: 6, Batches: 1}, b.l.Stats()); diff != "" {
			t.Error(diff)
		}
		b.wantQueue(broker.Stats{Dead: 6})
		if err := b.stop(); err != nil {
			t.Error(err)
		}
		if err := b.l.Run(t.Context()); !errors.Is(err, ErrRunning) {
			t.Error(err)
		}
	})
}

// TestBatches shows that a transaction contains at most Prefetch answers and maxBatch bytes.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := listen(t, membroker.New(), ListenerConfig{Prefetch: 10})
		for i := range 25 {
			b.send(answerText(fmt.Sprint("k", i)))
		}
		for i := range 7 {
			b.send(fmt.Sprintf(`{"name":"print","key":"large%d","result":"%0600d"}`, i, 0))
		}
		b.l.most = 1000
		b.start()
		synctest.Wait()
		sizes := make([]int, 0, 6)
		for _, call := range b.book.calls {
			sizes = append(sizes, len(call))
		}
		if diff := cmp.Diff([]int{10, 10, 7, 2, 2, 1}, sizes); diff != "" {
			t.Error(diff)
		}
		if len(b.book.kept()) != 32 {
			t.Error(len(b.book.kept()))
		}
	})
}

// TestListenerRead shows messages in another format, some without answers. A panic affects one
// message only.
func TestListenerRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := listen(t, membroker.New(), ListenerConfig{Read: func(m *broker.Message) (jobs.Answer, error) {
			switch text := string(m.Body); text {
			case "skip":
				return jobs.Answer{}, ErrSkip
			case "panic":
				panic("boo")
			case "bad":
				return jobs.Answer{Name: "print", Key: "k", Result: []byte("{")}, nil
			default:
				return jobs.Answer{Name: "print", Key: text}, nil
			}
		}}).start()
		b.send("a", "skip", "panic", "bad", "b")
		synctest.Wait()
		if s := b.l.Stats(); s.Accepted != 2 || s.Skipped != 1 || s.Unreadable != 2 || s.Lost != 0 {
			t.Errorf("%+v", s)
		}
		b.wantQueue(broker.Stats{Dead: 2})
		if diff := cmp.Diff([]Problem{ProblemUnreadable, ProblemUnreadable}, b.problems()); diff != "" {
			t.Error(diff)
		}
	})
}

// TestListenerStoreAway shows that a message is acknowledged only after its answer is stored, and
// that an outage is reported once.
func TestListenerStoreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := listen(t, membroker.New(), ListenerConfig{}).start()
		b.book.failing(func([]jobs.Answer) error { return jobs.ErrUnavailable })
		b.send(answerText("a"))
		synctest.Wait() // the listener has received a alone
		b.send(answerText("b"))
		time.Sleep(10 * time.Minute)                 // of the bubble's clock
		b.wantQueue(broker.Stats{Held: 1, Ready: 1}) // the other message was not received
		if s := b.l.Stats(); s.Failed < 100 || s.Failed > 1000 {
			t.Errorf("%d attempts in ten minutes", s.Failed)
		}
		if diff := cmp.Diff([]Problem{ProblemAway}, b.problems()); diff != "" {
			t.Error(diff)
		}
		b.book.failing(nil)
		time.Sleep(time.Minute)
		b.wantQueue(broker.Stats{})
		if s := b.l.Stats(); s.Accepted != 2 || s.Lost != 0 {
			t.Errorf("%+v", s)
		}
		b.book.failing(func([]jobs.Answer) error { return jobs.ErrUnavailable })
		b.send(answerText("c"))
		time.Sleep(time.Second)
		if len(b.problems()) != 2 {
			t.Error("the second time nobody is told")
		}
		if err := b.stop(); err != nil { // received messages are released
			t.Error(err)
		}
		b.wantQueue(broker.Stats{Ready: 1})
		if s := b.l.Stats(); s.GivenBack != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// TestListenerHeldKey shows that an answer whose key another transaction holds stops no other, and
// is tried again until it is stored, however often.
func TestListenerHeldKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := listen(t, membroker.New(), ListenerConfig{Attempts: 2})
		var free atomic.Bool
		b.l.answer = func(ctx context.Context, answers []jobs.Answer) (receipts []jobs.Receipt, held error) {
			for _, a := range answers { // as Service.AnswerAll
				var r jobs.Receipt
				if a.Key == "held" && !free.Load() {
					held = jobs.ErrHeld
				} else {
					r, _ = b.book.one(ctx, a) // the book refuses none
				}
				receipts = append(receipts, r)
			}
			return receipts, held
		}
		b.send(answerText("a"), answerText("b"), answerText("held"))
		b.start()
		synctest.Wait()
		b.send(answerText("c"))
		time.Sleep(10 * time.Minute) // of the bubble's clock
		if s := b.l.Stats(); s.Accepted != 3 || s.Duplicate != 0 || s.Failed != 0 || s.Refused != 0 || s.PutBack < 5 {
			t.Errorf("while the key is held: %+v", s)
		}
		free.Store(true)
		time.Sleep(2 * time.Minute) // more than its longest delay, also of the bubble's clock
		if s := b.l.Stats(); s.Accepted != 4 || s.Refused != 0 {
			t.Errorf("%+v", s)
		}
		b.wantQueue(broker.Stats{})
	})
}

// TestListenerPoison shows that an answer that the store refuses blocks no other and is finally
// dead-lettered. An invalid answer is dead-lettered at once.
func TestListenerPoison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := listen(t, membroker.New(), ListenerConfig{Attempts: 4}).start()
		b.book.failing(func(as []jobs.Answer) error {
			for _, a := range as {
				switch a.Key {
				case "poison":
					return errors.New("the database does not like it")
				case "bad":
					return jobs.ErrBadJob
				}
			}
			return nil
		})
		b.send(answerText("a"), answerText("poison"), answerText("b"), answerText("bad"), answerText("c"))
		synctest.Wait()
		if s := b.l.Stats(); s.Accepted != 3 || s.Refused != 1 || s.PutBack != 1 {
			t.Errorf("%+v", s)
		}
		b.wantQueue(broker.Stats{Delayed: 1, Dead: 1})
		time.Sleep(10 * time.Minute)
		if s := b.l.Stats(); s.Refused != 2 || s.PutBack != 3 || s.Failed != 0 {
			t.Errorf("%+v", s)
		}
		b.wantQueue(broker.Stats{Dead: 2})
		if diff := cmp.Diff([]Problem{ProblemPutBack, ProblemRefused, ProblemPutBack, ProblemPutBack, ProblemRefused}, b.problems()); diff != "" {
			t.Error(diff)
		}
	})
}

// bare is a Broker whose deliveries only support Ack and Release without a delay.
type bare struct{ broker.Broker }

func (b bare) Subscribe(ctx context.Context, q string, o broker.SubscribeOptions) (broker.Subscription, error) {
	s, err := b.Broker.Subscribe(ctx, q, o)
	return bareSubscription{s}, err
}

func (b bare) Unwrap() any { return b.Broker }

type bareSubscription struct{ broker.Subscription }

func (s bareSubscription) Receive(ctx context.Context) (broker.Delivery, error) {
	d, err := s.Subscription.Receive(ctx)
	if err != nil {
		return nil, err
	}
	return bareDelivery{d}, nil
}

type bareDelivery struct{ broker.Delivery }

func (d bareDelivery) DeadLetter(context.Context, broker.Dead) error { return broker.ErrUnsupported }

func (d bareDelivery) Release(ctx context.Context, after time.Duration) error {
	if after > 0 {
		return broker.ErrUnsupported
	}
	return d.Delivery.Release(ctx, 0)
}

// TestListenerBareBroker shows that unusable messages are dropped and reported without dead
// letters, and that refused answers are tried again at once without delays.
func TestListenerBareBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := listen(t, bare{membroker.New()}, ListenerConfig{Attempts: 4}).start()
		b.book.failing(func(as []jobs.Answer) error {
			if as[len(as)-1].Key == "poison" {
				return errors.New("the database does not like it")
			}
			return nil
		})
		b.send("what", answerText("a"), answerText("poison"))
		time.Sleep(time.Minute)
		if diff := cmp.Diff(ListenerStats{Received: 3, Accepted: 1, Unreadable: 1, Refused: 1, Dropped: 2, Batches: 1}, b.l.Stats()); diff != "" {
			t.Error(diff)
		}
		b.wantQueue(broker.Stats{})
		if diff := cmp.Diff([]Problem{ProblemUnreadable, ProblemPutBack, ProblemPutBack, ProblemPutBack, ProblemRefused}, b.problems()); diff != "" {
			t.Error(diff)
		}
		if last := b.reports[len(b.reports)-1]; !last.Dropped {
			t.Errorf("%+v", last)
		}
	})
}

// TestListenerStop shows that received answers are stored before Run returns, and that blocked ones
// are released.
func TestListenerStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := listen(t, membroker.New(), ListenerConfig{ShutdownTimeout: 3 * time.Second})
		b.l.answer = func(ctx context.Context, as []jobs.Answer) ([]jobs.Receipt, error) {
			wait := time.Second
			if as[0].Key == "hangs" {
				wait = time.Hour
			}
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			return b.book.all(ctx, as)
		}
		b.start()
		b.send(answerText("a"))
		synctest.Wait()
		before := time.Now()
		if err := b.stop(); err != nil || time.Since(before).Round(time.Millisecond) != time.Second {
			t.Errorf("%v after %v", err, time.Since(before))
		}
		b.wantQueue(broker.Stats{})
		if len(b.book.kept()) != 1 {
			t.Error("it was not written")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		b := listen(t, membroker.New(), ListenerConfig{ShutdownTimeout: 3 * time.Second})
		b.l.answer = func(ctx context.Context, _ []jobs.Answer) ([]jobs.Receipt, error) {
			<-ctx.Done()
			return nil, fmt.Errorf("%w: %w", jobs.ErrUnavailable, ctx.Err())
		}
		b.start()
		b.send(answerText("a"))
		synctest.Wait()
		before := time.Now()
		if err := b.stop(); err != nil || time.Since(before).Round(time.Millisecond) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(before))
		}
		b.wantQueue(broker.Stats{Ready: 1})
	})
}

// TestListenerEnds shows that Run returns when the service or the broker is closed.
func TestListenerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := listen(t, membroker.New(), ListenerConfig{})
		b.book.failing(func([]jobs.Answer) error { return jobs.ErrClosed })
		b.send(answerText("a"))
		if err := b.l.Run(t.Context()); !errors.Is(err, jobs.ErrClosed) {
			t.Error(err)
		}
		b.wantQueue(broker.Stats{Ready: 1})
		if err := b.broker.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := listen(t, b.broker, ListenerConfig{}).l.Run(t.Context()); !errors.Is(err, broker.ErrClosed) {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		b := listen(t, membroker.New(), ListenerConfig{})
		ended := make(chan error, 1)
		go func() { ended <- b.l.Run(context.Background()) }()
		synctest.Wait()
		if err := b.broker.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, broker.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestListenerBrokerAway shows that Run waits for a broker at its start and later, and handles
// repeated messages as duplicates.
func TestListenerBrokerAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := membroker.NewServer(membroker.Config{})
		br := server.Connect()
		server.Down()
		b := listen(t, br, ListenerConfig{}).start()
		time.Sleep(time.Minute)
		server.Up()
		b.send(answerText("a"))
		synctest.Wait()
		if s := b.l.Stats(); s.Accepted != 1 {
			t.Errorf("%+v", s)
		}
		b.book.failing(func([]jobs.Answer) error { return jobs.ErrUnavailable })
		b.send(answerText("b"))
		time.Sleep(time.Second)
		server.Down() // the received message is lost
		time.Sleep(time.Second)
		b.book.failing(nil)
		server.Up()
		time.Sleep(time.Minute)
		if s := b.l.Stats(); s.Accepted != 2 || s.Lost != 1 || s.Received != 3 {
			t.Errorf("%+v", s)
		}
		b.wantQueue(broker.Stats{})
	})
}

func TestListenerProblems(t *testing.T) {
	_, err := NewListener(ListenerConfig{Prefetch: -1, Attempts: 1 << 20, Timeout: -1, ShutdownTimeout: -1})
	for _, want := range []string{"Service", "Broker", "Queue", "Prefetch", "Attempts", "Timeout", "ShutdownTimeout"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("nothing of %s in %v", want, err)
		}
	}
}
