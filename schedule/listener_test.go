package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/schedule/memschedule"
	"github.com/swarmiji/swarmiji/task"
)

// journal collects what handlers did.
type journal struct {
	mu    sync.Mutex
	lines []string
	ids   map[task.ID]int
}

func (j *journal) note(c ctx, format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
	if q, ok := task.FromContext(c); ok {
		if j.ids == nil {
			j.ids = map[task.ID]int{}
		}
		j.ids[q.ID]++
	}
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

func (j *journal) want(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, j.all()); diff != "" {
		t.Errorf("(-want +done):\n%s", diff)
	}
}

var tell = task.New[string, string]("tell")

// teller returns a listener whose handler adds its argument and the time of the run to the journal.
func teller(t testing.TB, j *journal, c schedule.ListenerConfig) *schedule.Listener {
	t.Helper()
	began := time.Now()
	l := listener(t, c)
	if err := tell.Handle(l, func(c ctx, text string) (string, error) {
		j.note(c, "%s at %v", text, time.Since(began).Round(10*time.Millisecond))
		return text, nil
	}); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestOnceAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // starts at 2000-01-01T00:00:00Z
		store, j := memory(t), &journal{}
		s := scheduled(t, schedule.Config{Store: store})
		l := teller(t, j, schedule.ListenerConfig{Store: store})
		running(t, l)
		add(t, s, schedule.ByCron("2000 1 1 * 0 * 0"), tell.Call("each minute"))
		add(t, s, schedule.ByCron("2000 1 1 * 0 0 6,7"), tell.Call("the 6th and 7th second"))
		add(t, s, schedule.After(90*time.Second), tell.Call("once"))
		add(t, s, schedule.AtTime(time.Now().Add(150*time.Second+time.Millisecond)), tell.Call("rounded up"))
		add(t, s, schedule.Now(), tell.Call("now"))
		time.Sleep(3*time.Minute + time.Second)
		want := []string{"each minute at 0s", "now at 0s", "the 6th and 7th second at 6s", "the 6th and 7th second at 7s", "each minute at 1m0s", "once at 1m30s", "each minute at 2m0s", "rounded up at 2m31s", "each minute at 3m0s"}
		got := j.all()
		slices.Sort(got[:2])
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +done):\n%s", diff)
		}
		left := 0
		for it, err := range s.List(t.Context()) {
			left++
			if err != nil || time.Until(it.Next).Round(time.Second) != 59*time.Second {
				t.Errorf("left is %+v, %v", it, err)
			}
		}
		if left != 1 {
			t.Errorf("%d entries are left", left)
		}
	})
}

// TestMisfires shows which of the runs of three minutes without a listener each policy runs.
func TestMisfires(t *testing.T) {
	for policy, want := range map[schedule.Misfire][]string{
		schedule.MisfireOnce:    {"x at 3m30s", "x at 4m0s"},
		schedule.MisfireSkip:    {"x at 4m0s"},
		schedule.MisfireAll(2):  {"x at 3m30s", "x at 3m30s", "x at 4m0s"},
		schedule.MisfireAll(10): {"x at 3m30s", "x at 3m30s", "x at 3m30s", "x at 3m30s", "x at 4m0s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			store, j := memory(t), &journal{}
			s := scheduled(t, schedule.Config{Store: store})
			l := teller(t, j, schedule.ListenerConfig{Store: store})
			add(t, s, schedule.ByCron("* * * * * * 0"), tell.Call("x"), schedule.WithMisfire(policy))
			time.Sleep(3*time.Minute + 30*time.Second)
			running(t, l)
			time.Sleep(time.Minute)
			j.want(t, want...)
			for id, n := range j.ids {
				if n != 1 {
					t.Errorf("%q: task %s ran %d times", policy, id, n)
				}
			}
		})
	}
}

func TestALateOneShotIsSkippedOnlyIfAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, j := memory(t), &journal{}
		s := scheduled(t, schedule.Config{Store: store})
		l := teller(t, j, schedule.ListenerConfig{Store: store})
		add(t, s, schedule.After(time.Second), tell.Call("late"))
		add(t, s, schedule.After(time.Second), tell.Call("too late"), schedule.WithMisfire(schedule.MisfireSkip))
		time.Sleep(time.Hour)
		running(t, l)
		time.Sleep(time.Second)
		j.want(t, "late at 1h0m0s")
		for it := range s.List(t.Context()) {
			t.Errorf("left is %+v", it)
		}
		if st := l.Stats(); st.Skipped != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// TestManyAreMissed shows that a listener is quick after a year of missed seconds, and runs only
// the newest few.
func TestManyAreMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, j := memory(t), &journal{}
		s := scheduled(t, schedule.Config{Store: store})
		l := teller(t, j, schedule.ListenerConfig{Store: store, Workers: 1})
		add(t, s, schedule.ByCron("* * * * * * *"), tell.Call("x"), schedule.WithMisfire(schedule.MisfireAll(5)))
		time.Sleep(365*24*time.Hour + 500*time.Millisecond)
		stop := running(t, l)
		synctest.Wait()
		time.Sleep(200 * time.Millisecond)
		stop()
		if n := len(j.all()); n != 5 {
			t.Errorf("%d were made up for: %v", n, j.all())
		}
	})
}

// TestHandlersThatFail shows that an error, a panic and runtime.Goexit each end only their own run
// (W9, W28).
// Promises: W22, W37.
func TestHandlersThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory(t)
		s := scheduled(t, schedule.Config{Store: store})
		results := memresults.New(memresults.Config{})
		defer results.Close(context.Background())
		l := listener(t, schedule.ListenerConfig{Store: store, Results: results, Workers: 1})
		for name, f := range map[string]func(){
			"error": nil,
			"panic": func() { panic("boom") },
			"exit":  runtime.Goexit,
		} {
			def := task.New[task.None, task.None](name)
			if err := def.Handle(l, func(ctx, task.None) (task.None, error) {
				if f != nil {
					f()
				}
				return task.None{}, errors.New("no")
			}); err != nil {
				t.Fatal(err)
			}
		}
		ids := map[string]task.ID{}
		for _, name := range []string{"error", "panic", "exit"} {
			added := add(t, s, schedule.Now(), task.Call{Name: name})
			ids[name] = schedule.TickID("app-tasks", added.ID, added.Next)
		}
		stop := running(t, l)
		time.Sleep(time.Minute)
		stop()
		if st := l.Stats(); st.Failed != 3 || st.Ran != 0 {
			t.Errorf("%+v", st)
		}
		for it := range s.List(t.Context()) {
			t.Errorf("left is %+v", it)
		}
		for name, want := range map[string]string{"error": "no", "panic": "panic: boom", "exit": "swarmiji: handler panicked: the handler ended its goroutine"} {
			r, err := results.Load(t.Context(), ids[name])
			if err != nil || r.State != task.StateFailed || r.Error.Message != want || (name == "panic") != (r.Error.Stack != "") {
				t.Errorf("%s: %+v, %v", name, r, err)
			}
		}
	})
}

// TestState shows that a run gets the state of the last successful run, in another process and with
// RunNow too. A failed run stores no state.
func TestState(t *testing.T) {
	type count struct{ N int }
	synctest.Test(t, func(t *testing.T) {
		store, j := memory(t), &journal{}
		s := scheduled(t, schedule.Config{Store: store})
		def := task.New[task.None, task.None]("count")
		start := func() func() {
			l := listener(t, schedule.ListenerConfig{Store: store.View()})
			if err := def.Handle(l, func(c ctx, _ task.None) (task.None, error) {
				state, err := schedule.State[count](c)
				if err != nil {
					return task.None{}, err
				}
				j.note(c, "%d", state.N)
				state.N++
				if err := schedule.SetState(c, state); err != nil {
					return task.None{}, err
				}
				if again, err := schedule.State[count](c); err != nil || again != state {
					t.Errorf("what was set is %v, %v", again, err)
				}
				if state.N == 3 && len(j.all()) == 3 {
					return task.None{}, errors.New("this run leaves nothing")
				}
				return task.None{}, nil
			}); err != nil {
				t.Fatal(err)
			}
			return running(t, l)
		}
		added := add(t, s, schedule.ByCron("* * * * * * 0"), def.Call(task.None{}))
		stop := start()
		time.Sleep(70 * time.Second) // runs 0 and 1
		stop()
		start()
		time.Sleep(2 * time.Minute) // run 2 fails, and runs again with state 2
		if _, err := s.RunNow(t.Context(), added.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // run 3, by RunNow
		time.Sleep(time.Minute) // run 4
		j.want(t, "0", "1", "2", "2", "3", "4")
		if _, err := schedule.State[count](t.Context()); !errors.Is(err, schedule.ErrNoState) {
			t.Errorf("outside of a run: %v", err)
		}
		if err := schedule.SetState(t.Context(), 1); !errors.Is(err, schedule.ErrNoState) {
			t.Errorf("outside of a run: %v", err)
		}
	})
}

// TestOverlap shows that OverlapSkip leaves out a run while the last one is still running, on any
// listener.
func TestOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, j := memory(t), &journal{}
		results := memresults.New(memresults.Config{})
		defer results.Close(context.Background())
		s := scheduled(t, schedule.Config{Store: store, Results: results})
		def := task.New[string, task.None]("slow")
		for range 2 {
			l := listener(t, schedule.ListenerConfig{Store: store.View(), Results: results, Workers: 4})
			if err := def.Handle(l, func(c ctx, name string) (task.None, error) {
				j.note(c, "%s %s", name, time.Now().Format("04:05"))
				time.Sleep(130 * time.Second)
				return task.None{}, nil
			}); err != nil {
				t.Fatal(err)
			}
			running(t, l)
		}
		add(t, s, schedule.ByCron("2000 1 1 * 0 0-5 0"), def.Call("skip"), schedule.WithOverlap(schedule.OverlapSkip))
		add(t, s, schedule.ByCron("2000 1 1 * 0 0-2 30"), def.Call("allow"))
		time.Sleep(10 * time.Minute)
		j.want(t, "skip 00:00", "allow 00:30", "allow 01:30", "allow 02:30", "skip 03:00")
	})
}

func TestOverlapNeedsResultsThatAreKept(t *testing.T) {
	store := memory(t)
	if _, err := schedule.NewListener(schedule.ListenerConfig{Store: store, Results: replies{}}); !errors.Is(err, schedule.ErrUnsupported) {
		t.Errorf("%v", err)
	}
	if _, err := schedule.New(schedule.Config{Store: store, Results: replies{}}); !errors.Is(err, schedule.ErrUnsupported) {
		t.Errorf("%v", err)
	}
	results := memresults.New(memresults.Config{})
	defer results.Close(context.Background())
	s := scheduled(t, schedule.Config{Store: store, Results: results})
	_, err := s.Add(t.Context(), schedule.Now(), tell.Call("x", task.WithIgnoreResult(true)), schedule.WithOverlap(schedule.OverlapSkip))
	if !errors.Is(err, schedule.ErrUnsupported) {
		t.Errorf("%v", err)
	}
}

type replies struct{ resultstore.ResultStore }

func (replies) Replies(ctx, string) (resultstore.Replies, error) { return nil, resultstore.ErrClosed }

// TestAStopGivesBack shows how a listener stops. Running handlers may end in time. Ticks that have
// not started run in another listener at once. Ticks of interrupted handlers run again.
func TestAStopGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, j := memory(t), &journal{}
		s := scheduled(t, schedule.Config{Store: store})
		def := task.New[string, task.None]("work")
		start := func(name string, takes time.Duration) func() {
			l := listener(t, schedule.ListenerConfig{Store: store.View(), Workers: 1, ShutdownTimeout: time.Minute})
			if err := def.Handle(l, func(c ctx, what string) (task.None, error) {
				j.note(c, "%s begins %s", name, what)
				select {
				case <-time.After(takes):
					j.note(context.Background(), "%s ends %s", name, what)
					return task.None{}, nil
				case <-c.Done():
					j.note(context.Background(), "%s is stopped: %v", name, context.Cause(c))
					return task.None{}, context.Cause(c)
				}
			}); err != nil {
				t.Fatal(err)
			}
			return running(t, l)
		}
		stop := start("a", time.Second)
		add(t, s, schedule.Now(), def.Call("1"))
		synctest.Wait()
		stop()
		stop = start("b", time.Hour)
		add(t, s, schedule.Now(), def.Call("2"))
		synctest.Wait()
		began := time.Now()
		stop()
		if took := time.Since(began); took != time.Minute {
			t.Errorf("the stop took %v", took)
		}
		stop = start("c", time.Second)
		time.Sleep(2 * time.Second)
		stop()
		j.want(t, "a begins 1", "a ends 1", "b begins 2", "b is stopped: "+task.ErrShutdown.Error(), "c begins 2", "c ends 2")
		for id, n := range j.ids {
			if n > 2 {
				t.Errorf("task %s ran %d times", id, n)
			}
		}
		if len(j.ids) != 2 {
			t.Errorf("%d ids for two ticks", len(j.ids))
		}
	})
}

// TestEachTickOnce runs many ticks with five listeners. Each tick runs once, with one id. The time
// of the bubble stands still while handlers run, so that a busy machine makes no listener late.
// Promises: W2.
func TestEachTickOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		store := memory(t)
		s := scheduled(t, schedule.Config{Store: store})
		calls := make([]task.Call, n)
		for i := range calls {
			calls[i] = tell.Call(fmt.Sprint(i))
		}
		if _, err := s.AddAll(t.Context(), schedule.After(time.Second), calls); err != nil {
			t.Fatal(err)
		}
		j := &journal{}
		var ls []*schedule.Listener
		for range 5 {
			l := teller(t, j, schedule.ListenerConfig{Store: store.View()})
			ls = append(ls, l)
			running(t, l)
		}
		deadline := time.After(2 * time.Minute)
		for len(j.all()) < n {
			select {
			case <-deadline:
				t.Fatalf("%d of %d ran", len(j.all()), n)
			case <-time.After(10 * time.Millisecond):
			}
		}
		if len(j.ids) != n || len(j.all()) != n {
			t.Errorf("%d runs with %d ids", len(j.all()), len(j.ids))
		}
		for i, l := range ls {
			if st := l.Stats(); st.Lost > 0 || st.Again > 0 {
				t.Errorf("listener %d: %+v", i, st)
			}
		}
	})
}

// TestAListenerThatWasAway shows a listener that loses its store for longer than a lease. Another
// listener takes over its ticks, its handler's context ends, and its state is not stored.
func TestAListenerThatWasAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, j := memory(t), &journal{}
		s := scheduled(t, schedule.Config{Store: store})
		def := task.New[task.None, task.None]("work")
		frozen := &frozen{Store: store.View()}
		var lost atomic.Int64
		a := listener(t, schedule.ListenerConfig{Store: frozen, Lease: 3 * time.Second, NodeID: "a", OnReport: func(r schedule.Report) {
			if r.Problem == schedule.ProblemLost {
				lost.Add(1)
			}
		}})
		handle := func(l *schedule.Listener, name string, takes time.Duration) {
			if err := def.Handle(l, func(c ctx, _ task.None) (task.None, error) {
				j.note(c, "%s begins", name)
				select {
				case <-time.After(takes):
				case <-c.Done():
					j.note(context.Background(), "%s: %v", name, context.Cause(c))
				}
				return task.None{}, nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		handle(a, "a", time.Hour)
		running(t, a)
		add(t, s, schedule.Now(), def.Call(task.None{}))
		synctest.Wait()
		frozen.set(true)
		b := listener(t, schedule.ListenerConfig{Store: store.View(), Lease: 3 * time.Second, NodeID: "b"})
		handle(b, "b", 30*time.Second)
		running(t, b)
		time.Sleep(10 * time.Second)
		frozen.set(false)
		time.Sleep(time.Minute)
		j.want(t, "a begins", "b begins", "a: "+task.ErrLeaseLost.Error())
		if len(j.ids) != 1 || lost.Load() != 1 {
			t.Errorf("%d ids, %d times lost", len(j.ids), lost.Load())
		}
		if st := b.Stats(); st.Again != 1 || st.Ran != 1 {
			t.Errorf("%+v", st)
		}
		for it := range s.List(t.Context()) {
			t.Errorf("left is %+v", it)
		}
	})
}

// frozen is a store that can be made unavailable.
type frozen struct {
	*memschedule.Store
	mu   sync.Mutex
	away bool
}

func (f *frozen) set(away bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = away
}

func (f *frozen) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away {
		return schedule.ErrUnavailable
	}
	return nil
}

func (f *frozen) Due(c ctx, most int) (schedule.Batch, error) {
	if err := f.err(); err != nil {
		return schedule.Batch{}, err
	}
	return f.Store.Due(c, most)
}

func (f *frozen) Renew(c ctx, owner string, lease time.Duration, ticks []schedule.Tick) ([]bool, error) {
	if err := f.err(); err != nil {
		return nil, err
	}
	return f.Store.Renew(c, owner, lease, ticks)
}

func (f *frozen) Done(c ctx, owner string, done []schedule.Finish) ([]bool, error) {
	if err := f.err(); err != nil {
		return nil, err
	}
	return f.Store.Done(c, owner, done)
}
