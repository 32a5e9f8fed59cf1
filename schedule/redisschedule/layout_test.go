package redisschedule_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/schedule/redisschedule"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/when"
)

// server is a schedule on the shared server, checked with plain commands.
type server struct {
	t    *testing.T
	srv  *testserver.Redis
	name string
}

func newServer(t *testing.T) *server {
	return &server{t, testserver.RequireRedis(t), testserver.Namespace()}
}

func (s *server) do(args ...any) any {
	s.t.Helper()
	v, err := s.srv.Do(context.Background(), args...)
	if err != nil && !errors.Is(err, redis.Nil) {
		s.t.Fatal(args, err)
	}
	return v
}

// plain runs a command inside a script, so that scores are returned as text.
func (s *server) plain(command, key string, args ...any) any {
	s.t.Helper()
	return s.do(append([]any{"EVAL", "return redis.call('" + command + "', KEYS[1], unpack(ARGV))", 1, key}, args...)...)
}

func (s *server) store(c redisschedule.Config) *redisschedule.Store {
	s.t.Helper()
	c.Redis, c.Name = options(s.srv, s.srv.Addr()), s.name
	return opened(s.t, c)
}

// listening runs a listener whose handlers count their arguments in runs.
func (s *server) listening(c schedule.ListenerConfig, names ...string) (runs func() map[string]int) {
	s.t.Helper()
	var mu sync.Mutex
	got := map[string]int{}
	c.Poll, c.Logger = 20*time.Millisecond, slog.New(slog.DiscardHandler)
	l, err := schedule.NewListener(c)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, name := range names {
		if err := task.New[any, any](name).Handle(l, func(_ context.Context, args any) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			got[fmt.Sprintf("%s %v", name, args)]++
			return nil, nil
		}); err != nil {
			s.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	})
	return func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(got)
	}
}

func (s *server) until(what string, cond func() bool) {
	s.t.Helper()
	for deadline := time.After(2 * time.Minute); !cond(); {
		select {
		case <-deadline:
			s.t.Fatalf("%s: not within 20 s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// TestPublishedLayout shows that entries are stored exactly as WorkKit published, key by key and
// byte by byte, and that no further keys are written.
// Promises: W11, W12, W14.
func TestPublishedLayout(t *testing.T) {
	s := newServer(t)
	store := s.store(redisschedule.Config{Clock: func() time.Time { return time.Date(2014, 2, 28, 12, 0, 0, 0, time.UTC) }})
	sched, err := schedule.New(schedule.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	added, err := sched.Add(t.Context(), schedule.ByCron("2014 3 * 0/2,3 9-17 * */5"), task.New[string, task.None]("#'clojure.core/println").Call("Beep!"))
	if err != nil {
		t.Fatal(err)
	}
	const id = "8d1ea67747842d56fd5c06ba050885226d73bead"
	if added.ID != id {
		t.Errorf("the id is %s", added.ID)
	}
	want := []any{id, `{"args":["Beep!"],"cron":"2014 3 * 0/2,3 9-17 * */5","job":"#'clojure.core/println"}`}
	if diff := cmp.Diff(want, s.plain("HGETALL", s.name+":jobs")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]any{`{"id":"` + id + `"}`, "1394010000000"}, s.plain("ZRANGE", s.name+":next", 0, -1, "WITHSCORES")); diff != "" {
		t.Error(diff)
	}
	if n := s.do("EXISTS", s.name+":swarmiji"); n != int64(0) {
		t.Error("the hash of our own was made although nothing is in it")
	}
	if keys := s.do("KEYS", s.name+"*").([]any); len(keys) != 2 {
		t.Errorf("keys: %v", keys)
	}
}

// TestEntriesOfOthers shows that entries of other programs run in any form of JSON. After a run
// their members have their own form again (W33).
func TestEntriesOfOthers(t *testing.T) {
	s := newServer(t)
	store := s.store(redisschedule.Config{})
	now := time.Now().UnixMilli()
	for i, e := range []struct{ id, member, payload string }{
		{"aaaa", `{"id":"aaaa"}`, `{"job":"a\/b","args":[1,2],"cron":"2020 1 1 * 0 0 0"}`},
		{"bbbb", `{ "id" : "bbbb" }`, `{ "cron" : "2020 1 1 * 0 0 0", "args" : [ "x\u00e9" ] , "job" : "b" }`},
		{"cccc", `{"more":[1],"id":"cccc"}`, `{"args":[],"cron":"2020 1 1 * 0 0 0","job":"c","added-by":{"host":"x"},"nonce":7,"meta":"x","misfire":"never","spec":[]}`},
		{"not a hash", `{"id":"not a hash"}`, `{"args":[{"k":null}],"cron":"2020 1 1 * 0 0 0","job":"d"}`},
		{"eeee", `{"id":"eeee"}`, `{"args":["again"],"cron":"* * * * 0 0 0","job":"e"}`},
	} {
		s.do("HSET", s.name+":jobs", e.id, e.payload)
		s.do("ZADD", s.name+":next", strconv.FormatInt(now-1000+int64(i), 10)+".5", e.member)
	}
	runs := s.listening(schedule.ListenerConfig{Store: store}, "a/b", "b", "c", "d", "e")
	want := map[string]int{"a/b [1 2]": 1, "b xé": 1, "c <nil>": 1, "d map[k:<nil>]": 1, "e again": 1}
	s.until("all of them to run", func() bool { return len(runs()) == len(want) })
	s.until("the one-shots to go", func() bool { return s.do("HLEN", s.name+":jobs") == int64(1) })
	if diff := cmp.Diff(want, runs()); diff != "" {
		t.Error(diff)
	}
	s.until("the claims to go", func() bool { return s.do("ZCARD", s.name+":next") == int64(1) })
	left := s.plain("ZRANGE", s.name+":next", 0, -1, "WITHSCORES").([]any)
	score, err := strconv.ParseInt(left[1].(string), 10, 64)
	if left[0] != `{"id":"eeee"}` || err != nil || score%86_400_000 != 0 || score <= now {
		t.Errorf("at rest there is %v", left)
	}
}

// TestMembersOfNothing shows that members without an entry are dropped and reported, while others
// run (W34). A broken payload is kept; it is postponed, unless it is not JSON (W35).
func TestMembersOfNothing(t *testing.T) {
	s := newServer(t)
	var mu sync.Mutex
	var dropped []string
	store := s.store(redisschedule.Config{OnDrop: func(m string) {
		mu.Lock()
		defer mu.Unlock()
		dropped = append(dropped, m)
	}})
	bad := []string{`no JSON`, `7`, `{"id":7}`, `["id"]`, `{"id":"ffff"}`, ""}
	for _, m := range bad {
		s.do("ZADD", s.name+":next", 1000, m)
	}
	for id, payload := range map[string]string{"1111": `{"args":[]}`, "2222": `no JSON`, "3333": `{"args":[],"cron":"* * * * * *","job":"x"}`} {
		s.do("HSET", s.name+":jobs", id, payload)
		s.do("ZADD", s.name+":next", "-inf", `{"id":"`+id+`"}`)
	}
	now := time.Now().UnixMilli()
	s.do("HSET", s.name+":jobs", "4444", `{"args":[],"cron":"2020 1 1 * 0 0 0","job":"x"}`)
	s.do("ZADD", s.name+":next", 2000, `{"id":"4444"}`)
	runs := s.listening(schedule.ListenerConfig{Store: store}, "x")
	s.until("the good one to run", func() bool { return runs()["x <nil>"] == 1 })
	s.until("the others to be out of the way", func() bool {
		return s.do("ZCARD", s.name+":next") == int64(2) && s.do("ZCOUNT", s.name+":next", now+time.Minute.Milliseconds(), "+inf") == int64(2)
	})
	s.until("the good one to go", func() bool { return s.do("HLEN", s.name+":jobs") == int64(3) })
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(bad)
	slices.Sort(dropped)
	if diff := cmp.Diff(bad, dropped); diff != "" {
		t.Error(diff)
	}
}

// TestMembersAtRestAndHeld shows that a claim is a second member that names its tick, and that
// other programs can read it as an entry.
// Promises: W14.
func TestMembersAtRestAndHeld(t *testing.T) {
	s := newServer(t)
	store := s.store(redisschedule.Config{})
	payload := []byte(`{"args":[],"cron":"* * * * 0 0 0","job":"x"}`)
	id := schedule.ID(payload)
	next := time.Now().Truncate(time.Second)
	if _, err := store.Add(t.Context(), []schedule.Entry{{ID: id, Payload: payload, Next: next}}); err != nil {
		t.Fatal(err)
	}
	b, err := store.Due(t.Context(), 1)
	if err != nil || len(b.Ticks) != 1 {
		t.Fatal(b, err)
	}
	later := next.Add(time.Hour)
	if won, err := store.Claim(t.Context(), "me", time.Minute, []schedule.Claim{{Tick: b.Ticks[0], Next: later}}); err != nil || !won[0] {
		t.Fatal(won, err)
	}
	got := s.do("ZRANGE", s.name+":next", 0, -1).([]any)
	want := []any{fmt.Sprintf(`{"id":"%s","due":%d,"by":"me"}`, id, next.UnixMilli()), `{"id":"` + id + `"}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if score := s.plain("ZSCORE", s.name+":next", want[1]); score != strconv.FormatInt(later.UnixMilli(), 10) {
		t.Errorf("the score is %v", score)
	}
}

// TestZones shows that entries whose times seven cron fields in UTC cannot express are stored in
// separate keys, and not in the published ones.
func TestZones(t *testing.T) {
	s := newServer(t)
	store := s.store(redisschedule.Config{})
	sched, err := schedule.New(schedule.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	spec, err := when.Parse("CRON_TZ=Asia/Tokyo * * * * * * *")
	if err != nil {
		t.Fatal(err)
	}
	published := func(what string) {
		t.Helper()
		if s.do("EXISTS", s.name+":jobs", s.name+":next") != int64(0) {
			t.Errorf("%s: the published keys hold %v, %v", what, s.do("HGETALL", s.name+":jobs"), s.do("ZRANGE", s.name+":next", 0, -1))
		}
	}
	added, err := sched.Add(t.Context(), schedule.BySpec(spec), task.Call{Name: "x", Args: "each second"})
	if err != nil || !added.New {
		t.Fatal(added, err)
	}
	published("an entry was added")
	seen := 0
	for it, err := range sched.List(t.Context()) {
		if seen++; err != nil || it.ID != added.ID || it.Spec == nil || !it.Next.Equal(added.Next) {
			t.Errorf("%+v, %v", it, err)
		}
	}
	if seen != 1 {
		t.Errorf("%d entries are listed", seen)
	}
	runs := s.listening(schedule.ListenerConfig{Store: store}, "x")
	s.until("it to run three times", func() bool { return runs()["x each second"] >= 3 })
	published("it runs")
	if err := sched.Pause(t.Context(), added.ID); err != nil {
		t.Fatal(err)
	}
	s.until("its claims to end", func() bool { return s.do("EXISTS", s.name+":swarmiji:next") == int64(0) })
	if next, err := sched.Resume(t.Context(), added.ID); err != nil || next.IsZero() {
		t.Error(next, err)
	}
	published("it was paused")
	utc, err := when.ParseCron5("0 9 * * *", nil)
	if err != nil {
		t.Fatal(err)
	}
	if added, err := sched.Add(t.Context(), schedule.BySpec(utc), task.Call{Name: "x"}); err != nil || added.Next.Hour() != 9 {
		t.Errorf("five fields in UTC: %+v, %v", added, err)
	}
	if n := s.do("HLEN", s.name+":jobs"); n != int64(1) {
		t.Errorf("an entry in UTC lies elsewhere: %v", n)
	}
	if was, err := sched.Remove(t.Context(), added.ID); err != nil || !was {
		t.Error(was, err)
	}
	if n := s.do("EXISTS", s.name+":swarmiji:jobs"); n != int64(0) {
		t.Error("something is left of an entry that was removed")
	}
}

// TestLostByOthers shows that an entry gets a due time again after an old listener took it and
// died.
func TestLostByOthers(t *testing.T) {
	s := newServer(t)
	store := s.store(redisschedule.Config{})
	s.do("HSET", s.name+":jobs", "aaaa", `{"args":[1],"cron":"2020 1 1 * 0 0 0","job":"x"}`)
	s.do("HSET", s.name+":jobs", "bbbb", `{"args":[2],"cron":"* * * * 0 0 0","job":"x"}`)
	s.do("HSET", s.name+":jobs", "cccc", `{"args":[3],"cron":"2020 1 1 * 0 0 0","job":"unknown here"}`)
	runs := s.listening(schedule.ListenerConfig{Store: store, Sweep: 20 * time.Millisecond, Grace: 100 * time.Millisecond}, "x")
	s.until("the one-shot to run", func() bool { return runs()["x 1"] == 1 })
	s.until("the recurring one to have a time", func() bool { return s.do("ZSCORE", s.name+":next", `{"id":"bbbb"}`) != nil })
	s.until("the one-shot to go", func() bool { return s.do("HLEN", s.name+":jobs") == int64(2) })
	if s.do("ZSCORE", s.name+":next", `{"id":"cccc"}`) != nil {
		t.Error("an entry that this listener cannot run was given a time")
	}
}

func TestNew(t *testing.T) {
	o := &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1", "127.0.0.1:2"}}
	if _, err := redisschedule.New(redisschedule.Config{Redis: o, Name: "app-tasks"}); !errors.Is(err, schedule.ErrUnsupported) {
		t.Errorf("a name without a tag on a cluster: %v", err)
	}
	if _, err := redisschedule.New(redisschedule.Config{Name: "a\x00b"}); err == nil || !errors.Is(err, schedule.ErrBadEntry) {
		t.Errorf("%v", err)
	}
	s, err := redisschedule.New(redisschedule.Config{Redis: o, Name: "{app-tasks}"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestCluster shows that all keys are in the slot of the name's hash tag.
func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: a single server only")
	}
	t.Parallel()
	srv := testserver.OwnRedisCluster(t, testserver.RedisConfig{})
	name := "{" + testserver.Namespace() + "}"
	store := opened(t, redisschedule.Config{Name: name, Redis: &redis.UniversalOptions{Addrs: srv.Addrs(), Username: srv.User(), Password: srv.Password()}})
	sched, err := schedule.New(schedule.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, name: name}
	runs := s.listening(schedule.ListenerConfig{Store: store}, "x")
	added, err := sched.Add(t.Context(), schedule.ByCron("* * * * 0 0 0"), task.Call{Name: "x", Args: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sched.RunNow(t.Context(), added.ID); err != nil {
		t.Fatal(err)
	}
	s.until("the run", func() bool { return runs()["x 1"] == 1 })
	if err := sched.Pause(t.Context(), added.ID); err != nil {
		t.Fatal(err)
	}
	if astray, err := store.Unscheduled(t.Context()); err != nil || len(astray) > 0 {
		t.Error(astray, err)
	}
	seen := 0
	for it, err := range sched.List(t.Context()) {
		if seen++; err != nil || it.ID == added.ID && !it.Paused {
			t.Errorf("%+v, %v", it, err)
		}
	}
	if next, err := sched.Resume(t.Context(), added.ID); err != nil || !next.Equal(added.Next) || seen == 0 {
		t.Error(next, err, seen)
	}
}

// TestRemovedWhileRun shows that the claim on an entry that is removed during its run ends with the
// run, in both layouts.
func TestRemovedWhileRun(t *testing.T) {
	s := newServer(t)
	store := s.store(redisschedule.Config{})
	for _, payload := range []string{
		`{"args":[],"cron":"* * * * * * *","job":"x"}`,
		`{"args":[],"job":"x","spec":"CRON_TZ=Asia/Tokyo * * * * * * *"}`,
	} {
		e := schedule.Entry{ID: schedule.ID([]byte(payload)), Payload: []byte(payload), Next: time.Now().Add(-time.Second)}
		if _, err := store.Add(t.Context(), []schedule.Entry{e}); err != nil {
			t.Fatal(err)
		}
		b, err := store.Due(t.Context(), 10)
		if err != nil || len(b.Ticks) != 1 {
			t.Fatalf("%+v, %v", b, err)
		}
		k := b.Ticks[0]
		if won, err := store.Claim(t.Context(), "a", time.Minute, []schedule.Claim{{Tick: k, Next: time.Now().Add(time.Hour)}}); err != nil || !won[0] {
			t.Fatal(won, err)
		}
		if there, err := store.Remove(t.Context(), e.ID); err != nil || !there {
			t.Fatal(there, err)
		}
		if held, err := store.Done(t.Context(), "a", []schedule.Finish{{Tick: k}}); err != nil || !held[0] {
			t.Errorf("%s: Done says %v, %v", payload, held, err)
		}
		for _, key := range []string{s.name + ":next", s.name + ":swarmiji:next"} {
			if n := s.do("ZCARD", key); n != int64(0) {
				t.Errorf("%s: %s keeps %v members", payload, key, n)
			}
		}
	}
}
