package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/task"
)

// probed is a store that counts calls and can fail or block them.
type probed struct {
	jobs.Store
	singles, updates, views, comings, watches, watching atomic.Int64
	deaf                                                atomic.Bool // notifications are dropped
	nameless                                            atomic.Bool // notifications have no names
	fail                                                atomic.Pointer[error]
	mu                                                  sync.Mutex
	// runs after each Single, before its return
	hold func()
}

func (p *probed) err() error {
	if e := p.fail.Load(); e != nil {
		return *e
	}
	return nil
}

func (p *probed) setFail(err error) { p.fail.Store(&err) }

func (p *probed) setHold(fn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = fn
}

func (p *probed) Single(ctx context.Context, fn func(context.Context, jobstore.Tx) error) error {
	p.singles.Add(1)
	if err := p.err(); err != nil {
		return err
	}
	err := p.Store.Single(ctx, fn)
	p.mu.Lock()
	hold := p.hold
	p.mu.Unlock()
	if hold != nil {
		hold()
	}
	return err
}

func (p *probed) Update(ctx context.Context, fn func(context.Context, jobstore.Tx) error) error {
	p.updates.Add(1)
	if err := p.err(); err != nil {
		return err
	}
	return p.Store.Update(ctx, fn)
}

func (p *probed) View(ctx context.Context, fn func(context.Context, jobstore.Tx) error) error {
	p.views.Add(1)
	if err := p.err(); err != nil {
		return err
	}
	return p.Store.View(ctx, fn)
}

func (p *probed) Coming(ctx context.Context, since time.Time, limit int) (jobs.Coming, error) {
	p.comings.Add(1)
	if err := p.err(); err != nil {
		return jobs.Coming{}, err
	}
	return p.Store.Coming(ctx, since, limit)
}

func (p *probed) Watch(wake func([]string)) func() {
	p.watches.Add(1)
	p.watching.Add(1)
	stop := p.Store.Watch(func(names []string) {
		switch {
		case p.deaf.Load():
		case p.nameless.Load():
			wake(nil)
		default:
			wake(names)
		}
	})
	return func() {
		p.watching.Add(-1)
		stop()
	}
}

// waiting is a world with a probed store.
type waiting struct {
	*world
	p *probed
}

func inWait(t *testing.T, fn func(w *waiting)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { fn(newWaiting(t)) })
}

func newWaiting(t *testing.T) *waiting {
	t.Helper()
	p := &probed{Store: openMem(t)}
	s, err := jobs.New(jobs.Config{Store: p, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(context.Background()), p.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
	return &waiting{&world{t, s, p}, p}
}

// reply contains the result of a waiting Get and its time.
type reply struct {
	out []jobs.Handout
	err error
	at  time.Time
}

// ask starts a waiting Get and returns when the Get waits.
func (w *waiting) ask(ctx context.Context, r jobs.Request) <-chan reply {
	w.Helper()
	r.Wait = true
	got := make(chan reply, 1)
	go func() {
		out, err := w.Get(ctx, r)
		got <- reply{out, err, time.Now()}
	}()
	synctest.Wait()
	return got
}

func (w *waiting) askFor(pattern string) <-chan reply {
	w.Helper()
	return w.ask(w.Context(), jobs.Request{Selector: jobs.Selector{Pattern: pattern}})
}

// got checks that a Get has returned one job.
func (w *waiting) got(c <-chan reply, id jobs.ID) jobs.Handout {
	w.Helper()
	synctest.Wait()
	select {
	case r := <-c:
		if r.err != nil || len(r.out) != 1 || r.out[0].ID != id {
			w.Fatalf("got %+v, %v; want job %d", r.out, r.err, id)
		}
		return r.out[0]
	default:
		w.Fatalf("job %d was not handed out", id)
	}
	return jobs.Handout{}
}

func (w *waiting) still(c <-chan reply) {
	w.Helper()
	synctest.Wait()
	select {
	case r := <-c:
		w.Fatalf("it waits no longer: %+v, %v", r.out, r.err)
	default:
	}
}

// TestWaitingHearsOfEverything shows that a waiting Get returns as soon as a job becomes due,
// whatever the cause.
func TestWaitingHearsOfEverything(t *testing.T) {
	t.Parallel()
	const soon = 5 * time.Millisecond // maximum delay of the watcher for a job that becomes due
	for name, c := range map[string]func(w *waiting, ask func() <-chan reply) (c <-chan reply, id jobs.ID, late time.Duration){
		"created": func(w *waiting, ask func() <-chan reply) (<-chan reply, jobs.ID, time.Duration) {
			c := ask()
			return c, w.create(jobs.Spec{Name: "it"}), 0
		},
		"becomes due": func(w *waiting, ask func() <-chan reply) (<-chan reply, jobs.ID, time.Duration) {
			id := w.create(jobs.Spec{Name: "it", FirstRun: time.Now().Add(time.Hour)})
			return ask(), id, time.Hour
		},
		"created, to become due": func(w *waiting, ask func() <-chan reply) (<-chan reply, jobs.ID, time.Duration) {
			c := ask()
			time.Sleep(90 * time.Second)
			return c, w.create(jobs.Spec{Name: "it", FirstRun: time.Now().Add(time.Hour)}), time.Hour
		},
		"created, to become due at once": func(w *waiting, ask func() <-chan reply) (<-chan reply, jobs.ID, time.Duration) {
			c := ask()
			return c, w.create(jobs.Spec{Name: "it", FirstRun: time.Now().Add(time.Millisecond)}), time.Millisecond
		},
		"retried": func(w *waiting, ask func() <-chan reply) (<-chan reply, jobs.ID, time.Duration) {
			id := w.create(jobs.Spec{Name: "it"})
			w.get("it")
			c := ask()
			w.ok(w.Retry(w.Context(), jobs.Retry{ID: id, Delay: time.Minute}))
			return c, id, time.Minute
		},
		"promoted": func(w *waiting, ask func() <-chan reply) (<-chan reply, jobs.ID, time.Duration) {
			first := w.create(jobs.Spec{Name: "first", SequenceKey: "k"})
			id := w.create(jobs.Spec{Name: "it", SequenceKey: "k"})
			w.get("first")
			c := ask()
			w.finish(first)
			return c, id, 0
		},
		"repeated": func(w *waiting, ask func() <-chan reply) (<-chan reply, jobs.ID, time.Duration) {
			id := w.create(jobs.Spec{Name: "it", Repeat: "HOURLY"})
			w.get("it")
			c := ask()
			w.finish(id)
			return c, id, time.Hour
		},
		"repeated, and missed": func(w *waiting, ask func() <-chan reply) (<-chan reply, jobs.ID, time.Duration) {
			id := w.create(jobs.Spec{Name: "it", Repeat: "SCHEDULED, +1 MINUTE"})
			time.Sleep(time.Hour)
			w.get("it")
			c := ask()
			w.finish(id)
			return c, id, 0
		},
		"child unpaused": func(w *waiting, ask func() <-chan reply) (<-chan reply, jobs.ID, time.Duration) {
			p := w.create(jobs.Spec{Name: "p"})
			w.get("p")
			id := w.create(jobs.Spec{Name: "it", Parent: p})
			c := ask()
			w.finish(p)
			return c, id, 0
		},
		"parent resumed": func(w *waiting, ask func() <-chan reply) (<-chan reply, jobs.ID, time.Duration) {
			p := w.create(jobs.Spec{Name: "it"})
			w.get("it")
			id := w.create(jobs.Spec{Name: "child", Parent: p})
			w.finish(p)
			c := ask()
			w.ok(w.Cancel(w.Context(), id))
			return c, p, 0
		},
		"lease ended": func(w *waiting, ask func() <-chan reply) (<-chan reply, jobs.ID, time.Duration) {
			id := w.create(jobs.Spec{Name: "it"})
			out, err := w.Get(w.Context(), jobs.Request{Selector: jobs.Selector{Pattern: "it"}, Lease: time.Minute})
			w.ok(err)
			c := ask()
			w.ok(w.Renew(w.Context(), id, out[0].Token, time.Hour))
			return c, id, time.Hour
		},
		"run again": func(w *waiting, ask func() <-chan reply) (<-chan reply, jobs.ID, time.Duration) {
			id := w.create(jobs.Spec{Name: "it", RetryAfter: "+1 MINUTE"})
			w.get("it")
			return ask(), id, time.Minute
		},
		"given back": func(w *waiting, ask func() <-chan reply) (<-chan reply, jobs.ID, time.Duration) {
			id := w.create(jobs.Spec{Name: "it"})
			h := w.get("it")
			c := ask()
			w.ok(w.GiveBack(w.Context(), h))
			return c, id, 0
		},
		"requeued under another name": func(w *waiting, ask func() <-chan reply) (<-chan reply, jobs.ID, time.Duration) {
			id := w.create(jobs.Spec{Name: "other"})
			c := ask()
			w.ok(w.Requeue(w.Context(), []jobs.ID{id}, "it"))
			return c, id, 0
		},
		"brought forward": func(w *waiting, ask func() <-chan reply) (<-chan reply, jobs.ID, time.Duration) {
			id := w.create(jobs.Spec{Name: "it", FirstRun: time.Now().Add(time.Hour)})
			c := ask()
			w.ok(w.Update(w.Context(), jobs.Update{ID: id, Data: []byte("{}"), NextRun: time.Now()}))
			return c, id, 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, sel := range []jobs.Selector{{Pattern: "i*"}, {Names: []string{"x", "it"}}} {
				inWait(t, func(w *waiting) {
					w.p.deaf.Store(false)
					ch, id, late := c(w, func() <-chan reply { return w.ask(w.Context(), jobs.Request{Selector: sel}) })
					began := time.Now()
					if late > 0 {
						time.Sleep(late - time.Microsecond)
						w.still(ch)
						time.Sleep(soon)
					}
					if h := w.got(ch, id); h.LastRun.Sub(began) > late+soon {
						w.Fatalf("handed out after %s, not %s", h.LastRun.Sub(began), late)
					}
				})
			}
		})
	}
}

func TestWaitingEnds(t *testing.T) {
	t.Parallel()
	inWait(t, func(w *waiting) {
		mine := errors.New("mine")
		ctx, cancel := context.WithTimeoutCause(w.Context(), time.Minute, mine)
		defer cancel()
		began := time.Now()
		r := <-w.ask(ctx, jobs.Request{Selector: jobs.Selector{Pattern: "*"}})
		if !errors.Is(r.err, jobs.ErrNoJob) || errors.Is(r.err, context.DeadlineExceeded) || r.out != nil || r.at.Sub(began) != time.Minute {
			w.Fatalf("%+v after %s", r, r.at.Sub(began))
		}
		r = <-w.ask(ctx, jobs.Request{Selector: jobs.Selector{Pattern: "*"}})
		w.is(r.err, jobs.ErrNoJob)
		_, err := w.Get(ctx, jobs.Request{Selector: jobs.Selector{Pattern: "*"}})
		w.is(err, jobs.ErrUnavailable)
		w.is(err, mine)
		if got := w.Stats().Waiting; got != 0 {
			w.Fatalf("%d wait", got)
		}
		time.Sleep(time.Minute)
		if got := w.p.watching.Load(); got != 0 { // the watcher has stopped
			w.Fatalf("%d watch", got)
		}
		before := w.p.comings.Load() + w.p.views.Load() + w.p.singles.Load()
		time.Sleep(time.Hour)
		if got := w.p.comings.Load() + w.p.views.Load() + w.p.singles.Load(); got != before {
			w.Fatalf("%d calls although nobody waits", got-before)
		}
		// The watcher starts again.
		c := w.askFor("*")
		w.got(c, w.create(jobs.Spec{Name: "a"}))
	})
}

// TestWaitingAfterARest shows calls of Get that arrive before the watcher stops. Earlier
// notifications were not recorded for them.
func TestWaitingAfterARest(t *testing.T) {
	t.Parallel()
	inWait(t, func(w *waiting) {
		w.p.deaf.Store(true)
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		<-w.ask(ctx, jobs.Request{Selector: jobs.Selector{Pattern: "x"}})
		id := w.create(jobs.Spec{Name: "a", FirstRun: time.Now().Add(500 * time.Millisecond)})
		time.Sleep(10 * time.Millisecond)
		c := w.askFor("a")
		time.Sleep(490*time.Millisecond - time.Microsecond)
		w.still(c)
		time.Sleep(5 * time.Millisecond)
		w.got(c, id)
		if got := w.p.watches.Load(); got != 1 {
			w.Fatalf("watched %d times", got)
		}
		other := w.askFor("other")
		time.Sleep(10 * time.Second)
		id = w.create(jobs.Spec{Name: "b", FirstRun: time.Now().Add(500 * time.Millisecond)})
		time.Sleep(10 * time.Millisecond)
		c = w.askFor("b")
		time.Sleep(495 * time.Millisecond)
		w.got(c, id)
		w.still(other)
	})
}

func TestWaitingInOrder(t *testing.T) {
	t.Parallel()
	inWait(t, func(w *waiting) {
		var all []<-chan reply
		for range 50 {
			all = append(all, w.askFor("a*"))
		}
		for i, c := range all {
			id := w.create(jobs.Spec{Name: fmt.Sprint("a", i)})
			w.got(c, id)
			if i+1 < len(all) {
				w.still(all[i+1])
			}
		}
		// Several jobs at once, for callers that want several.
		first := w.ask(w.Context(), jobs.Request{Selector: jobs.Selector{Pattern: "b"}, Max: 3})
		second := w.ask(w.Context(), jobs.Request{Selector: jobs.Selector{Pattern: "b"}, Max: 3})
		_, err := w.CreateAll(w.Context(), []jobs.Spec{{Name: "b"}, {Name: "b"}, {Name: "b"}, {Name: "b"}})
		w.ok(err)
		if a, b := <-first, <-second; len(a.out) != 3 || len(b.out) != 1 {
			w.Fatalf("%d and %d", len(a.out), len(b.out))
		}
	})
}

// TestWaitingForSome shows that priorities and Mock separate callers that wait for the same names.
func TestWaitingForSome(t *testing.T) {
	t.Parallel()
	inWait(t, func(w *waiting) {
		ask := func(s jobs.Selector) <-chan reply { return w.ask(w.Context(), jobs.Request{Selector: s}) }
		five := ask(jobs.Selector{Pattern: "*", Priority: task.Set(5)})
		mock := ask(jobs.Selector{Names: []string{"a"}, Mock: true})
		other := ask(jobs.Selector{Names: []string{"other"}})
		some := ask(jobs.Selector{Pattern: "a"})
		w.got(mock, w.create(jobs.Spec{Name: "a", Mock: true}))
		id := w.create(jobs.Spec{Name: "a", Priority: task.Set(6)})
		w.got(some, id)
		w.still(five)
		w.got(five, w.create(jobs.Spec{Name: "a", Priority: task.Set(5)}))
		w.still(other)
	})
}

// TestOneJobWakesOne shows that one of many matching groups claims a job.
func TestOneJobWakesOne(t *testing.T) {
	t.Parallel()
	inWait(t, func(w *waiting) {
		var all []<-chan reply
		for i := range 300 {
			all = append(all, w.ask(w.Context(), jobs.Request{Selector: jobs.Selector{Pattern: fmt.Sprintf("a*[%d-z]", i)}}))
		}
		time.Sleep(10 * time.Millisecond)
		before := w.p.singles.Load()
		w.got(all[0], w.create(jobs.Spec{Name: "az"}))
		if got := w.p.singles.Load() - before; got > 3 { // one more group checks for further jobs
			w.Fatalf("creating a job and handing it out took %d transactions", got)
		}
		// Two jobs at once: one group after the other.
		_, err := w.CreateAll(w.Context(), []jobs.Spec{{Name: "az"}, {Name: "az"}})
		w.ok(err)
		synctest.Wait()
		w.still(all[3])
		if a, b := <-all[1], <-all[2]; len(a.out) != 1 || len(b.out) != 1 {
			w.Fatalf("%+v, %+v", a, b)
		}
		if got := w.p.singles.Load() - before; got > 7 {
			w.Fatalf("%d transactions", got)
		}
	})
}

// TestManyWait shows that thousands of waiting callers cost only occasional polls.
func TestManyWait(t *testing.T) {
	t.Parallel()
	inWait(t, func(w *waiting) {
		const n = 2000
		got := make(chan jobs.ID, n)
		for i := range n {
			go func() {
				out, err := w.Get(w.Context(), jobs.Request{Selector: jobs.Selector{Names: []string{fmt.Sprint("q", i%10)}}, Wait: true})
				if err != nil {
					got <- -1
					return
				}
				got <- out[0].ID
			}()
		}
		synctest.Wait()
		if s := w.Stats(); s.Waiting != n {
			w.Fatalf("%d wait", s.Waiting)
		}
		singles, views, comings := w.p.singles.Load(), w.p.views.Load(), w.p.comings.Load()
		time.Sleep(time.Minute)
		synctest.Wait()
		if s, v, c := w.p.singles.Load()-singles, w.p.views.Load()-views, w.p.comings.Load()-comings; s != 0 || v > 61 || c > 61 {
			w.Fatalf("in a minute %d takes, %d looks, %d questions for the time", s, v, c)
		}
		specs := make([]jobs.Spec, n)
		for i := range specs {
			specs[i].Name = fmt.Sprint("q", i%10)
		}
		_, err := w.CreateAll(w.Context(), specs)
		w.ok(err)
		seen := map[jobs.ID]bool{}
		for range n {
			id := <-got
			if id < 0 || seen[id] {
				w.Fatalf("job %d", id)
			}
			seen[id] = true
		}
		if s := w.p.singles.Load() - singles; s > 100 {
			w.Fatalf("%d transactions", s)
		}
	})
}

// TestLostWords shows that waiting callers find a job without a notification after one Poll. With
// very many groups only some do.
func TestLostWords(t *testing.T) {
	t.Parallel()
	inWait(t, func(w *waiting) {
		w.p.deaf.Store(true)
		c := w.askFor("a")
		time.Sleep(100 * time.Millisecond)
		id := w.create(jobs.Spec{Name: "a"})
		w.still(c)
		time.Sleep(time.Second)
		w.got(c, id)

		// Due before the last call: Coming does not return it.
		c = w.askFor("a")
		time.Sleep(2 * time.Second)
		old := w.create(jobs.Spec{Name: "a", FirstRun: time.Now().Add(-time.Hour)})
		time.Sleep(time.Second)
		w.got(c, old)

		var all []<-chan reply
		for i := range 600 {
			all = append(all, w.ask(w.Context(), jobs.Request{Selector: jobs.Selector{Names: []string{fmt.Sprint("n", i)}}}))
		}
		time.Sleep(1500 * time.Millisecond)
		last := w.create(jobs.Spec{Name: "n599", FirstRun: time.Now().Add(-time.Hour)})
		r := <-all[599]
		if r.err != nil || r.out[0].ID != last {
			w.Fatalf("%+v", r)
		}
	})
	inWait(t, func(w *waiting) {
		w.p.nameless.Store(true) // as with a store that receives no names from other processes
		a, b := w.askFor("a"), w.askFor("b")
		time.Sleep(100 * time.Millisecond)
		w.got(b, w.create(jobs.Spec{Name: "b"}))
		w.got(a, w.create(jobs.Spec{Name: "a"}))
	})
}

// TestGone shows that a job claimed for a caller that has left goes to the next caller, or back.
func TestGone(t *testing.T) {
	t.Parallel()
	for _, wait := range []bool{true, false} {
		inWait(t, func(w *waiting) {
			id := w.create(jobs.Spec{Name: "a"})
			gate := make(chan struct{})
			w.p.setHold(func() { <-gate })
			ctx, cancel := context.WithCancel(w.Context())
			errs := make(chan error, 1)
			go func() {
				_, err := w.Get(ctx, jobs.Request{Selector: jobs.Selector{Pattern: "a"}, Wait: wait})
				errs <- err
			}()
			synctest.Wait()
			w.state(jobs.Running, id)
			cancel()
			if want := map[bool]error{true: jobs.ErrNoJob, false: context.Canceled}[wait]; !errors.Is(<-errs, want) {
				w.Fatal("not the end that was wanted")
			}
			second := w.askFor("a") // it arrives before the reply
			w.p.setHold(nil)
			close(gate)
			if h := w.got(second, id); h.Token != 1 {
				w.Fatalf("%+v", h)
			}

			w.ok(w.Retry(w.Context(), jobs.Retry{ID: id}))
			gate = make(chan struct{})
			w.p.setHold(func() { <-gate })
			ctx, cancel = context.WithCancel(w.Context())
			go func() {
				_, err := w.Get(ctx, jobs.Request{Selector: jobs.Selector{Pattern: "a"}, Wait: wait})
				errs <- err
			}()
			synctest.Wait()
			cancel()
			<-errs
			w.p.setHold(nil)
			close(gate)
			synctest.Wait()
			j := w.job(id)
			if j.State != jobs.Queued || j.Run != 1 || j.Token != 2 || w.Stats().GivenBack != 1 {
				w.Fatalf("%+v", j)
			}
		})
	}
}

// TestStoreAway shows that waiting callers wait while the store does not reply, and receive the
// error of a store that refuses.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	inWait(t, func(w *waiting) {
		c := w.askFor("a")
		away := fmt.Errorf("%w: cut", jobs.ErrUnavailable)
		w.p.setFail(away)
		time.Sleep(10 * time.Second)
		w.still(c)
		_, err := w.Get(w.Context(), jobs.Request{Selector: jobs.Selector{Pattern: "a"}})
		w.is(err, jobs.ErrUnavailable)
		w.still(c)
		w.p.setFail(nil)
		w.p.deaf.Store(true)
		id := w.create(jobs.Spec{Name: "a"})
		time.Sleep(2 * time.Second)
		w.got(c, id)

		c = w.askFor("a")
		w.p.setFail(jobs.ErrClosed)
		time.Sleep(2 * time.Second)
		w.is((<-c).err, jobs.ErrClosed)
		w.p.setFail(nil)
	})
}

func TestClose(t *testing.T) {
	t.Parallel()
	inWait(t, func(w *waiting) {
		ctx := w.Context()
		id := w.create(jobs.Spec{Name: "a"})
		h := w.get("a")
		c := w.askFor("a")
		w.create(jobs.Spec{Name: "b"})
		gate := make(chan struct{})
		w.p.setHold(func() { <-gate })
		once := make(chan error, 1)
		go func() {
			_, err := w.Get(ctx, jobs.Request{Selector: jobs.Selector{Pattern: "b"}})
			once <- err
		}()
		synctest.Wait()
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		closed := make(chan error, 1)
		go func() { closed <- w.Close(short) }()
		w.is((<-c).err, jobs.ErrClosed)
		w.is(<-once, jobs.ErrClosed)
		w.is(<-closed, context.DeadlineExceeded) // the store has not replied yet
		_, err := w.Get(ctx, jobs.Request{Selector: jobs.Selector{Pattern: "b"}})
		w.is(err, jobs.ErrClosed)
		go func() { closed <- w.Close(ctx) }()
		w.p.setHold(nil)
		close(gate)
		w.is(<-closed, nil)
		w.is(w.Close(ctx), nil)
		w.ok(w.Finish(ctx, jobs.Finish{ID: id, Token: h.Token})) // a stopping program may end its jobs
		w.create(jobs.Spec{Name: "c"})
	})
	inWait(t, func(w *waiting) { // a claimed job that was not delivered is given back
		id := w.create(jobs.Spec{Name: "b"})
		gate := make(chan struct{})
		w.p.setHold(func() { <-gate })
		c := w.askFor("b")
		closed := make(chan error, 1)
		go func() { closed <- w.Close(w.Context()) }()
		w.is((<-c).err, jobs.ErrClosed)
		w.p.setHold(nil)
		close(gate)
		w.is(<-closed, nil)
		if j := w.job(id); j.State != jobs.Queued || j.Run != 0 {
			w.Fatalf("%+v", j)
		}
	})
}

func TestConfig(t *testing.T) {
	t.Parallel()
	store, err := memjobs.New(memjobs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]jobs.Config{
		"jobs: Config.Store is not set":                     {},
		"jobs: Config.Poll 1ms is not from 10 ms to 1 min":  {Store: store, Poll: time.Millisecond},
		"jobs: Config.Poll 2m0s is not from 10 ms to 1 min": {Store: store, Poll: 2 * time.Minute},
	} {
		if s, err := jobs.New(c); s != nil || err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	s, err := jobs.New(jobs.Config{Store: store})
	if err != nil || s.Store() != store {
		t.Fatal(err)
	}
	if err := errors.Join(s.Close(t.Context()), s.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
}
