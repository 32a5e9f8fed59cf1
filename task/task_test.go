package task_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/task"
)

// Promises: S13.
func TestMergeTakesTheHighestLayerThatIsSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		layers := make([]task.Metadata, rapid.IntRange(0, 5).Draw(t, "layers"))
		wantRetries, wantIgnore := task.Opt[int]{}, task.Opt[bool]{}
		for i := range layers {
			if rapid.Bool().Draw(t, "set retries") {
				wantRetries = task.Set(rapid.IntRange(-1, 2).Draw(t, "retries"))
				layers[i].MaxRetries = wantRetries
			}
			if rapid.Bool().Draw(t, "set ignore") {
				wantIgnore = task.Set(rapid.Bool().Draw(t, "ignore"))
				layers[i].IgnoreResult = wantIgnore
			}
		}
		got := task.Merge(layers...)
		if got.MaxRetries != wantRetries || got.IgnoreResult != wantIgnore {
			t.Fatalf("merged %+v, want retries %v, ignore %v", got, wantRetries, wantIgnore)
		}
	})
}

// TestMetadataIsZeroKnowsAllKeys fails if a key of Metadata is missing in IsZero.
func TestMetadataIsZeroKnowsAllKeys(t *testing.T) {
	all := reflect.ValueOf(task.Metadata{
		Queue: task.Set(""), MaxRetries: task.Set(0), RetryDelay: task.Set[time.Duration](0), Retry: task.Set(""), RateLimit: task.Set(""),
		TimeLimit: task.Set[time.Duration](0), SoftTimeLimit: task.Set[time.Duration](0), IgnoreResult: task.Set(false),
		Idempotent: task.Set(false), DeadLetter: task.Set(false), Serializer: task.Set(""), Compression: task.Set(""), ResultStore: task.Set(""),
		ResultTTL: task.Set[time.Duration](0), Priority: task.Set(0), FairnessKey: task.Set(""), FairnessWeight: task.Set(0), NotBefore: task.Set(time.Time{}), Expires: task.Set(time.Time{}),
	})
	var m task.Metadata
	if !m.IsZero() {
		t.Error("metadata that set nothing are not zero")
	}
	for i := range all.NumField() {
		name := all.Type().Field(i).Name
		if all.Field(i).IsZero() {
			t.Errorf("this test does not set %s", name)
		}
		one := task.Metadata{}
		reflect.ValueOf(&one).Elem().Field(i).Set(all.Field(i))
		if one.IsZero() {
			t.Errorf("metadata that set %s to its zero value are zero", name)
		}
	}
}

// TestOverlayKnowsEveryKey fails if a key of Metadata is missing in Overlay.
func TestOverlayKnowsEveryKey(t *testing.T) {
	full := task.Metadata{
		Queue: task.Set("q"), MaxRetries: task.Set(1), RetryDelay: task.Set(time.Second), RateLimit: task.Set("1/s"),
		TimeLimit: task.Set(time.Second), SoftTimeLimit: task.Set(time.Second), IgnoreResult: task.Set(true),
		Idempotent: task.Set(false), DeadLetter: task.Set(false), Serializer: task.Set("s"), Compression: task.Set("z"), ResultStore: task.Set("r"), ResultTTL: task.Set(time.Hour),
		Priority: task.Set(5), FairnessKey: task.Set("k"), FairnessWeight: task.Set(3), NotBefore: task.Set(time.Unix(1, 0)), Expires: task.Set(time.Unix(2, 0)),
	}
	var m task.Metadata
	m.Overlay(&full)
	if m != full {
		t.Fatalf("overlay over nothing gave %+v", m)
	}
	m.Overlay(&task.Metadata{})
	if m != full {
		t.Fatalf("an empty layer changed %+v", m)
	}
	if full.IsZero() || !new(task.Metadata).IsZero() {
		t.Fatal("IsZero is wrong")
	}
}

func TestMetadataCheckNamesEveryProblem(t *testing.T) {
	m := task.Metadata{
		Queue: task.Set("a b"), Priority: task.Set(-1), TimeLimit: task.Set(-time.Second), RateLimit: task.Set("fast"),
		FairnessKey: task.Set("a\nb"), FairnessWeight: task.Set(101),
		NotBefore: task.Set(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)), Expires: task.Set(time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)),
	}
	err := m.Check()
	if !errors.Is(err, task.ErrBadMetadata) || !errors.Is(err, task.ErrBadName) {
		t.Fatal(err)
	}
	for _, key := range []string{"queue", "priority", "time_limit", "rate_limit", "fairness_key", "fairness_weight", "not_before", "expires"} {
		if !strings.Contains(err.Error(), key) {
			t.Errorf("%s is missing in %q", key, err)
		}
	}
	ok := task.Metadata{Priority: task.Set(0), TimeLimit: task.Set(time.Duration(0)), RateLimit: task.Set(""), NotBefore: task.Set(time.Time{})}
	if err := ok.Check(); err != nil {
		t.Fatalf("explicit zeros are refused: %v", err)
	}
	for _, weight := range []int{-1, 0, task.MaxFairnessWeight + 1} {
		if err := (&task.Metadata{FairnessWeight: task.Set(weight)}).Check(); !errors.Is(err, task.ErrBadMetadata) {
			t.Errorf("the weight %d: %v", weight, err)
		}
	}
}

func TestParseRate(t *testing.T) {
	for s, want := range map[string]time.Duration{"10/s": time.Second, "1/m": time.Minute, "3600/h": time.Hour} {
		if n, per, err := task.ParseRate(s); err != nil || n == 0 || per != want {
			t.Errorf("%q: %d per %s, %v", s, n, per, err)
		}
	}
	for _, s := range []string{"10", "/s", "0/s", "-1/s", "10/d", "10/s/s", "1e3/s", " 1/s"} {
		if _, _, err := task.ParseRate(s); !errors.Is(err, task.ErrBadMetadata) {
			t.Errorf("%q is taken: %v", s, err)
		}
	}
}

func TestDerivedIDs(t *testing.T) {
	a, b := task.Derive("parent", "then0"), task.Derive("parent", "then1")
	if a == b || a != task.Derive("parent", "then0") || task.Derive("parentt", "hen0") == a {
		t.Fatal("derived ids must depend on parent and label, on the border between them, and on nothing else")
	}
	if len(a) != 36 || a[14] != '8' || a.Check() != nil {
		t.Fatalf("%q has not the shape of a UUID of version 8", a)
	}
}

func TestRemoteErrors(t *testing.T) {
	wrapped := fmt.Errorf("outer: %w", task.ErrTimeLimit)
	r := task.Remote(wrapped)
	if !errors.Is(r, task.ErrTimeLimit) || errors.Is(r, task.ErrPanic) || r.Message != wrapped.Error() {
		t.Fatalf("%+v", r)
	}
	if again := task.Remote(fmt.Errorf("once more: %w", r)); again != r {
		t.Fatalf("a remote error was remade: %+v", again)
	}
	if r := task.Remote(fmt.Errorf("open: %w", &fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist})); r.Type != "errors.errorString" {
		t.Fatalf("type of the innermost error is %q", r.Type)
	}
	if task.Remote(nil) != nil {
		t.Fatal("nil became an error")
	}
}

func TestDescribeLeavesSecretsOut(t *testing.T) {
	type inner struct {
		Token string `task:"secret"`
		N     int
	}
	type outer struct {
		In   *inner
		List []inner
		Any  any
		Map  map[string]inner
	}
	v := outer{In: &inner{"s3cret", 1}, List: []inner{{"s3cret", 2}}, Any: inner{"s3cret", 3}, Map: map[string]inner{"k": {"s3cret", 4}}}
	text := task.Describe(v, 1000)
	if strings.Contains(text, "s3cret") || strings.Count(text, "[redacted]") != 4 || !strings.Contains(text, "N:3") {
		t.Fatal(text)
	}
	if got := task.Describe("plain", 100); got != "plain" {
		t.Fatal(got)
	}
	type loop struct {
		Next *loop
		Key  string `task:"secret"`
	}
	l := &loop{Key: "s3cret"}
	l.Next = l
	if text := task.Describe(l, 10_000); strings.Contains(text, "s3cret") {
		t.Fatal(text)
	}
}

type recorder struct{ call task.Call }

func (s *recorder) Submit(_ context.Context, c task.Call) (task.Pending, error) {
	s.call = c
	return nil, errors.New("refused")
}

func TestCallLaysOptionsOverTheDefinition(t *testing.T) {
	base := task.New[int, int]("t", task.WithMaxRetries(7), task.WithHeader("a", "1"), task.WithID("not kept"))
	derived := base.With(task.WithHeader("b", "2"), task.WithMaxRetries(8))
	s := &recorder{}
	if _, err := derived.Submit(t.Context(), s, 5, task.WithHeader("c", "3"), task.WithQueue("q")); err == nil {
		t.Fatal("the submitter's error is lost")
	}
	c := s.call
	if c.Name != "t" || c.ID != "" || c.Args != 5 || c.Definition.MaxRetries.Or(0) != 8 || c.Meta.Queue.Or("") != "q" || c.Meta.MaxRetries.IsSet() {
		t.Fatalf("%+v", c)
	}
	if diff := cmp.Diff(map[string]string{"a": "1", "b": "2", "c": "3"}, c.Headers); diff != "" {
		t.Fatal(diff)
	}
	if diff := cmp.Diff(map[string]string{"a": "1"}, base.Call(1).Headers); diff != "" {
		t.Fatalf("the definition was changed by a call: %s", diff)
	}
}

// TestHandleWithoutFunction: a nil function is refused before the first task comes.
func TestHandleWithoutFunction(t *testing.T) {
	t.Parallel()
	var m task.Mux
	err := task.New[int, int]("mail.send").Handle(&m, nil)
	if err == nil || !strings.Contains(err.Error(), `the handler of task "mail.send" is nil`) {
		t.Errorf("got %v", err)
	}
	if _, _, ok := m.Lookup("mail.send"); ok {
		t.Error("a handler is registered")
	}
}

// Promises: S10.
func TestMux(t *testing.T) {
	var m task.Mux
	h := task.HandlerFunc(func(context.Context, *task.Request) (any, error) { return 1, nil })
	if err := m.Register("www-prod/SendEmail", h, task.Metadata{}); err != nil {
		t.Fatal(err)
	}
	if err := m.Register("www-prod/SendEmail", h, task.Metadata{}); !errors.Is(err, task.ErrDuplicateTask) {
		t.Fatal(err)
	}
	for _, name := range []string{"", "a\nb", strings.Repeat("x", 256)} {
		if err := m.Register(name, h, task.Metadata{}); !errors.Is(err, task.ErrBadName) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := m.Register("nil", nil, task.Metadata{}); err == nil {
		t.Error("a nil handler is taken")
	}
	if err := m.Register("bad", h, task.Metadata{Priority: task.Set(-1)}); !errors.Is(err, task.ErrBadMetadata) {
		t.Error(err)
	}
	if _, _, ok := m.Lookup("www-prod/SendEmail"); !ok {
		t.Error("a registered handler is not found")
	}
	if diff := cmp.Diff([]string{"www-prod/SendEmail"}, m.Names()); diff != "" {
		t.Error(diff)
	}
}

// Promises: S71.
func TestHandleWrapsTheFirstOutermost(t *testing.T) {
	var order []string
	wrap := func(name string) func(task.Handler) task.Handler {
		return func(next task.Handler) task.Handler {
			return task.HandlerFunc(func(ctx context.Context, r *task.Request) (any, error) {
				order = append(order, name)
				return next.Handle(ctx, r)
			})
		}
	}
	var m task.Mux
	def := task.New[int, int]("t")
	if err := def.Handle(&m, func(_ context.Context, i int) (int, error) { return i + 1, nil }, wrap("outer"), wrap("inner")); err != nil {
		t.Fatal(err)
	}
	h, _, _ := m.Lookup("t")
	r := task.NewRequest(&task.Envelope{}, func(_ string, _ []byte, v any) error { *v.(*int) = 41; return nil })
	got, err := h.Handle(t.Context(), r)
	if err != nil || got != 42 {
		t.Fatal(got, err)
	}
	if diff := cmp.Diff([]string{"outer", "inner"}, order); diff != "" {
		t.Fatal(diff)
	}
	if _, err := h.Handle(t.Context(), task.NewRequest(&task.Envelope{}, nil)); !errors.Is(err, task.ErrBadArgs) {
		t.Fatalf("a request without a decoder: %v", err)
	}
}

func TestVerdicts(t *testing.T) {
	cause := errors.New("cause")
	if err := task.Retry(cause, task.After(-time.Second)); !errors.Is(err, cause) {
		t.Fatal("a retry hides its cause")
	} else if v, _ := errors.AsType[*task.RetryVerdict](err); v.Delay.Or(1) != 0 {
		t.Fatal("a negative delay is not 0")
	}
	if err := task.Fail(nil); err.Error() == "" {
		t.Fatal("a failure without a reason says nothing")
	}
	if v, ok := errors.AsType[*task.SnoozeVerdict](task.Snooze(-1)); !ok || v.Delay != 0 {
		t.Fatal("snooze")
	}
	r := task.NewRequest(&task.Envelope{Retries: 2}, nil)
	if r.RetriesLeft() != 1 {
		t.Fatal(r.RetriesLeft())
	}
	r.Meta.MaxRetries = task.Set(-1)
	if r.RetriesLeft() != -1 {
		t.Fatal("no limit")
	}
}
