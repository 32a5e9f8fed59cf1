package producer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/task"
)

// post is a broker that records the ids of published tasks. publish decides the outcome of each;
// nil: it is confirmed.
type post struct {
	broker.Broker
	publish func(ctx context.Context, id string) error

	mu   sync.Mutex
	sent []string
}

func (b *post) Publish(ctx context.Context, _ string, m *broker.Message) error {
	b.mu.Lock()
	b.sent = append(b.sent, m.ID)
	publish := b.publish
	b.mu.Unlock()
	if publish != nil {
		return publish(ctx, m.ID)
	}
	return nil
}

func (b *post) answer(publish func(ctx context.Context, id string) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.publish = publish
}

func (b *post) tasks() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.sent...)
}

// sender is a producer that publishes to post and stores keys in memory.
type sender struct {
	*producer.Producer
	t     *testing.T
	post  *post
	store *memresults.Store
}

// inBubble runs fn with a producer in a synctest bubble. change may change its configuration.
func inBubble(t *testing.T, change func(*producer.Config), fn func(t *testing.T, p *sender)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &sender{t: t, post: &post{Broker: membroker.New()}, store: memresults.New(memresults.Config{})}
		c := producer.Config{Broker: s.post, Results: s.store}
		if change != nil {
			change(&c)
		}
		s.Producer = newProducer(t, c)
		fn(t, s)
		if err := errors.Join(s.Producer.Close(context.Background()), s.store.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
}

// submit submits a task and returns the id of its handle.
func (p *sender) submit(opts ...task.Option) task.ID {
	p.t.Helper()
	f, err := number.Submit(p.t.Context(), p, 1, opts...)
	if err != nil {
		p.t.Fatal(err)
	}
	return f.ID()
}

// refuse fails the test unless the submission returns an error of this class. It returns the error
// about the key, if there is one.
func (p *sender) refuse(class error, opts ...task.Option) *producer.UniqueError {
	p.t.Helper()
	_, err := number.Submit(p.t.Context(), p, 1, opts...)
	if !errors.Is(err, class) {
		p.t.Fatalf("%v, want %v", err, class)
	}
	u, _ := errors.AsType[*producer.UniqueError](err)
	return u
}

func (p *sender) wantSent(n int) {
	p.t.Helper()
	if sent := p.post.tasks(); len(sent) != n {
		p.t.Fatalf("%d tasks were sent, want %d: %v", len(sent), n, sent)
	}
}

func TestUniqueIsSentOnce(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *sender) {
		unique := task.WithUnique("key", time.Hour)
		first := p.submit(unique)
		if again := p.submit(unique); again != first {
			t.Errorf("the second submission is task %s, want %s", again, first)
		}
		if again := p.submit(unique, task.WithID("another")); again != first {
			t.Errorf("one with an id of its own is task %s, want %s", again, first)
		}
		if again := p.submit(unique, task.WithIgnoreResult(true)); again != first {
			t.Errorf("one without a result is task %s, want %s", again, first)
		}
		p.wantSent(1)
		if other := p.submit(task.WithUnique("key ", time.Hour)); other == first {
			t.Error("another key is the same task")
		}
		nightly := task.New[int, int]("nightly", unique)
		one, err := nightly.Submit(t.Context(), p, 1)
		if err != nil || one.ID() == first {
			t.Errorf("another task of the same key is %v, %v", one, err)
		}
		if two, err := nightly.With(task.WithPriority(100)).Submit(t.Context(), p, 1); err != nil || two.ID() != one.ID() {
			t.Errorf("a definition's key: %v, %v", two, err)
		}
		p.wantSent(3)
		time.Sleep(time.Hour - time.Millisecond)
		if again := p.submit(unique); again != first {
			t.Errorf("before the time is over it is task %s, want %s", again, first)
		}
		time.Sleep(time.Millisecond)
		if again := p.submit(unique); again == first {
			t.Error("after its time it is the same task")
		}
		p.wantSent(4)
	})
}

// TestUniqueAnswersWithTheFirstsResult shows that a second submission through any producer returns
// the result of the first.
func TestUniqueAnswersWithTheFirstsResult(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *sender) {
		first := p.submit(task.WithUnique("key", time.Hour))
		other := newProducer(t, producer.Config{Broker: p.post, Results: p.store.View()})
		f, err := number.Submit(t.Context(), other, 2, task.WithUnique("key", time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.store.Save(t.Context(), answer(first, "elsewhere")); err != nil {
			t.Fatal(err)
		}
		if got, err := f.Get(t.Context()); err != nil || got != 42 {
			t.Errorf("%d, %v", got, err)
		}
		_ = other.Close(t.Context())
	})
}

// TestUniqueIDsMeet shows that a repeated submission with the same id is not sent again after it
// was confirmed.
func TestUniqueIDsMeet(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *sender) {
		p.submit(task.WithUnique("key", time.Hour), task.WithID("order-17"))
		if again := p.submit(task.WithUnique("key", time.Hour), task.WithID("order-17")); again != "order-17" {
			t.Errorf("the answer is %s", again)
		}
		p.wantSent(1)
	})
}

func TestUniqueProducersInParallel(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *sender) {
		other := newProducer(t, producer.Config{Broker: p.post, Results: p.store.View()})
		p.post.answer(func(context.Context, string) error { time.Sleep(10 * time.Millisecond); return nil })
		var ids sync.Map
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				f, err := number.Submit(t.Context(), []task.Submitter{p, other}[i%2], i, task.WithUnique("key", time.Hour))
				if err != nil {
					t.Error(err)
					return
				}
				ids.Store(f.ID(), true)
			})
		}
		wg.Wait()
		n := 0
		ids.Range(func(any, any) bool { n++; return true })
		if n != 1 {
			t.Errorf("%d ids were answered, want 1", n)
		}
		p.wantSent(1)
		_ = other.Close(t.Context())
	})
}

// TestUniqueWaitsForTheFirst shows that a submission returns the id of an earlier one only after
// that was confirmed.
func TestUniqueWaitsForTheFirst(t *testing.T) {
	for _, c := range []struct {
		name    string
		outcome error
		class   error // class of the error of the second submission
	}{
		{"confirmed", nil, nil},
		{"refused", broker.ErrNoQueue, nil},
		{"unknown", broker.ErrIndeterminate, broker.ErrIndeterminate},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, p *sender) {
				unique := task.WithUnique("key", time.Hour)
				p.post.answer(func(_ context.Context, id string) error {
					if id != "first" {
						return nil
					}
					time.Sleep(3 * time.Second)
					return c.outcome
				})
				ended := make(chan error)
				go func() {
					_, err := number.Submit(t.Context(), p, 1, unique, task.WithID("first"))
					ended <- err
				}()
				synctest.Wait()
				hasty, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := number.Submit(hasty, p, 1, unique)
				u, ok := errors.AsType[*producer.UniqueError](err)
				if !ok || u.Task != "first" || u.Key != "key" || !errors.Is(err, broker.ErrUnavailable) || errors.Is(err, broker.ErrIndeterminate) {
					t.Errorf("while the first is under way: %v", err)
				}
				p.wantSent(1)
				begin := time.Now()
				f, err := number.Submit(t.Context(), p, 1, unique)
				if !errors.Is(err, c.class) {
					t.Errorf("the second: %v, want %v", err, c.class)
				}
				if waited := time.Since(begin); waited > 3*time.Second {
					t.Errorf("it waited for %v", waited)
				}
				switch {
				case c.outcome == nil && f.ID() != "first":
					t.Errorf("the answer is %s", f.ID())
				case c.outcome == nil, c.class != nil:
					p.wantSent(1)
				default:
					p.wantSent(2) // the first was refused, so the second is sent
				}
				if err := <-ended; !errors.Is(err, c.outcome) {
					t.Errorf("the first: %v, want %v", err, c.outcome)
				}
			})
		})
	}
}

// TestUniqueOfADeadProducer shows that a submission that never ends frees its key after 30 s, and
// cannot complete afterwards.
func TestUniqueOfADeadProducer(t *testing.T) {
	var log bytes.Buffer
	inBubble(t, func(c *producer.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) }, func(t *testing.T, p *sender) {
		unique := task.WithUnique("key", time.Hour)
		hangs := make(chan struct{})
		p.post.answer(func(_ context.Context, id string) error {
			if id == "dead" {
				<-hangs
			}
			return nil
		})
		ended := make(chan error)
		begin := time.Now()
		go func() {
			_, err := number.Submit(t.Context(), p, 1, unique, task.WithID("dead"))
			ended <- err
		}()
		synctest.Wait()
		for time.Since(begin) < 25*time.Second {
			if u := p.refuse(broker.ErrUnavailable, unique); u == nil || u.Task != "dead" {
				t.Errorf("%v, want one that names the task under way", u)
			}
		}
		next := p.submit(unique)
		if waited := time.Since(begin); next == "dead" || waited < 30*time.Second || waited > 31*time.Second {
			t.Errorf("task %s got the key after %v, want another one after 30 s", next, waited)
		}
		close(hangs)
		if err := <-ended; err != nil {
			t.Errorf("a confirm that came late: %v", err)
		}
		if !strings.Contains(log.String(), "unique key") {
			t.Errorf("nothing is said of the key that was lost:\n%s", &log)
		}
		if again := p.submit(unique); again != next {
			t.Errorf("the answer is %s, want %s", again, next)
		}
		p.wantSent(2)
	})
}

// TestUniqueEndsInTime shows that the wait for the broker ends while the key is still reserved,
// even if the caller would wait longer.
func TestUniqueEndsInTime(t *testing.T) {
	inBubble(t, func(c *producer.Config) { c.Timeout = -1 }, func(t *testing.T, p *sender) {
		p.post.answer(func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return errors.Join(broker.ErrUnavailable, ctx.Err())
		})
		begin := time.Now()
		p.refuse(broker.ErrUnavailable, task.WithUnique("key", time.Hour))
		if took := time.Since(begin); took > 25*time.Second {
			t.Errorf("it took %v", took)
		}
		p.post.answer(nil)
		p.submit(task.WithUnique("key", time.Hour))
		p.wantSent(2)
	})
}

// TestUniqueOutcomeUnknown shows that the key stays with a task of unknown outcome, that the error
// names it, and that only its id is sent again.
func TestUniqueOutcomeUnknown(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *sender) {
		unique := task.WithUnique("key", time.Hour)
		p.post.answer(func(context.Context, string) error { return broker.ErrIndeterminate })
		first := p.refuse(broker.ErrIndeterminate, unique)
		if sent := p.post.tasks(); first == nil || len(sent) != 1 || first.Task != task.ID(sent[0]) || first.Key != "key" {
			t.Fatalf("the error says %+v of %v", first, sent)
		}
		p.post.answer(nil)
		if other := p.refuse(broker.ErrIndeterminate, unique); other == nil || other.Task != first.Task {
			t.Errorf("another submission is told %+v", other)
		}
		if other := p.refuse(broker.ErrIndeterminate, unique, task.WithID("another")); other == nil || other.Task != first.Task {
			t.Errorf("another id is told %+v", other)
		}
		p.wantSent(1)
		if again := p.submit(unique, task.WithID(first.Task)); again != first.Task {
			t.Errorf("the repeated submission is %s", again)
		}
		p.wantSent(2)
		if other := p.submit(unique); other != first.Task {
			t.Errorf("after the confirm another submission is %s", other)
		}
		p.submit(unique, task.WithID(first.Task))
		p.wantSent(2)

		p.post.answer(func(context.Context, string) error { return broker.ErrIndeterminate })
		never := []task.Option{task.WithUnique("once", time.Minute), task.WithIdempotent(false), task.WithID("once")}
		p.refuse(broker.ErrIndeterminate, never...)
		p.post.answer(nil)
		p.refuse(broker.ErrIndeterminate, never...)
		p.wantSent(3)
		time.Sleep(time.Minute)
		p.submit(never...)
		p.wantSent(4)
	})
}

// TestUniqueUnknownAtTheEnd shows that the outcome of a submission is stored, even if the
// submission used its whole ctx.
func TestUniqueUnknownAtTheEnd(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *sender) {
		unique := task.WithUnique("key", time.Hour)
		p.post.answer(func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return errors.Join(broker.ErrIndeterminate, ctx.Err())
		})
		first := p.refuse(broker.ErrIndeterminate, unique)
		p.post.answer(nil)
		time.Sleep(time.Minute)
		if second := p.refuse(broker.ErrIndeterminate, unique); second == nil || second.Task != first.Task {
			t.Errorf("another submission is told %+v, want task %s", second, first.Task)
		}
		p.wantSent(1)
	})
}

// looks is a store that records the ids of its reads.
type looks struct {
	resultstore.ResultStore
	ids sync.Map
}

func (l *looks) Load(ctx context.Context, id task.ID) (resultstore.Record, error) {
	l.ids.Store(id, true)
	return l.ResultStore.Load(ctx, id)
}

// TestUniqueLeavesNothingBehind shows that no waiter remains for a task that was not sent.
func TestUniqueLeavesNothingBehind(t *testing.T) {
	var l *looks
	configure := func(c *producer.Config) {
		l = &looks{ResultStore: silent{c.Results}}
		c.Claimer, c.Results = c.Results.(resultstore.Claimer), l
	}
	inBubble(t, configure, func(t *testing.T, p *sender) {
		unique := task.WithUnique("key", time.Hour)
		p.submit(unique, task.WithID("first"))
		p.submit(unique, task.WithID("second"))
		p.post.answer(func(context.Context, string) error { return broker.ErrIndeterminate })
		p.refuse(broker.ErrIndeterminate, task.WithUnique("unknown", time.Hour), task.WithID("third"))
		p.refuse(broker.ErrIndeterminate, task.WithUnique("unknown", time.Hour), task.WithID("fourth"))
		p.post.answer(func(context.Context, string) error { return broker.ErrNoQueue })
		p.refuse(broker.ErrNoQueue, task.WithUnique("refused", time.Hour), task.WithID("fifth"))
		time.Sleep(time.Minute)
		l.ids.Range(func(id, _ any) bool {
			if id != task.ID("first") {
				t.Errorf("the result of %s is looked for", id)
			}
			return true
		})
		if _, is := l.ids.Load(task.ID("first")); !is {
			t.Error("the result of the first is not looked for")
		}
	})
}

// TestUniqueRepeatedAtATime shows that of many parallel repetitions of one id only one is sent.
func TestUniqueRepeatedAtATime(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *sender) {
		same := []task.Option{task.WithUnique("key", time.Hour), task.WithID("same")}
		p.post.answer(func(context.Context, string) error { return broker.ErrIndeterminate })
		p.refuse(broker.ErrIndeterminate, same...)
		p.post.answer(func(context.Context, string) error { time.Sleep(time.Second); return nil })
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if _, err := number.Submit(t.Context(), p, 1, same...); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		p.wantSent(2)
	})
}

// claims is a Claimer with calls that can fail.
type claims struct {
	resultstore.Claimer
	claim, pass, release error
	calls                atomic.Int64
}

func (c *claims) Claim(ctx context.Context, key, holder string, ttl time.Duration) (string, error) {
	c.calls.Add(1)
	if c.claim != nil {
		return "", c.claim
	}
	return c.Claimer.Claim(ctx, key, holder, ttl)
}

func (c *claims) Pass(ctx context.Context, key, holder, next string, ttl time.Duration) error {
	c.calls.Add(1)
	if c.pass != nil {
		return c.pass
	}
	return c.Claimer.Pass(ctx, key, holder, next, ttl)
}

func (c *claims) Release(ctx context.Context, key, holder string) error {
	c.calls.Add(1)
	if c.release != nil {
		return c.release
	}
	return c.Claimer.Release(ctx, key, holder)
}

// TestUniqueStoreAway shows that nothing is sent without a claim, and that a confirmed task stays
// confirmed.
func TestUniqueStoreAway(t *testing.T) {
	var log bytes.Buffer
	c := &claims{}
	configure := func(p *producer.Config) {
		c.Claimer, p.Claimer = p.Results.(resultstore.Claimer), c
		p.Logger = slog.New(slog.NewTextHandler(&log, nil))
	}
	inBubble(t, configure, func(t *testing.T, p *sender) {
		away := fmt.Errorf("%w: the store's reason", resultstore.ErrUnavailable)
		unique := task.WithUnique("key", time.Hour)
		c.claim = away
		_, err := number.Submit(t.Context(), p, 1, unique)
		if !errors.Is(err, broker.ErrUnavailable) || !errors.Is(err, away) || !strings.Contains(err.Error(), "nothing was sent") {
			t.Errorf("a claim that fails: %v", err)
		}
		p.wantSent(0)
		c.claim, c.pass = nil, away
		first := p.submit(unique)
		p.wantSent(1)
		if !strings.Contains(log.String(), "the store's reason") || !strings.Contains(log.String(), string(first)) {
			t.Errorf("the log does not tell of the key:\n%s", &log)
		}
		c.pass = nil
		time.Sleep(30 * time.Second)
		if again := p.submit(unique); again == first {
			t.Error("the key is still taken")
		}
		p.wantSent(2)
		log.Reset()
		c.release = away
		p.post.answer(func(context.Context, string) error { return broker.ErrBlocked })
		p.refuse(broker.ErrBlocked, task.WithUnique("other", time.Hour))
		if !strings.Contains(log.String(), "the store's reason") {
			t.Errorf("the log does not tell of the key:\n%s", &log)
		}
	})
}

// TestUniqueCostsNothingElsewhere shows that the store is called twice for a unique task and never
// for other tasks.
func TestUniqueCostsNothingElsewhere(t *testing.T) {
	c := &claims{}
	inBubble(t, func(p *producer.Config) { c.Claimer, p.Claimer = p.Results.(resultstore.Claimer), c }, func(t *testing.T, p *sender) {
		p.submit()
		if _, err := number.SubmitAll(t.Context(), p, []int{1, 2, 3}); err != nil {
			t.Fatal(err)
		}
		if n := c.calls.Load(); n != 0 {
			t.Errorf("%d steps for tasks that are not unique", n)
		}
		p.submit(task.WithUnique("key", time.Hour))
		if n := c.calls.Load(); n != 2 {
			t.Errorf("%d steps for the first of a key, want 2", n)
		}
		p.submit(task.WithUnique("key", time.Hour))
		if n := c.calls.Load(); n != 3 {
			t.Errorf("%d steps for the second of a key, want 1", n-2)
		}
	})
}

func TestUniqueNeedsAClaimer(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *sender) {
		unique := task.WithUnique("key", time.Hour)
		for name, results := range map[string]resultstore.ResultStore{"none": nil, "replies": replies{p.store}} {
			without := newProducer(t, producer.Config{Broker: p.post, Results: results})
			_, err := number.Submit(t.Context(), without, 1, unique)
			if !errors.Is(err, broker.ErrUnsupported) || !strings.Contains(err.Error(), "Config.Claimer") {
				t.Errorf("%s: %v", name, err)
			}
			_ = without.Close(t.Context())
		}
		p.wantSent(0)
		with := newProducer(t, producer.Config{Broker: p.post, Claimer: p.store})
		for range 2 {
			if _, err := number.Submit(t.Context(), with, 1, unique); err != nil {
				t.Error(err)
			}
		}
		p.wantSent(1)
		_ = with.Close(t.Context())
	})
}

func TestInvalidUniqueKeys(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *sender) {
		for _, o := range []task.Option{
			task.WithUnique("", time.Hour), task.WithUnique(strings.Repeat("k", 256), time.Hour), task.WithUnique("key", 0), task.WithUnique("key", -1),
			task.WithUnique("key", resultstore.MaxClaimTTL+1),
		} {
			p.refuse(task.ErrBadMetadata, o)
		}
		p.submit(task.WithUnique(strings.Repeat("k", 255), resultstore.MaxClaimTTL))
		unique := task.WithUnique("key", time.Hour)
		for name, step := range map[string]task.Step[int, int]{
			"a chain":       task.Chain(number, number),
			"a unique step": task.Chain(number, number.With(unique)),
		} {
			opts := []task.Option{unique}
			if name == "a unique step" {
				opts = nil
			}
			_, err := step.Submit(t.Context(), p, 1, opts...)
			if !errors.Is(err, broker.ErrUnsupported) || !strings.Contains(err.Error(), "handler") {
				t.Errorf("%s: %v", name, err)
			}
		}
		p.wantSent(1)
	})
}

// TestUniqueBatches submits keys that occur twice in a batch, and two batches with crossing keys.
// Neither waits for the other.
func TestUniqueBatches(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *sender) {
		const n = 600 // more than are claimed at once
		other := newProducer(t, producer.Config{Broker: p.post, Results: p.store.View()})
		p.post.answer(func(context.Context, string) error { time.Sleep(time.Millisecond); return nil })
		calls := func(reverse bool) []task.Call {
			cs := make([]task.Call, 0, 2*n)
			for i := range n {
				k := i
				if reverse {
					k = n - 1 - i
				}
				cs = append(cs, number.Call(k, task.WithUnique(fmt.Sprint(k/2), time.Hour)), number.Call(k))
			}
			return cs
		}
		var wg sync.WaitGroup
		results := make([][]task.Pending, 2)
		for i, s := range []task.BatchSubmitter{p, other} {
			wg.Go(func() {
				var err error
				if results[i], err = s.SubmitAll(t.Context(), calls(i == 1)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		p.wantSent(n/2 + 2*n)
		for i := range 2 * n {
			if i%2 == 1 {
				continue
			}
			one, two := results[0][i].ID(), results[1][2*(n-1-i/2)].ID()
			if one != two || one != results[0][i/4*4].ID() {
				t.Errorf("key %d has the answers %s and %s", i/4, one, two)
			}
		}
		_ = other.Close(t.Context())
	})
}

// TestUniqueBatchThatFails shows that each task gets its own outcome.
func TestUniqueBatchThatFails(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *sender) {
		p.post.answer(func(_ context.Context, id string) error {
			return map[string]error{"refused": broker.ErrNoQueue, "unknown": broker.ErrIndeterminate}[id]
		})
		unique := func(key string) task.Option { return task.WithUnique(key, time.Hour) }
		pending, err := p.SubmitAll(t.Context(), []task.Call{
			number.Call(1, unique("a"), task.WithID("good")),
			number.Call(1, unique("b"), task.WithID("refused")),
			number.Call(1, unique("c"), task.WithID("unknown")),
			number.Call(1, unique("b"), task.WithID("next")), // the key is free
			number.Call(1, unique("c")),
			number.Call(1),
		})
		errs := broker.BatchErrors(err, 6)
		for i, want := range []error{nil, broker.ErrNoQueue, broker.ErrIndeterminate, nil, broker.ErrIndeterminate, nil} {
			if !errors.Is(errs[i], want) {
				t.Errorf("task %d: %v, want %v", i, errs[i], want)
			}
			if (pending[i] == nil) != (want != nil) {
				t.Errorf("task %d: its handle is %v", i, pending[i])
			}
		}
		p.wantSent(5)
	})
}

// TestUniqueTellsMiddleware shows that middleware does not count a task that was not sent as sent.
func TestUniqueTellsMiddleware(t *testing.T) {
	var told []error
	m := new(middleware.Metrics)
	configure := func(c *producer.Config) {
		c.Metrics = m
		c.Middleware = []middleware.SendMiddleware{func(next middleware.Sender) middleware.Sender {
			return func(ctx context.Context, queue string, e *task.Envelope) error {
				middleware.OnConfirm(ctx, func(err error) { told = append(told, err) })
				return next(ctx, queue, e)
			}
		}}
	}
	inBubble(t, configure, func(t *testing.T, p *sender) {
		first := p.submit(task.WithUnique("key", time.Hour))
		p.submit(task.WithUnique("key", time.Hour))
		if len(told) != 2 || told[0] != nil || !errors.Is(told[1], producer.ErrDuplicate) || !strings.Contains(told[1].Error(), string(first)) {
			t.Errorf("middleware was told %v", told)
		}
		if n := m.Sent.Count(); n != 1 {
			t.Errorf("%d tasks are counted as sent", n)
		}
	})
}

// TestUniqueWithConditions shows that a task that becomes a job can be unique too.
func TestUniqueWithConditions(t *testing.T) {
	inBubble(t, func(c *producer.Config) {
		store, err := memjobs.New(memjobs.Config{})
		if err != nil {
			t.Fatal(err)
		}
		service, err := jobs.New(jobs.Config{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		c.Jobs = service
	}, func(t *testing.T, p *sender) {
		opts := []task.Option{task.WithUnique("key", time.Hour), task.WithSequenceKey("s")}
		first := p.submit(opts...)
		if again := p.submit(opts...); again != first {
			t.Errorf("the answer is %s, want %s", again, first)
		}
		p.wantSent(0) // a runner of jobs would send it
	})
}

// TestUniqueUnknownThenRefused shows that a submission of unknown outcome keeps its key if its
// repetition is refused: the first message may be queued.
func TestUniqueUnknownThenRefused(t *testing.T) {
	for _, refusal := range []error{broker.ErrUnavailable, broker.ErrNoQueue} {
		inBubble(t, nil, func(t *testing.T, p *sender) {
			same := []task.Option{task.WithUnique("key", time.Hour), task.WithID("same")}
			p.post.answer(func(context.Context, string) error { return broker.ErrIndeterminate })
			p.refuse(broker.ErrIndeterminate, same...)
			p.post.answer(func(context.Context, string) error { return refusal })
			p.refuse(refusal, same...)
			p.post.answer(nil)
			u := p.refuse(broker.ErrIndeterminate, task.WithUnique("key", time.Hour), task.WithID("other"))
			if u == nil || u.Task != "same" {
				t.Errorf("after %v the key is of %+v", refusal, u)
			}
			if id := p.submit(same...); id != "same" {
				t.Errorf("after %v the repeated submission is task %s", refusal, id)
			}
		})
	}
}
