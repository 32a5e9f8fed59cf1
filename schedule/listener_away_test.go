package schedule_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/schedule/memschedule"
	"github.com/swarmiji/swarmiji/task"
)

// reports collects the reports of listeners.
type reports struct {
	mu   sync.Mutex
	list []schedule.Report
}

func (r *reports) note(p schedule.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, p)
}

func (r *reports) all() []schedule.Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// of returns the number of reports of a problem about an entry.
func (r *reports) of(p schedule.Problem, id string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.list {
		if one.Problem == p && one.Entry.ID == id {
			n++
		}
	}
	return n
}

// listenerWithoutHandlers returns a listener that has no handlers.
func listenerWithoutHandlers(t *testing.T, store schedule.Store, r *reports) *schedule.Listener {
	return listener(t, schedule.ListenerConfig{Store: store, OnReport: r.note})
}

// TestAHandlerIsAwayForDays shows what happens to entries whose job has no handler. A one-shot
// waits for the handler, and a recurring entry continues with its next tick. Both are reported at
// once and then once an hour (W6).
func TestAHandlerIsAwayForDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, j, r := memory(t), &journal{}, &reports{}
		s := scheduled(t, schedule.Config{Store: store})
		const poll = 10 * time.Second // with the default there would be 700,000 polls
		stop := running(t, listener(t, schedule.ListenerConfig{Store: store, OnReport: r.note, Poll: poll}))
		once := add(t, s, schedule.After(time.Second), tell.Call("once"))
		daily := add(t, s, schedule.ByCron("* * * * 6 0 0"), tell.Call("daily"))
		time.Sleep(5*time.Hour + 59*time.Minute)
		if n := r.of(schedule.ProblemUnknown, once.ID); n != 6 {
			t.Errorf("in six hours the one-shot was told of %d times", n)
		}
		time.Sleep(3 * 24 * time.Hour)
		stop()
		if n := r.of(schedule.ProblemGivenUp, daily.ID); n < 1 || n > 3 {
			t.Errorf("in three days %d ticks of the daily entry were given up", n)
		}
		if n := r.of(schedule.ProblemGivenUp, once.ID); n != 0 {
			t.Errorf("the one-shot was given up %d times", n)
		}
		stop = running(t, teller(t, j, schedule.ListenerConfig{Store: store.View(), Poll: poll}))
		time.Sleep(24 * time.Hour)
		stop()
		once2, daily2 := 0, 0
		for _, line := range j.all() {
			if strings.HasPrefix(line, "once ") {
				once2++
			}
			if strings.HasPrefix(line, "daily ") {
				daily2++
			}
		}
		if once2 != 1 || daily2 < 1 || daily2 > 2 {
			t.Errorf("the new program ran %v", j.all())
		}
		if _, err := s.Get(t.Context(), once.ID); !errors.Is(err, schedule.ErrNotFound) {
			t.Errorf("the one-shot: %v", err)
		}
		if it, err := s.Get(t.Context(), daily.ID); err != nil || it.Next.IsZero() {
			t.Errorf("the daily entry: %+v, %v", it, err)
		}
	})
}

// TestLeftToOneWithTheHandler shows that a listener without the handler leaves ticks to a listener
// that has it, and that each tick runs on time.
func TestLeftToOneWithTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, j, r := memory(t), &journal{}, &reports{}
		s := scheduled(t, schedule.Config{Store: store})
		without := listenerWithoutHandlers(t, store.View(), r)
		running(t, without)
		running(t, teller(t, j, schedule.ListenerConfig{Store: store.View(), Workers: 1}))
		var want []string
		for i := 1; i <= 30; i++ {
			add(t, s, schedule.After(time.Duration(i)*time.Second), tell.Call("x"))
			want = append(want, fmt.Sprintf("x at %v", time.Duration(i)*time.Second))
		}
		time.Sleep(time.Minute)
		j.want(t, want...)
		if st := without.Stats(); st.PutOff > 0 || len(r.list) > 0 {
			t.Errorf("the other one has put off %d ticks, and told of %d", st.PutOff, len(r.list))
		}
	})
}

// TestManyThatOneCannotRun shows that a listener runs its own ticks even if it cannot run more than
// maxLeft others.
func TestManyThatOneCannotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, j, r := memory(t), &journal{}, &reports{}
		s := scheduled(t, schedule.Config{Store: store})
		calls := make([]task.Call, 3000)
		for i := range calls {
			calls[i] = task.Call{Name: "unknown", Args: i}
		}
		if _, err := s.AddAll(t.Context(), schedule.Now(), calls); err != nil {
			t.Fatal(err)
		}
		add(t, s, schedule.After(time.Second), tell.Call("mine"))
		running(t, teller(t, j, schedule.ListenerConfig{Store: store, OnReport: r.note}))
		time.Sleep(5 * time.Second)
		if got := j.all(); len(got) != 1 {
			t.Errorf("ran %v", got)
		}
	})
}

// ofAnotherProgram adds an entry with a payload of another program.
func ofAnotherProgram(t *testing.T, store *memschedule.Store, id, payload string) {
	t.Helper()
	if _, err := store.Add(t.Context(), []schedule.Entry{{ID: id, Payload: []byte(payload), Next: time.Now()}}); err != nil {
		t.Fatal(err)
	}
}

// TestWhatOneCannotRead shows that an unreadable entry is postponed by an hour and reported, and
// that a listener that can read it runs it. Only an entry that is not JSON loses its due time, and
// it stays in the store (W35).
func TestWhatOneCannotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, j, r := memory(t), &journal{}, &reports{}
		s := scheduled(t, schedule.Config{Store: store})
		for id, payload := range map[string]string{
			"zone":  `{"job":"tell","spec":"CRON_TZ=Mars/Olympus * * * * 0 0 0","args":["x"]}`,
			"field": `{"job":"tell","cron":"* * * * 0 0 0","args":["x"],"swarmiji":{"misfire":"newer"}}`,
			"cron":  `{"job":"tell","cron":"99 * * * * * *","args":[]}`,
			"job":   `{"cron":"* * * * * * *","args":[]}`,
			"json":  `{`,
		} {
			ofAnotherProgram(t, store, id, payload)
		}
		add(t, s, schedule.Now(), tell.Call("fine"))
		stop := running(t, teller(t, j, schedule.ListenerConfig{Store: store, OnReport: r.note}))
		time.Sleep(30 * time.Minute)
		j.want(t, "fine at 0s")
		got := map[string]int{}
		for _, one := range r.all() {
			if one.Problem != schedule.ProblemBroken {
				t.Errorf("%+v", one)
			}
			if text := one.Err.Error(); one.Entry.ID == "zone" && (!strings.Contains(text, `"Mars/Olympus"`) || !strings.Contains(text, "time/tzdata")) {
				t.Errorf("the unknown zone is reported as: %s", text)
			}
			got[one.Entry.ID]++
		}
		if diff := cmp.Diff(map[string]int{"zone": 1, "field": 1, "cron": 1, "job": 1, "json": 1}, got); diff != "" {
			t.Error(diff)
		}
		time.Sleep(24 * time.Hour)
		stop()
		if n := r.of(schedule.ProblemBroken, "zone"); n < 23 || n > 26 {
			t.Errorf("in a day an entry was told of %d times", n)
		}
		time.Sleep(2 * time.Hour) // until the last claim has ended
		b, err := store.Due(t.Context(), 10)
		if err != nil || len(b.Ticks) != 4 {
			t.Errorf("due are %+v, %v", b.Ticks, err)
		}
		if it, err := s.Get(t.Context(), "json"); err != nil || it.Problem == nil || !it.Next.IsZero() {
			t.Errorf("what is no JSON: %+v, %v", it, err)
		}
	})
}

// TestFieldsOfOthers shows that an entry runs with any fields that another program adds to its
// payload (W13).
func TestFieldsOfOthers(t *testing.T) {
	for _, more := range []string{
		`"nonce":7`, `"from":{}`, `"misfire":"never"`, `"misfire":[1]`, `"overlap":"allow"`, `"overlap":true`, `"meta":"x"`, `"meta":{"priority":"x"}`,
		`"headers":["x"]`, `"headers":{"a":1}`, `"correlation":null`, `"correlation":5`, `"spec":7`, `"spec":"x"`, `"swarmiji":"x"`, `"swarmiji":null`, `"added-by":{"host":"x"}`,
	} {
		synctest.Test(t, func(t *testing.T) {
			store, j := memory(t), &journal{}
			ofAnotherProgram(t, store, "other", `{"job":"tell","cron":"2000 1 1 * 0 0 0","args":["x"],`+more+`}`)
			s := scheduled(t, schedule.Config{Store: store})
			if _, err := s.RunNow(t.Context(), "other"); err != nil {
				t.Errorf("%s: %v", more, err)
			}
			running(t, teller(t, j, schedule.ListenerConfig{Store: store}))
			time.Sleep(time.Second)
			if got := j.all(); len(got) != 2 {
				t.Errorf("%s: ran %v", more, got)
			}
		})
	}
}

// TestARollingUpgrade shows that a listener reads the payload of an older version. Adding the same
// entry with the newer version adds no second one.
func TestARollingUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory(t)
		s := scheduled(t, schedule.Config{Store: store})
		const old = `{"args":["x"],"correlation":"c","cron":"* * * * 0 * 0","headers":{"h":"v"},"job":"tell","meta":{"queue":"q","time_limit":1500},"misfire":"skip","nonce":"n"}`
		e := schedule.Entry{ID: schedule.ID([]byte(old)), Payload: []byte(old), Next: time.Now().Add(time.Minute)}
		if _, err := store.Add(t.Context(), []schedule.Entry{e}); err != nil {
			t.Fatal(err)
		}
		call := tell.Call("x", task.WithQueue("q"), task.WithTimeLimit(1500*time.Millisecond), task.WithHeader("h", "v"), task.WithCorrelation("c"))
		options := []schedule.Option{schedule.WithMisfire(schedule.MisfireSkip), schedule.WithNonce("n")}
		added := add(t, s, schedule.ByCron("* * * * 0 * 0"), call, options...)
		if added.New || added.ID != e.ID {
			t.Errorf("an older program's entry was added again: %+v", added)
		}
		it, err := s.Get(t.Context(), e.ID)
		if err != nil || it.Content.Nonce != "n" || it.Content.Misfire != schedule.MisfireSkip || it.Content.Headers["h"] != "v" ||
			it.Content.Correlation != "c" || it.Content.Meta.Queue.Or("") != "q" {
			t.Errorf("%+v, %v", it.Content, err)
		}
		if _, err := s.Remove(t.Context(), e.ID); err != nil {
			t.Fatal(err)
		}
		added = add(t, s, schedule.ByCron("* * * * 0 * 0"), call, options...)
		const fresh = `{"args":["x"],"cron":"* * * * 0 * 0","job":"tell","swarmiji":{"correlation":"c","headers":{"h":"v"},"meta":{"queue":"q","time_limit":1500},"misfire":"skip","nonce":"n"}}`
		if got := payload(t, s, added.ID); got != fresh {
			t.Errorf("written is %s", got)
		}
		again, err := s.Get(t.Context(), added.ID)
		if err != nil {
			t.Fatal(err)
		}
		if again.Content.Headers["h"] != "v" || again.Content.Misfire != it.Content.Misfire || again.Content.Nonce != "n" {
			t.Errorf("%+v", again.Content)
		}
	})
}

// TestAddRepairs shows that an entry dropped by an older listener is due again after Add. Without
// Add, the sweep of a listener repairs it.
func TestAddRepairs(t *testing.T) {
	for _, swept := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store, j := memory(t), &journal{}
			s := scheduled(t, schedule.Config{Store: store})
			added := add(t, s, schedule.ByCron("2000 1 1 * * * 0"), tell.Call("x"))
			b, err := store.Due(t.Context(), 1)
			if err != nil || len(b.Ticks) != 1 {
				t.Fatal(b, err)
			}
			k := b.Ticks[0] // An older listener drops it this way.
			if _, err := store.Claim(t.Context(), "old", time.Minute, []schedule.Claim{{Tick: k}}); err != nil {
				t.Fatal(err)
			}
			if _, err := store.Done(t.Context(), "old", []schedule.Finish{{Tick: k}}); err != nil {
				t.Fatal(err)
			}
			running(t, teller(t, j, schedule.ListenerConfig{Store: store.View()}))
			time.Sleep(30 * time.Second)
			if !swept {
				again := add(t, s, schedule.ByCron("2000 1 1 * * * 0"), tell.Call("x"))
				if again.New || again.ID != added.ID {
					t.Errorf("%+v", again)
				}
				time.Sleep(time.Minute)
			} else {
				time.Sleep(20 * time.Minute)
			}
			if len(j.all()) == 0 {
				t.Error("it never ran again")
			}
		})
	}
}
