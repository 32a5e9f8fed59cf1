package schedule_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/schedule/memschedule"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/when"
)

func memory(t testing.TB) *memschedule.Store {
	t.Helper()
	s, err := memschedule.New(memschedule.Config{Name: "app-tasks"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func scheduled(t testing.TB, c schedule.Config) *schedule.Schedule {
	t.Helper()
	s, err := schedule.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func add(t testing.TB, s *schedule.Schedule, when schedule.When, call task.Call, opts ...schedule.Option) schedule.Added {
	t.Helper()
	added, err := s.Add(t.Context(), when, call, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return added
}

func payload(t testing.TB, s *schedule.Schedule, id string) string {
	t.Helper()
	it, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return string(it.Payload)
}

// TestPublishedBytes shows that entries have byte for byte the form that WorkKit published.
func TestPublishedBytes(t *testing.T) {
	const (
		cron  = "2014 3 * 0/2,3 9-17 * */5"
		bytes = `{"args":["Beep!"],"cron":"2014 3 * 0/2,3 9-17 * */5","job":"#'clojure.core/println"}`
		id    = "8d1ea67747842d56fd5c06ba050885226d73bead"
	)
	store, err := memschedule.New(memschedule.Config{Now: func() time.Time { return time.Date(2014, 2, 28, 12, 0, 0, 0, time.UTC) }})
	if err != nil {
		t.Fatal(err)
	}
	s := scheduled(t, schedule.Config{Store: store})
	one := task.New[string, task.None]("#'clojure.core/println")
	list := task.New[[]string, task.None]("#'clojure.core/println")
	for i, call := range []task.Call{one.Call("Beep!"), list.Call([]string{"Beep!"}), {Name: one.Name(), Args: json.RawMessage(` "Beep!"`)}} {
		added := add(t, s, schedule.ByCron(cron), call)
		if added.ID != id || added.New != (i == 0) || payload(t, s, id) != bytes {
			t.Errorf("%d: id %s, new %v, bytes %s", i, added.ID, added.New, payload(t, s, id))
		}
		if added.Next.UnixMilli() != 1394010000000 {
			t.Errorf("next is %v", added.Next)
		}
	}
	escaping := scheduled(t, schedule.Config{Store: store, EscapeSlashes: true})
	added := add(t, escaping, schedule.ByCron(cron), one.Call("a/b"))
	if got := payload(t, s, added.ID); got != `{"args":["a\/b"],"cron":"2014 3 * 0\/2,3 9-17 * *\/5","job":"#'clojure.core\/println"}` {
		t.Errorf("with escapes: %s", got)
	}
	again, err := escaping.RunNow(t.Context(), added.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got := payload(t, s, again.ID); !strings.Contains(got, `"args":["a\/b"]`) || strings.Contains(got, `\\/`) {
		t.Errorf("an escaped copy: %s", got)
	}
}

// TestArguments shows that a handler gets the arguments that were added. A list with one argument
// becomes this argument (W7).
func TestArguments(t *testing.T) {
	type point struct{ X, Y int64 }
	synctest.Test(t, func(t *testing.T) {
		roundTrip(t, "none", task.None{}, `[]`)
		roundTrip(t, "null", (*int)(nil), `[null]`)
		roundTrip(t, "bool", true, `[true]`)
		roundTrip(t, "int64", int64(9007199254740993), `[9007199254740993]`)
		roundTrip(t, "float", 0.1, `[0.1]`)
		roundTrip(t, "text", `<a href="x/y">&é`, `["<a href=\"x/y\">&é"]`)
		roundTrip(t, "list", []int{1, 2, 3}, `[1,2,3]`)
		roundTrip(t, "list of one", []int{1}, `[1]`)
		roundTrip(t, "array", [2]string{"a", "b"}, `["a","b"]`)
		roundTrip(t, "empty list", []int{}, `[]`)
		roundTrip(t, "list of lists", [][]int{{1, 2}}, `[[1,2]]`)
		roundTrip(t, "bytes", []byte{0, 255}, `["AP8="]`)
		roundTrip(t, "time", time.Unix(0, 0).UTC(), `["1970-01-01T00:00:00Z"]`)
		roundTrip(t, "struct", point{1, 2}, `[{"X":1,"Y":2}]`)
		roundTrip(t, "map", map[string]any{"b": int64(1), "a": []any{nil, 1.5}}, `[{"a":[null,1.5],"b":1}]`)
		roundTrip[any](t, "anything", int64(9007199254740993), `[9007199254740993]`)
		roundTrip[any](t, "any list", []any{int64(1), "x"}, `[1,"x"]`)
	})
}

func roundTrip[A any](t *testing.T, name string, args A, want string) {
	t.Helper()
	store := memory(t)
	s := scheduled(t, schedule.Config{Store: store})
	def := task.New[A, task.None](name)
	added := add(t, s, schedule.Now(), def.Call(args))
	if it, err := s.Get(t.Context(), added.ID); err != nil || string(it.Content.Args) != want {
		t.Errorf("%s: %s, %v; want %s", name, it.Content.Args, err, want)
	}
	got := make(chan A, 1)
	l := listener(t, schedule.ListenerConfig{Store: store})
	if err := def.Handle(l, func(_ ctx, a A) (task.None, error) { got <- a; return task.None{}, nil }); err != nil {
		t.Fatal(err)
	}
	stop := running(t, l)
	if diff := cmp.Diff(args, <-got); diff != "" {
		t.Errorf("%s (-added +run):\n%s", name, diff)
	}
	stop()
	if st := l.Stats(); st.Ran != 1 || st.Failed != 0 {
		t.Errorf("%s: %+v", name, st)
	}
}

// TestWhatCannotBeScheduled shows that Add refuses invalid calls and times, and stores nothing.
// Promises: W8, W16.
func TestWhatCannotBeScheduled(t *testing.T) {
	s := scheduled(t, schedule.Config{Store: memory(t)})
	x := task.New[any, task.None]("x")
	for name, c := range map[string]struct {
		when schedule.When
		call task.Call
		opts []schedule.Option
		want error
	}{
		"a closure":           {schedule.Now(), x.Call(func() {}), nil, task.ErrBadArgs},
		"no name":             {schedule.Now(), task.Call{}, nil, schedule.ErrBadEntry},
		"an id":               {schedule.Now(), x.Call(1, task.WithID("a")), nil, schedule.ErrUnsupported},
		"successors":          {schedule.Now(), task.Call{Name: "x", Then: []task.Link{{}}}, nil, schedule.ErrUnsupported},
		"unique":              {schedule.Now(), task.New[int, int]("x", task.WithUnique("k", time.Hour)).Call(1), nil, schedule.ErrUnsupported},
		"conditions":          {schedule.Now(), task.New[int, int]("x", task.WithUniqueKey("k")).Call(1), nil, schedule.ErrUnsupported},
		"a delay":             {schedule.Now(), x.Call(1, task.WithDelay(time.Minute)), nil, schedule.ErrUnsupported},
		"bad metadata":        {schedule.Now(), x.Call(1, task.WithQueue("a b")), nil, task.ErrBadName},
		"30 February":         {schedule.ByCron("* 2 30 * 0 0 0"), x.Call(1), nil, when.ErrBadSpec},
		"a time that is over": {schedule.AtTime(time.Now().Add(-time.Minute)), x.Call(1), nil, when.ErrBadSpec},
		"a negative time":     {schedule.After(-time.Second), x.Call(1), nil, when.ErrBadSpec},
		"no when":             {schedule.When{}, x.Call(1), nil, when.ErrBadSpec},
		"five fields":         {schedule.ByCron("0 9 * * *"), x.Call(1), nil, when.ErrBadSpec},
		"overlap alone":       {schedule.Now(), x.Call(1), []schedule.Option{schedule.WithOverlap(schedule.OverlapSkip)}, schedule.ErrUnsupported},
		"a strange policy":    {schedule.Now(), x.Call(1), []schedule.Option{schedule.WithMisfire("twice")}, schedule.ErrBadEntry},
		"all of too many":     {schedule.Now(), x.Call(1), []schedule.Option{schedule.WithMisfire(schedule.MisfireAll(1001))}, schedule.ErrBadEntry},
	} {
		if _, err := s.Add(t.Context(), c.when, c.call, c.opts...); !errors.Is(err, c.want) {
			t.Errorf("%s: got error %v, want one that is %v", name, err, c.want)
		}
	}
	for it, err := range s.List(t.Context()) {
		t.Errorf("something was written: %+v, %v", it, err)
	}
}

// TestContentOfOthers shows that Decode accepts any valid form of JSON, with additional fields.
func TestContentOfOthers(t *testing.T) {
	c, err := schedule.Decode([]byte(" {\"job\" :\t\"a\\/b\", \"x\":{\"y\":[1]},\n\"args\":[ 1 , \"\\u00e9\" ],\"cron\":\"* * * * * * *\\/5\"} "))
	if err != nil || c.Job != "a/b" || c.When != "* * * * * * */5" || c.Zoned {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := schedule.Decode([]byte(`{"job":"a","cron":"* * * * * * *"}`)); err != nil || string(c.Args) != "[]" {
		t.Errorf("without args: %+v, %v", c, err)
	}
	for _, bad := range []string{
		``, `1`, `[]`, `null`, `{`, `{"job":"a","args":[]}`, `{"cron":"* * * * * * *","args":[]}`, `{"job":1,"cron":"* * * * * * *","args":[]}`,
		`{"job":"a","cron":7,"args":[]}`, `{"job":"a","cron":"* * * * * * *","args":{}}`, `{"job":"","cron":"* * * * * * *","args":[]}`,
		`{"job":"a","cron":"* * * * * * *","args":[],"swarmiji":{"misfire":"never"}}`, `{"job":"a","cron":"* * * * * * *","args":[],"swarmiji":{"meta":{"priority":"x"}}}`,
	} {
		if c, err := schedule.Decode([]byte(bad)); !errors.Is(err, schedule.ErrBadEntry) {
			t.Errorf("%s: %+v, %v", bad, c, err)
		}
	}
}

// TestMetadataTravel shows that an entry stores the metadata of the call, but not those of the
// task's definition.
func TestMetadataTravel(t *testing.T) {
	s := scheduled(t, schedule.Config{Store: memory(t)})
	x := task.New[int, task.None]("x", task.WithMaxRetries(7))
	call := x.Call(1, task.WithQueue("q"), task.WithPriority(0), task.WithFairnessKey("k"), task.WithFairnessWeight(2), task.WithTimeLimit(1500*time.Millisecond), task.WithIgnoreResult(false), task.WithCorrelation("c"))
	added := add(t, s, schedule.ByCron("* * * * 0 0 0"), call, schedule.WithMisfire(schedule.MisfireAll(3)), schedule.WithNonce("n"))
	const want = `{"args":[1],"cron":"* * * * 0 0 0","job":"x","swarmiji":{"correlation":"c","meta":{"fairness_key":"k","fairness_weight":2,"ignore_result":false,"priority":0,"queue":"q","time_limit":1500},"misfire":"all 3","nonce":"n"}}`
	if got := payload(t, s, added.ID); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	it, err := s.Get(t.Context(), added.ID)
	if err != nil {
		t.Fatal(err)
	}
	if it.Content.Meta != call.Meta {
		t.Errorf("read back: %+v, want %+v", it.Content.Meta, call.Meta)
	}
}
