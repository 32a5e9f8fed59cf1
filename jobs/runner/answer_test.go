package runner_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/queue"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/when"
)

// about compares the entries by full seconds. Entries of one second are sorted.
func (d *diary) about(t testing.TB, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, d.seconds(t)); diff != "" {
		t.Errorf("(-want +done):\n%s", diff)
	}
}

// seconds returns the entries with the second of each.
func (d *diary) seconds(t testing.TB) []string {
	t.Helper()
	var got []string
	for _, line := range d.all() {
		at, what, _ := strings.Cut(line, ": ")
		after, err := time.ParseDuration(at)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%9d: %s", int(after.Seconds()), what))
	}
	slices.Sort(got)
	for i, line := range got {
		at, what, _ := strings.Cut(strings.TrimSpace(line), ": ")
		n, err := strconv.Atoi(at)
		if err != nil {
			t.Fatal(err)
		}
		got[i] = fmt.Sprintf("%v: %s", time.Duration(n)*time.Second, what)
	}
	return got
}

// booking is the data of jobs whose plain handler defers.
type booking struct {
	Seat   string `json:"seat"`
	How    string `json:"how,omitempty"`
	Within int    `json:"within,omitempty"` // seconds
}

var book = task.New[booking, state]("book", task.WithMaxRetries(1), task.WithRetry(task.RetryPolicy{
	On: []string{"swarmiji.Rejected", "swarmiji.AnswerTimeout"}, Backoff: task.Backoff{Strategy: task.BackoffConstant, Base: time.Minute},
}))

// TestDefer shows a plain handler whose answer comes from outside, with and without a queue, and
// with the retries of its metadata.
func TestDefer(t *testing.T) {
	for _, named := range []string{"", "q"} {
		inShop(t, func(t *testing.T, s *shop) {
			d := newDiary()
			c := runner.Config{Workers: 4}
			if named != "" {
				c.Queue = &queue.Queue{Name: named}
			}
			r := s.runner(c)
			handle(t, r, book, func(c ctx, b booking) (state, error) {
				q, _ := task.FromContext(c)
				d.note("%s %d", b.Seat, q.Retries)
				var opts []task.DeferOption
				if b.Within > 0 {
					opts = append(opts, task.AnswerWithin(time.Duration(b.Within)*time.Second))
				}
				switch b.How {
				case "expect":
					if err := task.Expect(c, b.Seat); err != nil {
						return state{}, err
					}
					return state{}, task.Defer("", opts...)
				case "expect, and not defer":
					return state{7}, task.Expect(c, b.Seat)
				case "no key":
					return state{}, task.Defer("")
				case "no time":
					return state{}, task.Defer(b.Seat, task.AnswerWithin(0))
				}
				return state{}, task.Defer(b.Seat, opts...)
			})
			s.run(r)
			put := func(seat, how string, within int) jobs.ID {
				return s.put(jobs.Spec{Name: "book", Queue: named, Data: fmt.Appendf(nil, `{"seat":%q,"how":%q,"within":%d}`, seat, how, within)})
			}
			answered, expected := put("1A", "", 0), put("1B", "expect", 0)
			refused, late := put("1C", "", 0), put("1D", "", 60)
			again := put("1E", "expect", 60)
			finished, keyless, timeless := put("1F", "expect, and not defer", 0), put("1G", "no key", 0), put("1H", "no time", 0)
			time.Sleep(time.Second)
			taken := put("1A", "", 0) // another job has this key
			time.Sleep(time.Second)
			for _, id := range []jobs.ID{answered, expected, refused, late, again} {
				if j := s.job(id); j.State != jobs.Running || j.Phase != jobs.Awaiting {
					t.Errorf("%q: %s of job %d is %s %s", named, j.Data, id, j.State, j.Phase)
				}
			}
			tell := func(key string, refuse error) {
				t.Helper()
				give := func() (jobs.Receipt, error) { return s.Complete(t.Context(), "book", key, map[string]int{"n": 5}) }
				if refuse != nil {
					give = func() (jobs.Receipt, error) { return s.Reject(t.Context(), "book", key, refuse) }
				}
				r, err := give()
				if err != nil || r.Kind != jobs.Accepted {
					t.Errorf("%q: the answer to %s: %+v, %v", named, key, r, err)
				}
			}
			tell("1A", nil)
			tell("1B", nil)
			tell("1C", errors.New("it is reserved"))
			// a minute later the request is repeated, and that of 1E after its timeout
			time.Sleep(90 * time.Second)
			tell("1C", errors.New("it is still reserved"))
			time.Sleep(40 * time.Second)
			tell("1E", nil)
			time.Sleep(5 * time.Minute)
			for _, w := range []struct {
				id     jobs.ID
				state  jobs.State
				answer string
				reason string
			}{
				{answered, jobs.Finished, `{"n":5}`, ""},
				{expected, jobs.Finished, `{"n":5}`, ""},
				{refused, jobs.Failed, "", "it is still reserved"},
				{late, jobs.Failed, "", "no answer came in time"},
				{again, jobs.Finished, `{"n":5}`, ""},
				{finished, jobs.Finished, "", ""},
				{keyless, jobs.Failed, "", "key"},
				{timeless, jobs.Failed, "", "no answer came in time"},
				{taken, jobs.Failed, "", "another job or task has this key"},
			} {
				j := s.job(w.id)
				if j.State != w.state || string(j.Answer) != w.answer || !strings.Contains(j.Reason, w.reason) || (w.reason == "") != (j.Reason == "") {
					t.Errorf("%q: %s is %s with %s: %s; want %+v", named, j.Data, j.State, j.Answer, j.Reason, w)
				}
			}
			times := map[string]int{}
			for _, line := range d.all() {
				_, what, _ := strings.Cut(line, ": ")
				times[what]++
			}
			for what, n := range map[string]int{"1A 0": 2, "1A 1": 0, "1B 0": 1, "1C 0": 1, "1C 1": 1, "1D 0": 1, "1D 1": 1, "1E 0": 1, "1E 1": 1, "1H 1": 1} {
				if times[what] != n {
					t.Errorf("%q: %s was done %d times, want %d: %q", named, what, times[what], n, d.all())
				}
			}
			if j := s.job(finished); string(j.Data) != `{"n":7}` {
				t.Errorf("%q: it left %s", named, j.Data)
			}
			if st := r.Stats(); st.Lost != 0 || st.TimedOut != 5 || st.Ran != 1 {
				t.Errorf("%q: %+v", named, st)
			}
		})
	}
}

// parcelOf is the data of the types in these tests.
type parcelOf struct {
	To   string `json:"to"`
	Sent int    `json:"sent,omitempty"`
}

func shipping(request func(c ctx, p parcelOf) error) runner.Type[parcelOf, string] {
	return runner.Type[parcelOf, string]{Name: "ship", Key: func(p parcelOf) string { return p.To }, Request: request}
}

func (s *shop) ship(kind runner.Type[parcelOf, string], named, to string, opts ...func(*jobs.Spec)) jobs.ID {
	s.t.Helper()
	id, err := kind.Create(s.t.Context(), s.Service, named, parcelOf{To: to}, opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

func (s *shop) tell(key, result string, want jobs.ReceiptKind) {
	s.t.Helper()
	if r, err := s.Complete(s.t.Context(), "ship", key, result); err != nil || r.Kind != want {
		s.t.Errorf("the answer to %s: %+v, %v; want %s", key, r, err, want)
	}
}

func register[D, A any](t testing.TB, r *runner.Runner, kind runner.Type[D, A]) {
	t.Helper()
	if err := kind.Register(r); err != nil {
		t.Fatal(err)
	}
}

// TestTypeStop shows that a stop lets requests end, and that interrupted requests and Responses run
// again in the same attempt.
func TestTypeStop(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		d := newDiary()
		kind := shipping(func(c ctx, p parcelOf) error {
			h, _ := runner.FromContext(c)
			d.note("ask %s, attempt %d", p.To, h.Attempt)
			if p.To == "quick" {
				time.Sleep(5 * time.Second)
				return nil
			}
			if p.To == "answered" {
				return nil
			}
			select {
			case <-c.Done():
				return context.Cause(c)
			case <-time.After(time.Minute):
				return nil
			}
		})
		kind.Response = func(c ctx, p parcelOf, answer string) (parcelOf, error) {
			d.note("look %s: %s", p.To, answer)
			select {
			case <-c.Done():
				return p, context.Cause(c)
			case <-time.After(time.Minute):
				p.Sent++
				return p, nil
			}
		}
		worker := func() *runner.Runner {
			r := s.runner(runner.Config{Workers: 3, Queue: &queue.Queue{Name: "q"}, ShutdownTimeout: 10 * time.Second})
			register(t, r, kind)
			return r
		}
		first := worker()
		stop := s.run(first)
		answered := s.ship(kind, "q", "answered")
		time.Sleep(time.Second)
		s.tell("answered", "yes", jobs.Accepted)
		quick, slow := s.ship(kind, "q", "quick"), s.ship(kind, "q", "slow")
		time.Sleep(time.Second)
		stop()
		d.about(t, "0s: ask answered, attempt 1", "1s: ask quick, attempt 1", "1s: ask slow, attempt 1", "1s: look answered: yes")
		if j := s.job(quick); j.Phase != jobs.Awaiting {
			t.Errorf("%+v", j)
		}
		if j := s.job(slow); j.State == jobs.Running && j.Due.After(time.Now()) {
			t.Errorf("it is kept: %+v", j)
		}
		if st := first.Stats(); st.GivenBack != 2 || st.Failed != 0 || st.Lost != 0 {
			t.Errorf("%+v", st)
		}
		stop = s.run(worker())
		time.Sleep(61 * time.Second)
		s.tell("quick", "done", jobs.Accepted)
		s.tell("slow", "done", jobs.Accepted)
		time.Sleep(61 * time.Second)
		stop()
		lines := strings.Join(d.seconds(t), "\n")
		for _, want := range []string{"12s: ask slow, attempt 1", "12s: look answered: yes"} {
			if !strings.Contains(lines, want) {
				t.Errorf("missing %q in\n%s", want, lines)
			}
		}
		for _, id := range []jobs.ID{answered, quick, slow} {
			if j := s.job(id); j.State != jobs.Finished || !strings.Contains(string(j.Data), `"sent":1`) || j.Attempt != 1 {
				t.Errorf("%s with %s after %d attempts", j.State, j.Data, j.Attempt)
			}
		}
	})
}

// TestTypeTooSlow shows that a request that exceeds the time limit of its attempt fails, even if it
// ignores its context.
func TestTypeTooSlow(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		d := newDiary()
		over := make(chan bool)
		kind := shipping(func(c ctx, p parcelOf) error {
			d.note("ask %s", p.To)
			if p.To == "obeys" {
				<-c.Done()
				return context.Cause(c)
			}
			<-over
			return nil
		})
		kind.Timeout = time.Minute
		kind.Retry = func(_ ctx, f *runner.Failure[parcelOf]) bool {
			d.note("%s: %v", f.Data.To, errors.Is(f.Err, task.ErrAnswerTimeout))
			return false
		}
		r := s.runner(runner.Config{Workers: 4, Queue: &queue.Queue{Name: "q"}})
		register(t, r, kind)
		stop := s.run(r)
		ids := []jobs.ID{s.ship(kind, "q", "obeys"), s.ship(kind, "q", "does not")}
		time.Sleep(2 * time.Minute)
		close(over)
		time.Sleep(time.Second)
		stop()
		for _, id := range ids {
			if j := s.job(id); j.State != jobs.Failed || !strings.Contains(j.Reason, "no answer came in time") || j.Attempt != 1 {
				t.Errorf("%s: %s after %d attempts", j.State, j.Reason, j.Attempt)
			}
		}
		d.about(t, "0s: ask does not", "0s: ask obeys", "1m0s: does not: true", "1m0s: obeys: true")
	})
}

// TestTypeLost shows that a job that is withdrawn during its request is lost and stays CANCELLED.
func TestTypeLost(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		kind := shipping(func(c ctx, p parcelOf) error {
			if p.To == "refused" {
				return nil
			}
			<-c.Done()
			if !errors.Is(context.Cause(c), task.ErrLeaseLost) {
				t.Errorf("it ends because of %v", context.Cause(c))
			}
			return nil
		})
		asked := 0
		kind.Retry = func(c ctx, f *runner.Failure[parcelOf]) bool {
			asked++
			<-c.Done()
			return true
		}
		var told told
		r := s.runner(runner.Config{Workers: 4, Queue: &queue.Queue{Name: "q"}, OnReport: told.note})
		register(t, r, kind)
		s.run(r)
		ids := []jobs.ID{s.ship(kind, "q", "north"), s.ship(kind, "q", "refused")}
		time.Sleep(time.Second)
		if _, err := s.Reject(t.Context(), "ship", "refused", errors.New("no")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		for _, id := range ids {
			if err := s.Withdraw(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		for _, id := range ids {
			if j := s.job(id); j.State != jobs.Cancelled {
				t.Errorf("%s", j.State)
			}
		}
		s.tell("north", "x", jobs.Late)
		if st := r.Stats(); st.Lost != 2 || st.Failed != 0 || asked != 1 {
			t.Errorf("%+v, asked %d times", st, asked)
		}
	})
}

// TestTypeKeys shows that an attempt fails if its key cannot be computed or belongs to another job.
func TestTypeKeys(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		d := newDiary()
		kind := shipping(func(_ ctx, p parcelOf) error { d.note("ask %s", p.To); return nil })
		kind.Key = func(p parcelOf) string {
			if p.Sent > 0 {
				return "taken"
			}
			if p.To == "panic" {
				panic("boom")
			}
			return p.To
		}
		kind.Retry = func(_ ctx, f *runner.Failure[parcelOf]) bool {
			d.note("%s %d: %v", f.Data.To, f.Attempt, f.Err)
			f.At = time.Now().Add(time.Minute)
			f.Data.Sent = 0
			return f.Attempt < 2 && errors.Is(f.Err, jobs.ErrKeyTaken)
		}
		r := s.runner(runner.Config{Queue: &queue.Queue{Name: "q"}})
		register(t, r, kind)
		if _, err := kind.Create(t.Context(), s.Service, "q", parcelOf{}); !errors.Is(err, runner.ErrNoKey) {
			t.Errorf("without a key: %v", err)
		}
		s.ship(kind, "q", "taken")
		none := s.put(jobs.Spec{Name: "ship", Queue: "q", Data: []byte(`{"to":""}`), FirstRun: time.Now().Add(time.Second)})
		panics := s.put(jobs.Spec{Name: "ship", Queue: "q", Data: []byte(`{"to":"panic"}`), FirstRun: time.Now().Add(2 * time.Second)})
		unfit := s.put(jobs.Spec{Name: "ship", Queue: "q", Data: []byte(`{"to":7}`), FirstRun: time.Now().Add(3 * time.Second)})
		taken := s.put(jobs.Spec{Name: "ship", Queue: "q", Data: []byte(`{"to":"other","sent":1}`), FirstRun: time.Now().Add(4 * time.Second)})
		s.run(r)
		time.Sleep(2 * time.Minute)
		d.about(t, "0s: ask taken", "1s:  1: jobs: the job has no key for its answer", "2s: panic 1: panic: boom",
			`4s: other 1: job 5: jobs: not in this state: another job or task has this key: "taken", job 1`, "1m4s: ask other")
		for _, id := range []jobs.ID{none, panics, unfit} {
			if j := s.job(id); j.State != jobs.Failed {
				t.Errorf("%s is %s", j.Data, j.State)
			}
		}
		if j := s.job(taken); j.Phase != jobs.Awaiting || j.Key != "other" || j.Attempt != 2 {
			t.Errorf("%+v", j)
		}
	})
}

// TestQueueRetryAtWindow shows that a retry waits for the job's window and does not count against
// the limit meanwhile.
// Promises: Q35, Q36.
func TestQueueRetryAtWindow(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) { // the clock starts at midnight
		d := newDiary()
		night, err := when.ParseWindows("22:00-06:00", nil)
		if err != nil {
			t.Fatal(err)
		}
		kind := shipping(func(_ ctx, p parcelOf) error { d.note("ask %s", p.To); return nil })
		kind.Windows, kind.Timeout = night, time.Hour
		kind.Retry = func(_ ctx, f *runner.Failure[parcelOf]) bool {
			f.At = time.Now().Add(6 * time.Hour)
			return f.Attempt < 2
		}
		r := s.runner(runner.Config{Queue: &queue.Queue{Name: "q", Limit: 1, Poll: time.Minute}, Lease: 10 * time.Minute})
		register(t, r, kind)
		s.run(r)
		first, second := s.ship(kind, "q", "first"), s.ship(kind, "q", "second", func(s *jobs.Spec) { s.Windows = nil })
		time.Sleep(30 * time.Hour)
		d.about(t, "0s: ask first", "1h0m0s: ask second", "8h0m0s: ask second", "22h0m0s: ask first")
		for _, id := range []jobs.ID{first, second} {
			if j := s.job(id); j.State != jobs.Failed || j.Attempt != 2 {
				t.Errorf("%s is %s after %d attempts", j.Data, j.State, j.Attempt)
			}
		}
	})
}

// TestQueueSequence shows that jobs of one sequence key in a queue run one at a time, from the
// request to the end.
func TestQueueSequence(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		d := newDiary()
		kind := shipping(func(_ ctx, p parcelOf) error { d.note("ask %s", p.To); return nil })
		r := s.runner(runner.Config{Workers: 4, Queue: &queue.Queue{Name: "q"}})
		register(t, r, kind)
		s.run(r)
		for i := range 3 {
			for _, key := range []string{"a", "b"} {
				s.ship(kind, "q", fmt.Sprint(key, i), func(s *jobs.Spec) { s.SequenceKey = key })
			}
		}
		for i := range 3 {
			time.Sleep(time.Second)
			s.tell(fmt.Sprint("a", i), "x", jobs.Accepted)
			time.Sleep(time.Second)
			s.tell(fmt.Sprint("b", i), "x", jobs.Accepted)
		}
		d.about(t, "0s: ask a0", "0s: ask b0", "1s: ask a1", "2s: ask b1", "3s: ask a2", "4s: ask b2")
	})
}

// TestQueueStandby shows that one runner serves a queue and that another one continues after its
// stop.
// Promises: Q42.
func TestQueueStandby(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		var by [2]atomic.Int64
		kind := shipping(nil)
		var stops [2]func()
		for i := range stops {
			mine := kind
			mine.Request = func(ctx, parcelOf) error { by[i].Add(1); return nil }
			r := s.runner(runner.Config{Service: serve(t, s.store), Queue: &queue.Queue{Name: "q"}})
			register(t, r, mine)
			stops[i] = s.run(r)
			time.Sleep(time.Second)
		}
		kind.Request = func(ctx, parcelOf) error { return nil }
		s.ship(kind, "q", "one")
		time.Sleep(time.Second)
		stops[0]()
		s.ship(kind, "q", "two")
		time.Sleep(time.Second)
		if a, b := by[0].Load(), by[1].Load(); a != 1 || b != 1 {
			t.Errorf("%d and %d", a, b)
		}
		stops[1]()
	})
}

// TestQueueUnknownName shows that a job without a handler waits for another runner and blocks no
// other job.
func TestQueueUnknownName(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		var told told
		r := s.runner(runner.Config{Queue: &queue.Queue{Name: "q", Limit: 1}, OnReport: told.note})
		handle(t, r, sum, func(_ ctx, at state) (state, error) { return state{at.N + 1}, nil })
		stop := s.run(r)
		strange := s.put(jobs.Spec{Name: "strange", Queue: "q"})
		known := s.put(jobs.Spec{Name: "sum", Queue: "q"})
		time.Sleep(90 * time.Second)
		s.is(known, jobs.Finished, `{"n":1}`)
		if j := s.job(strange); j.State != jobs.Queued || j.Attempt != 0 || !strings.Contains(j.Reason, "no handler for this name") {
			t.Errorf("%+v", j)
		}
		if list := told.all(); len(list) != 2 || list[0].Problem != runner.ProblemUnknown {
			t.Errorf("%+v", list)
		}
		stop()
		r = s.runner(runner.Config{Queue: &queue.Queue{Name: "q", Limit: 1}})
		handle(t, r, task.New[state, any]("strange"), func(ctx, state) (any, error) { return nil, nil })
		s.run(r)
		time.Sleep(time.Minute)
		s.is(strange, jobs.Finished, `{}`)
	})
}

// TestQueueDispatch shows that dispatched jobs of a queue count against the limit until the end of
// their task is recorded.
// Promises: Q23.
func TestQueueDispatch(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		road := memoryRoad(t)
		c := road.consumer(s.Service)
		var mu sync.Mutex
		running, most := 0, 0
		tries := map[int]int{}
		handle(t, c, sum.With(task.WithRetryDelay(5*time.Second)), func(c ctx, at state) (state, error) {
			mu.Lock()
			running++
			most = max(most, running)
			tries[at.N]++
			first := tries[at.N] == 1
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			running--
			mu.Unlock()
			if first && at.N == 3 {
				return at, task.Retry(errors.New("not yet"), task.After(5*time.Second))
			}
			return state{at.N + 100}, nil
		})
		road.consume(c)
		r := s.runner(runner.Config{Submit: road, Results: road.results, Queue: &queue.Queue{Name: "q", Limit: 2}})
		dispatch(t, r, sum)
		s.run(r)
		var ids []jobs.ID
		for n := range 8 {
			ids = append(ids, s.put(jobs.Spec{Name: "sum", Queue: "q", Data: fmt.Appendf(nil, `{"n":%d}`, n)}))
		}
		unfit := s.put(jobs.Spec{Name: "sum", Queue: "q", Data: []byte(`{"n":"x"}`)})
		strange := s.put(jobs.Spec{Name: "strange", Queue: "q"})
		time.Sleep(time.Minute)
		for n, id := range ids {
			s.is(id, jobs.Finished, fmt.Sprintf(`{"n":%d}`, n+100))
		}
		s.is(unfit, jobs.Failed, `{"n":"x"}`)
		s.is(strange, jobs.Queued, `{}`)
		if most != 2 || tries[3] != 2 {
			t.Errorf("%d at a time; %v", most, tries)
		}
	})
}

// TestManyAwait shows that jobs that await answers cost no goroutine, and no memory besides their
// records.
func TestManyAwait(t *testing.T) {
	const n = 3000
	s := newShop(t, openMem(t))
	kind := shipping(func(ctx, parcelOf) error { return nil })
	r := s.runner(runner.Config{Workers: 16, Queue: &queue.Queue{Name: "q", Limit: 2 * n}})
	register(t, r, kind)
	before := runtime.NumGoroutine()
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	specs := make([]jobs.Spec, n)
	for i := range specs {
		var err error
		if specs[i], err = kind.Spec("q", parcelOf{To: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.CreateAll(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	waiting := heap()
	stop := s.run(r)
	wait := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !ok(); <-time.After(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %+v, %d goroutines", what, r.Stats(), runtime.NumGoroutine())
			}
		}
	}
	wait("all await", func() bool { return r.Stats().Deferred == n })
	wait("the goroutines end", func() bool { return runtime.NumGoroutine() < before+20 })
	if grown := int64(heap()) - int64(waiting); grown > 1000*n {
		t.Errorf("%d bytes more for each job that awaits than for one that waits", grown/n)
	}
	answers := make([]jobs.Answer, n)
	for i := range answers {
		answers[i] = jobs.Answer{Name: "ship", Key: fmt.Sprint(i), Result: []byte(`"there"`)}
	}
	receipts, err := s.AnswerAll(t.Context(), answers)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range receipts {
		if r.Kind != jobs.Accepted {
			t.Fatalf("answer %d: %+v", i, r)
		}
	}
	stop()
	if list, err := s.List(t.Context(), jobs.Filter{Queue: "q", States: []jobs.State{jobs.Finished}}); err != nil || len(list) != n {
		t.Errorf("%d are finished: %v", len(list), err)
	}
}

// TestQueueGoesOn shows that the next job starts at once when an answer ends a job, in any process.
// Promises: Q23.
func TestQueueGoesOn(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		d := newDiary()
		kind := shipping(func(_ ctx, p parcelOf) error { d.note("ask %s", p.To); return nil })
		r := s.runner(runner.Config{Queue: &queue.Queue{Name: "q", Limit: 1, Poll: time.Hour}})
		register(t, r, kind)
		s.run(r)
		for _, to := range []string{"a", "b", "c"} {
			s.ship(kind, "q", to)
		}
		time.Sleep(10 * time.Second)
		s.tell("a", "x", jobs.Accepted)
		time.Sleep(10 * time.Second)
		if _, err := serve(t, s.store).Complete(t.Context(), "ship", "b", "x"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		d.about(t, "0s: ask a", "10s: ask b", "20s: ask c")
	})
}

// TestTypeOfPlainJobs shows that the functions of a type also run for jobs that were created
// without it.
func TestTypeOfPlainJobs(t *testing.T) {
	for _, named := range []string{"", "q"} {
		inShop(t, func(t *testing.T, s *shop) {
			kind := shipping(func(ctx, parcelOf) error { return nil })
			kind.Timeout = -1
			kind.Response = func(_ ctx, p parcelOf, answer string) (parcelOf, error) { p.Sent = len(answer); return p, nil }
			c := runner.Config{}
			if named != "" {
				c.Queue = &queue.Queue{Name: named}
			}
			r := s.runner(c)
			register(t, r, kind)
			s.run(r)
			id := s.put(jobs.Spec{Name: "ship", Queue: named, Data: []byte(`{"to":"x"}`)})
			time.Sleep(time.Minute)
			if j := s.job(id); j.Phase != jobs.Awaiting || j.Key != "x" || named == "" && !j.Deadline.IsZero() {
				t.Errorf("%+v", j)
			}
			s.tell("x", "four", jobs.Accepted)
			time.Sleep(time.Second)
			s.is(id, jobs.Finished, `{"to":"x","sent":4}`)
		})
	}
}

// TestTypeAnsweredInTime shows that an accepted answer counts, although the request does not return
// before the end of its attempt.
func TestTypeAnsweredInTime(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		over := make(chan bool)
		kind := shipping(func(ctx, parcelOf) error { <-over; return nil })
		kind.Timeout = time.Minute
		kind.Response = func(_ ctx, p parcelOf, _ string) (parcelOf, error) { p.Sent = 1; return p, nil }
		kind.Retry = func(_ ctx, f *runner.Failure[parcelOf]) bool { t.Errorf("asked about %v", f.Err); return false }
		r := s.runner(runner.Config{Workers: 2, Queue: &queue.Queue{Name: "q"}})
		register(t, r, kind)
		stop := s.run(r)
		id := s.ship(kind, "q", "x")
		time.Sleep(time.Second)
		s.tell("x", "yes", jobs.Accepted)
		time.Sleep(2 * time.Minute)
		s.is(id, jobs.Finished, `{"to":"x","sent":1}`)
		close(over)
		time.Sleep(time.Second)
		stop()
	})
}

// TestCreateSharedKeys shows that one of many concurrent calls creates the job of a key, and that
// the others get its id.
func TestCreateSharedKeys(t *testing.T) {
	s := newShop(t, openMem(t))
	const each, keys = 20, 10
	kind := shipping(func(ctx, parcelOf) error { return nil })
	var mu sync.Mutex
	made, told := map[int]jobs.ID{}, map[int][]jobs.ID{}
	var wg sync.WaitGroup
	for range each {
		for k := range keys {
			wg.Go(func() {
				id, err := kind.Create(t.Context(), s.Service, "q", parcelOf{To: fmt.Sprint(k)})
				var taken *jobs.KeyTakenError
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil && made[k] == 0:
					made[k] = id
				case errors.As(err, &taken):
					told[k] = append(told[k], taken.Job)
				default:
					t.Errorf("%d: job %d, %v", k, id, err)
				}
			})
		}
	}
	wg.Wait()
	for k := range keys {
		if made[k] == 0 || len(told[k]) != each-1 {
			t.Errorf("key %d: job %d, and %d were told", k, made[k], len(told[k]))
		}
		for _, id := range told[k] {
			if id != made[k] {
				t.Errorf("key %d is job %d, and not %d", k, made[k], id)
			}
		}
	}
	if st := s.Stats(); st.Created != keys {
		t.Errorf("%d made", st.Created)
	}
}
