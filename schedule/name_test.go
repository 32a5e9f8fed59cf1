package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/schedule/memschedule"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/when"
)

// names returns a store in memory and a Schedule on it.
func names(t testing.TB, c schedule.Config) (*memschedule.Store, *schedule.Schedule) {
	t.Helper()
	store, err := memschedule.New(memschedule.Config{Name: "names"})
	if err != nil {
		t.Fatal(err)
	}
	c.Store = store
	return store, scheduled(t, c)
}

// TestNameIsTheIdentity shows that Add with a known name changes the entry, and that the old times
// end.
func TestNameIsTheIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, s := names(t, schedule.Config{})
		first := add(t, s, schedule.ByCron("* * * * * 0 0"), tell.Call("hourly"), schedule.WithName("a"))
		if !first.New || first.Changed || first.ID != schedule.NameID("a") || time.Until(first.Next) > time.Hour {
			t.Errorf("the first Add: %+v", first)
		}
		if again := add(t, s, schedule.ByCron("* * * * * 0 0"), tell.Call("hourly"), schedule.WithName("a")); again.New || again.Changed || !again.Next.Equal(first.Next) {
			t.Errorf("an equal Add: %+v", again)
		}
		add(t, s, schedule.ByCron("* * * * * 0 0"), tell.Call("hourly"), schedule.WithName("b"))
		j := &journal{}
		stop := running(t, teller(t, j, schedule.ListenerConfig{Store: store.View()}))
		time.Sleep(2*time.Hour + time.Minute)
		changed := add(t, s, schedule.ByCron("* * * * * 30 0"), tell.Call("changed"), schedule.WithName("a"), schedule.WithMisfire(schedule.MisfireSkip))
		if changed.New || !changed.Changed || changed.Next.Minute() != 30 {
			t.Errorf("a changed Add: %+v", changed)
		}
		if _, err := s.Remove(t.Context(), schedule.NameID("b")); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Hour)
		stop()
		var got []string
		for _, line := range j.all() {
			got = append(got, strings.Fields(line)[0])
		}
		if diff := cmp.Diff([]string{"hourly", "hourly", "hourly", "hourly", "changed", "changed"}, got); diff != "" {
			t.Errorf("(-want +ran):\n%s", diff)
		}
		it, err := s.Get(t.Context(), schedule.NameID("a"))
		if err != nil || it.Content.Name != "a" || len(it.Runs) != 4 {
			t.Errorf("the entry is %+v, %v", it, err)
		}
	})
}

func TestNamesThatAreRefused(t *testing.T) {
	store, s := names(t, schedule.Config{})
	hourly, call, name := schedule.ByCron("* * * * * 0 0"), tell.Call("x"), schedule.WithName("a")
	addOne := func(s *schedule.Schedule, at schedule.When, opts ...schedule.Option) error {
		_, err := s.Add(t.Context(), at, call, opts...)
		return err
	}
	sync := func(group string, names ...string) error {
		var want []schedule.Definition
		for _, n := range names {
			want = append(want, schedule.Definition{Name: n, At: hourly, Call: call})
		}
		_, err := s.Sync(t.Context(), group, 1, want, schedule.SyncOptions{})
		return err
	}
	if err := errors.Join(sync("g", "grouped"), addOne(s, hourly, schedule.WithName("alone"))); err != nil {
		t.Fatal(err)
	}
	_, several := s.AddAll(t.Context(), hourly, []task.Call{call, call}, name)
	_, inTx := s.AddTx(t.Context(), nil, hourly, call, name)
	plain := scheduled(t, schedule.Config{Store: struct{ schedule.Store }{store}, Name: "names"})
	for what, c := range map[string]struct{ got, want error }{
		"now":                   {addOne(s, schedule.Now(), name), when.ErrBadSpec},
		"the past":              {addOne(s, schedule.AtTime(time.Now().Add(-time.Hour)), name), when.ErrBadSpec},
		"a line break":          {addOne(s, hourly, schedule.WithName("a\nb")), schedule.ErrBadEntry},
		"a long name":           {addOne(s, hourly, schedule.WithName(strings.Repeat("x", 256))), schedule.ErrBadEntry},
		"several calls":         {several, schedule.ErrBadEntry},
		"a transaction":         {inTx, schedule.ErrUnsupported},
		"a store without names": {addOne(plain, hourly, name), schedule.ErrUnsupported},
		"a name of a group":     {addOne(s, hourly, schedule.WithName("grouped")), schedule.ErrTaken},
		"a name without group":  {sync("g", "grouped", "alone"), schedule.ErrTaken},
		"of another group":      {sync("h", "new", "grouped"), schedule.ErrTaken},
		"a name twice":          {sync("g", "x", "x"), schedule.ErrBadEntry},
		"no name":               {sync("g", "x", ""), schedule.ErrBadEntry},
		"no group":              {sync("", "x"), schedule.ErrBadEntry},
		"too many":              {sync("g", many(schedule.MaxChange+1)...), schedule.ErrBadEntry},
	} {
		if !errors.Is(c.got, c.want) {
			t.Errorf("%s: %v, want %v", what, c.got, c.want)
		}
	}
	count := 0
	for range s.List(t.Context()) {
		count++
	}
	if count != 2 {
		t.Errorf("there are %d entries, want 2", count)
	}
}

func many(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint(i)
	}
	return list
}

// TestSync shows the whole life of a group.
func TestSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := names(t, schedule.Config{})
		add(t, s, schedule.ByCron("* * * * * 0 0"), tell.Call("x"), schedule.WithName("alone"))
		sync := func(group string, revision int64, dry bool, want ...schedule.Definition) []string {
			t.Helper()
			got, err := s.Sync(t.Context(), group, revision, want, schedule.SyncOptions{DryRun: dry})
			if err != nil {
				t.Fatal(err)
			}
			list := []string{fmt.Sprintf("%d %v", got.Revision, got.Outdated)}
			for _, e := range got.Entries {
				if e.ID != schedule.NameID(e.Name) {
					t.Errorf("%q has the id %s", e.Name, e.ID)
				}
				list = append(list, fmt.Sprintf("%s %s %s", e.Name, e.Outcome, e.Next.UTC().Format("15:04")))
			}
			return list
		}
		at := func(name string, hour int, text string) schedule.Definition {
			return schedule.Definition{Name: name, At: schedule.ByCron(fmt.Sprintf("* * * * %d 0 0", hour)), Call: tell.Call(text)}
		}
		once := schedule.Definition{Name: "once", At: schedule.AtTime(time.Now().Add(time.Minute)), Call: tell.Call("once")}
		want := func(got []string, want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
		added := []string{"1 false", "a added 05:00", "b added 06:00", "once added 00:01"}
		want(sync("g", 1, true, at("a", 5, "x"), at("b", 6, "x"), once), added...)
		want(sync("g", 1, false, at("a", 5, "x"), at("b", 6, "x"), once), added...)
		want(sync("h", 9, false, at("c", 5, "x")), "9 false", "c added 05:00")
		want(sync("g", 1, false, at("a", 5, "x"), at("b", 6, "x"), once), "1 false", "a unchanged 05:00", "b unchanged 06:00", "once unchanged 00:01")
		want(sync("g", 3, false, at("a", 7, "x"), at("d", 8, "x")), "3 false", "a changed 07:00", "d added 08:00",
			"b removed 00:00", "once removed 00:00")
		want(sync("g", 2, false, at("a", 5, "x"), at("b", 6, "x")), "3 true")
		if err := s.Pause(t.Context(), schedule.NameID("a")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		want(sync("g", 3, false, at("a", 9, "y"), at("d", 8, "x"), once), "3 false", "a changed 00:00", "d unchanged 08:00", "once over 00:00")
		if next, err := s.Resume(t.Context(), schedule.NameID("a")); err != nil || next.UTC().Hour() != 9 {
			t.Errorf("the pause of a changed entry ends: %v, %v", next, err)
		}
		want(sync("g", 4, false), "4 false", "d removed 00:00", "a removed 00:00")
		left := map[string]bool{}
		for it := range s.List(t.Context()) {
			left[it.Content.Name+" of "+it.Group] = true
		}
		if diff := cmp.Diff(map[string]bool{"alone of ": true, "c of h": true}, left); diff != "" {
			t.Errorf("(-want +left):\n%s", diff)
		}
	})
}

// TestRuns shows that the last runs of an entry have their results, and that a change keeps them.
func TestRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		results := memresults.New(memresults.Config{})
		defer func() { _ = results.Close(context.Background()) }()
		store, s := names(t, schedule.Config{Results: results})
		add(t, s, schedule.ByCron("* * * * * */10 0"), tell.Call("x"), schedule.WithName("a"))
		l := listener(t, schedule.ListenerConfig{Store: store.View(), Results: results})
		if err := tell.Handle(l, func(_ context.Context, text string) (string, error) {
			if text == "fails" {
				return "", errors.New("broken")
			}
			return text, nil
		}); err != nil {
			t.Fatal(err)
		}
		stop := running(t, l)
		time.Sleep(45 * time.Minute)
		add(t, s, schedule.ByCron("* * * * * 55 0"), tell.Call("fails"), schedule.WithName("a"))
		time.Sleep(15 * time.Minute)
		stop()
		runs, err := s.Runs(t.Context(), schedule.NameID("a"))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range runs {
			if r.Task != schedule.TickID("names", schedule.NameID("a"), r.Due) || r.Record == nil {
				t.Fatalf("the run is %+v", r)
			}
			got = append(got, r.Due.UTC().Format("15:04 ")+string(r.Record.State))
		}
		if diff := cmp.Diff([]string{"00:55 failed", "00:40 succeeded", "00:30 succeeded", "00:20 succeeded", "00:10 succeeded"}, got); diff != "" {
			t.Errorf("(-want +runs):\n%s", diff)
		}
		it, err := s.Get(t.Context(), schedule.NameID("a"))
		if err != nil {
			t.Fatal(err)
		}
		if last, ok, err := s.LastRun(t.Context(), &it); err != nil || !ok || last.Record.Error.Message != "broken" {
			t.Errorf("the last run is %+v, %v, %v", last, ok, err)
		}
		if _, err := s.Runs(t.Context(), "nobody"); !errors.Is(err, schedule.ErrNotFound) {
			t.Errorf("runs of no entry: %v", err)
		}
	})
}

// slowStore is a store whose clock continues during each Change.
type slowStore struct {
	*memschedule.Store
	during func()
}

func (s *slowStore) Change(ctx context.Context, c schedule.Change) (schedule.Changed, error) {
	s.during()
	return s.Store.Change(ctx, c)
}

// TestSlowChange shows that a change ends although its due times pass while it is made, and that it
// repeats no tick.
func TestSlowChange(t *testing.T) {
	now, calls := time.Date(2026, 11, 20, 14, 50, 0, 0, time.UTC), 0
	store, err := memschedule.New(memschedule.Config{Name: "names", Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	slow := &slowStore{store, func() { now = now.Add(1100 * time.Millisecond); calls++; slowly(t) }}
	s := scheduled(t, schedule.Config{Store: slow})
	added := add(t, s, schedule.ByCron("* * * * * * *"), tell.Call("x"), schedule.WithName("a"))
	if !added.New || !added.Next.After(now) || calls < 2 {
		t.Errorf("%d calls up to %v: %+v", calls, now, added)
	}
}

// slowly waits for a millisecond of the process's clock.
func slowly(t testing.TB) {
	t.Helper()
	for began := time.Now(); time.Since(began) < time.Millisecond; {
		continue
	}
}

// racingStore changes an entry before it is resumed.
type racingStore struct {
	*memschedule.Store
	before func()
}

func (s *racingStore) Resume(ctx context.Context, id string, next time.Time) error {
	before := s.before
	s.before = func() {}
	before()
	return s.Store.Resume(ctx, id, next)
}

// TestResumeDuringAChange shows that an entry that is changed while it is resumed runs by its new
// spec only.
func TestResumeDuringAChange(t *testing.T) {
	store, s := names(t, schedule.Config{})
	added := add(t, s, schedule.ByCron("* * * * * 10 0"), tell.Call("x"), schedule.WithName("a"))
	if err := s.Pause(t.Context(), added.ID); err != nil {
		t.Fatal(err)
	}
	racing := &racingStore{store, func() {
		add(t, s, schedule.ByCron("* * * * * 20 0"), tell.Call("x"), schedule.WithName("a"))
	}}
	next, err := scheduled(t, schedule.Config{Store: racing}).Resume(t.Context(), added.ID)
	if err != nil || next.Minute() != 20 {
		t.Errorf("resumed for %v, %v", next, err)
	}
	if it, err := s.Get(t.Context(), added.ID); err != nil || it.Paused || !it.Next.Equal(next) {
		t.Errorf("the entry is %+v, %v", it.Entry, err)
	}
}

// TestMissedBeforeAChange shows that a missed tick runs after a change. Times of the new spec
// before the change do not run, and MisfireSkip still leaves the tick out.
func TestMissedBeforeAChange(t *testing.T) {
	for misfire, want := range map[schedule.Misfire][]string{
		schedule.MisfireOnce:   {"01:00", "03:31", "03:32"},
		schedule.MisfireAll(2): {"01:00", "03:31", "03:32"},
		schedule.MisfireSkip:   {"03:31", "03:32"},
	} {
		synctest.Test(t, func(t *testing.T) {
			store, s := names(t, schedule.Config{})
			add(t, s, schedule.ByCron("* * * * * 0 0"), tell.Call("old"), schedule.WithName("a"), schedule.WithMisfire(misfire))
			time.Sleep(3*time.Hour + 30*time.Minute)
			add(t, s, schedule.ByCron("* * * * * * 0"), tell.Call("new"), schedule.WithName("a"), schedule.WithMisfire(misfire))
			var got []string
			l := listener(t, schedule.ListenerConfig{Store: store.View(), Workers: 1})
			if err := tell.Handle(l, func(c context.Context, text string) (string, error) {
				q, _ := task.FromContext(c)
				if text != "new" {
					t.Errorf("the tick at %v ran with %q", q.SentAt, text)
				}
				got = append(got, q.SentAt.UTC().Format("15:04"))
				return "", nil
			}); err != nil {
				t.Fatal(err)
			}
			stop := running(t, l)
			time.Sleep(2*time.Minute + time.Second)
			stop()
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%q (-want +ran):\n%s", misfire, diff)
			}
		})
	}
}
