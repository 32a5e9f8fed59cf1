package schedule_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/schedule/memschedule"
	"github.com/swarmiji/swarmiji/task"
)

// recorder is a submitter that collects the calls that it gets.
type recorder struct {
	mu     sync.Mutex
	calls  []task.Call
	refuse func(c task.Call) error
}

type pending struct {
	task.Pending
	id task.ID
}

func (r *recorder) Submit(_ ctx, c task.Call) (task.Pending, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse != nil {
		if err := r.refuse(c); err != nil {
			return nil, err
		}
	}
	r.calls = append(r.calls, c)
	return pending{id: c.ID}, nil
}

func (r *recorder) all() []task.Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]task.Call(nil), r.calls...)
}

// batchRecorder is a recorder that is also a task.BatchSubmitter.
type batchRecorder struct{ recorder }

func (b *batchRecorder) SubmitAll(c ctx, calls []task.Call) ([]task.Pending, error) {
	out := make([]task.Pending, len(calls))
	var err error
	for i := range calls {
		p, e := b.Submit(c, calls[i])
		if e == nil {
			out[i] = p
		} else {
			err = e
		}
	}
	return out, err
}

func TestSubmit(t *testing.T) {
	for _, batched := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := memory(t)
			s := scheduled(t, schedule.Config{Store: store})
			b := &batchRecorder{}
			var to task.Submitter = &b.recorder
			if batched {
				to = b
			}
			l := listener(t, schedule.ListenerConfig{Store: store, Submit: to, TaskName: func(job string) string { return "job." + job }})
			list := task.New[[]string, task.None]("list", task.WithMaxRetries(5))
			if err := schedule.Forward(l, list); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{}
			put := func(call task.Call, args string) {
				added := add(t, s, schedule.Now(), call)
				want[string(schedule.TickID("app-tasks", added.ID, added.Next))] = args
			}
			put(task.Call{Name: "one", Args: "x", Meta: task.Metadata{Queue: task.Set("q")}}, `job.one "x" q`)
			put(task.Call{Name: "two", Args: []int{1, 2}}, `job.two [1,2] `)
			put(list.Call([]string{"x"}), `job.list ["x"] `)
			running(t, l)
			time.Sleep(time.Second)
			got := map[string]string{}
			for _, c := range b.all() {
				args, err := json.Marshal(c.Args)
				if err != nil {
					t.Fatal(err)
				}
				got[string(c.ID)] = fmt.Sprintf("%s %s %s", c.Name, args, c.Meta.Queue.Or(""))
				if c.Name == "job.list" && c.Definition.MaxRetries.Or(0) != 5 {
					t.Errorf("the definition's metadata are missing: %+v", c)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if st := l.Stats(); st.Submitted != 3 || len(b.all()) != 3 {
				t.Errorf("%+v", st)
			}
			for it := range s.List(t.Context()) {
				t.Errorf("left is %+v", it)
			}
			if err := l.Register("x", nil, task.Metadata{}); !errors.Is(err, schedule.ErrUnsupported) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestABrokerThatIsAway shows that no tick is lost while the broker is unavailable. Each is
// submitted later with its first id. Missed runs of a recurring entry are left out.
func TestABrokerThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory(t)
		s := scheduled(t, schedule.Config{Store: store})
		away := true
		b := &batchRecorder{recorder{refuse: func(task.Call) error {
			if away {
				return errors.New("away")
			}
			return nil
		}}}
		l := listener(t, schedule.ListenerConfig{Store: store, Submit: b})
		ids := map[task.ID]bool{}
		for i := range 10 {
			added := add(t, s, schedule.Now(), task.Call{Name: "x", Args: i})
			ids[schedule.TickID("app-tasks", added.ID, added.Next)] = true
		}
		running(t, l)
		time.Sleep(time.Hour)
		b.mu.Lock()
		away = false
		b.mu.Unlock()
		time.Sleep(2 * time.Minute)
		for _, c := range b.all() {
			if !ids[c.ID] {
				t.Errorf("task %s is of no tick, or was submitted twice", c.ID)
			}
			delete(ids, c.ID)
		}
		if len(ids) > 0 {
			t.Errorf("%d ticks are lost", len(ids))
		}
	})
}

// TestATaskThatIsRefused shows that a refused task is postponed again and again, while the others
// are submitted at once. Only the store's clock decides whether a tick is too late.
func TestATaskThatIsRefused(t *testing.T) {
	for _, skew := range []time.Duration{0, -48 * time.Hour, 48 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			store, err := memschedule.New(memschedule.Config{Name: "app-tasks", Now: func() time.Time { return time.Now().Add(skew) }})
			if err != nil {
				t.Fatal(err)
			}
			s := scheduled(t, schedule.Config{Store: store})
			var away atomic.Bool
			away.Store(true)
			b := &batchRecorder{recorder{refuse: func(c task.Call) error {
				if away.Load() && c.Name != "good" {
					return task.ErrBadMetadata
				}
				return nil
			}}}
			l := listener(t, schedule.ListenerConfig{Store: store, Submit: b})
			add(t, s, schedule.Now(), task.Call{Name: "bad"})
			add(t, s, schedule.Now(), task.Call{Name: "#'no/name for a broker"})
			add(t, s, schedule.Now(), task.Call{Name: "good"})
			add(t, s, schedule.ByCron("* * * * */8 0 0"), task.Call{Name: "bad", Args: "again"})
			running(t, l)
			time.Sleep(time.Second)
			if calls := b.all(); len(calls) != 1 || calls[0].Name != "good" {
				t.Errorf("%v: %+v", skew, calls)
			}
			time.Sleep(23 * time.Hour)
			if st := l.Stats(); st.Dropped != 0 {
				t.Errorf("%v: a tick that is not a day late was given up: %+v", skew, st)
			}
			time.Sleep(25*time.Hour + 30*time.Minute)
			kept := 0
			for range s.List(t.Context()) {
				kept++
			}
			if st := l.Stats(); kept != 3 || st.Dropped < 2 || st.Dropped > 4 || st.Submitted != 1 {
				t.Errorf("%v: %d are kept; %+v", skew, kept, st)
			}
			away.Store(false)
			time.Sleep(5 * time.Minute)
			names := map[string]int{}
			for _, c := range b.all() {
				names[c.Name]++
			}
			if names["bad"] < 3 {
				t.Errorf("%v: submitted were %v", skew, names)
			}
		})
	}
}
