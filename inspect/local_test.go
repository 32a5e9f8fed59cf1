package inspect_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/inspect/inspecttest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/open"
	_ "github.com/swarmiji/swarmiji/open/all"
	"github.com/swarmiji/swarmiji/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper)) }

// TestLocal runs the suite on the local implementation over each server.
func TestLocal(t *testing.T) {
	for name, url := range map[string]func(t *testing.T) string{
		"memory":   func(*testing.T) string { return "mem://" },
		"sqlite":   func(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "app.db") },
		"redis":    func(t *testing.T) string { return testserver.RequireRedis(t).URL() },
		"nats":     func(t *testing.T) string { return testserver.RequireNATS(t).URL() },
		"rabbit":   func(t *testing.T) string { return testserver.RequireRabbit(t).URL() },
		"postgres": func(t *testing.T) string { return testserver.RequirePostgres(t).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "redis" || name == "nats" || name == "postgres" {
				testserver.Thorough(t) // SQLite answers the same questions, and RabbitMQ the fewest
			}
			inspecttest.Run(t, inspecttest.Harness{Swarm: func(t *testing.T) *open.Swarm {
				s, err := open.Open(t.Context(), url(t), open.Options{Control: true, Namespace: testserver.Namespace(), Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				return s
			}})
		})
	}
}

// TestNothingGiven calls each method of an API without any part. Each returns ErrUnsupported with
// the setting that helps.
func TestNothingGiven(t *testing.T) {
	l, err := inspect.New(inspect.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	valid := map[string]any{
		"GetQueue": "work", "PurgeQueue": inspect.Purge{Queue: "work"}, "PauseQueue": inspect.Pause{Queue: "work"}, "ResumeQueue": "work",
		"ListKeys":     inspect.KeyQuery{Queue: "work"},
		"ListMessages": inspect.MessageQuery{Queue: "work", Place: broker.PlaceWaiting}, "CancelTask": inspect.Cancel{ID: "x"},
		"CancelWorkflow": inspect.WorkflowCancel{Root: "x"}, "RetryWorkflow": inspect.WorkflowRetry{Root: "x"}, "GetWorker": "node",
		"PauseTasks": inspect.TaskPause{Name: "x"}, "ResumeTasks": "x", "SetLimit": inspect.Limit{Name: "x"}, "ListTasks": inspect.TaskQuery{},
		"ScaleWorkers": inspect.Scale{Queue: "work", Workers: 1}, "LimitWorkers": inspect.RateLimit{Name: "x"}, "StopWorkers": inspect.Stop{All: true},
		"CancelJobs": inspect.JobChange{IDs: []int64{1}}, "RetryJobs": inspect.JobChange{IDs: []int64{1}},
		"RemoveJobs": inspect.JobChange{IDs: []int64{1}},
		"DropDead":   inspect.DeadChange{DeadFilter: inspect.DeadFilter{Queue: "work"}, Confirm: "work"},
	}
	// they name the missing parts
	answers := map[string]bool{"Check": true, "GetTask": true, "Why": true}
	api := reflect.ValueOf(l)
	for method := range reflect.TypeFor[inspect.API]().Methods() {
		if answers[method.Name] {
			continue
		}
		in := reflect.Zero(method.Type.In(1))
		if v, ok := valid[method.Name]; ok {
			in = reflect.ValueOf(v)
		}
		out := api.MethodByName(method.Name).Call([]reflect.Value{reflect.ValueOf(t.Context()), in})
		err, _ := out[1].Interface().(error)
		e, ok := errors.AsType[*inspect.Error](err)
		if !ok || !errors.Is(err, inspect.ErrUnsupported) || e.Help == "" {
			t.Errorf("%s without its part: %v", method.Name, err)
		}
	}
	r, err := l.Check(t.Context(), inspect.CheckQuery{})
	if err != nil || len(r.Findings) != 0 {
		t.Errorf("a check of nothing: %+v, %v", r, err)
	}
	e, err := l.Why(t.Context(), inspect.TaskKey{ID: "x"})
	if err != nil || e.Reasons[0].Kind != inspect.KindUnknown || len(e.Notes) == 0 {
		t.Errorf("why of nothing: %+v, %v", e, err)
	}
	if err := l.Run(t.Context()); !errors.Is(err, inspect.ErrUnsupported) {
		t.Errorf("Run without a bus: %v", err)
	}
}

// TestMethodsSuitJSON checks that each method takes a context and one value and returns one struct
// and an error, and that JSON carries all these values: no field is hidden, and each has a name.
func TestMethodsSuitJSON(t *testing.T) {
	seen := make(map[reflect.Type]bool)
	for method := range reflect.TypeFor[inspect.API]().Methods() {
		f := method.Type
		if f.NumIn() != 2 || f.In(0) != reflect.TypeFor[context.Context]() || f.NumOut() != 2 || f.Out(0).Kind() != reflect.Struct || f.Out(1) != reflect.TypeFor[error]() {
			t.Errorf("%s is a %v", method.Name, f)
			continue
		}
		suits(t, method.Name, f.In(1), seen)
		suits(t, method.Name, f.Out(0), seen)
	}
}

func suits(t *testing.T, path string, v reflect.Type, seen map[reflect.Type]bool) {
	t.Helper()
	if seen[v] || v == reflect.TypeFor[time.Time]() || v == reflect.TypeFor[json.RawMessage]() || v == reflect.TypeFor[inspect.Duration]() {
		return
	}
	seen[v] = true
	switch v.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		if v != reflect.TypeFor[map[string]any]() { // the further fields of an event
			suits(t, path, v.Elem(), seen)
		}
	case reflect.Struct:
		for f := range v.Fields() {
			at := path + "." + f.Name
			tag := f.Tag.Get("json")
			if !f.IsExported() || tag == "" && !f.Anonymous || strings.HasPrefix(tag, "-") {
				t.Errorf("%s is hidden from JSON", at)
			}
			if f.Type == reflect.TypeFor[time.Time]() && strings.Contains(tag, "omitempty") {
				t.Errorf("%s: omitempty has no effect on a time", at)
			}
			suits(t, at, f.Type, seen)
		}
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int64, reflect.Uint64, reflect.Float64:
	default:
		t.Errorf("%s is a %v", path, v)
	}
}

// TestErrorsInJSON checks that an error is the same behind JSON.
func TestErrorsInJSON(t *testing.T) {
	cause := fmt.Errorf("queue %q: %w", "x", broker.ErrNoQueue)
	for err, want := range map[error]error{
		cause:                           inspect.ErrNotFound,
		jobs.ErrIsRunning:               inspect.ErrConflict,
		context.DeadlineExceeded:        inspect.ErrUnavailable,
		errors.New("any other"):         inspect.ErrInternal,
		fmt.Errorf("%w", task.ErrBadID): inspect.ErrInvalid,
		fmt.Errorf("more: %w", &inspect.Error{Code: inspect.CodeDenied, Text: "no", Help: "ask"}): inspect.ErrDenied,
	} {
		e := inspect.Wrap(err)
		if !errors.Is(e, want) || !errors.Is(e, err) || e.Error() != err.Error() {
			t.Errorf("%v became %v", err, e)
		}
		data, merr := json.Marshal(e)
		var back *inspect.Error
		if merr != nil || json.Unmarshal(data, &back) != nil || !errors.Is(back, want) || back.Error() != e.Error() {
			t.Errorf("%s became %v", data, back)
		}
		for _, other := range []error{inspect.ErrNotFound, inspect.ErrConflict, inspect.ErrDenied} {
			if other != want && errors.Is(back, other) {
				t.Errorf("%v is also %v", back, other)
			}
		}
	}
	if inspect.Wrap(nil) != nil || inspect.CodeOf(nil) != "" {
		t.Error("nil is an error")
	}
}

func TestDurationInJSON(t *testing.T) {
	for _, d := range []time.Duration{0, time.Microsecond, 1500 * time.Microsecond, time.Hour, 90 * 24 * time.Hour, -time.Second} {
		data, err := json.Marshal(inspect.Duration(d))
		var back inspect.Duration
		if err != nil || json.Unmarshal(data, &back) != nil || time.Duration(back) != d {
			t.Errorf("%v became %s and %v", d, data, back)
		}
	}
	if text, _ := json.Marshal(inspect.Duration(1500 * time.Microsecond)); string(text) != "1.5" {
		t.Errorf("1.5 ms are %s", text)
	}
}

func TestConfigIsChecked(t *testing.T) {
	_, err := inspect.New(inspect.Config{NodeID: "a b", Queues: []string{"c d"}, Listen: -1, Replies: -1})
	for _, part := range []string{"NodeID", "Queues", "Listen", "Replies"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not name %s", err, part)
		}
	}
}

// TestRunOnce checks that Run runs once and ends with its context.
func TestRunOnce(t *testing.T) {
	bus := memevents.New(memevents.Config{})
	defer func() { _ = bus.Close(t.Context()) }()
	l, err := inspect.New(inspect.Config{Events: bus, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Run(ctx); err != nil {
		t.Errorf("Run: %v", err)
	}
	if err := l.Run(t.Context()); !errors.Is(err, inspect.ErrRunning) {
		t.Errorf("a second Run: %v", err)
	}
}

// TestWaitsForKnown checks that a question to consumers ends with the answers of the consumers
// that Run knows, long before Listen.
func TestWaitsForKnown(t *testing.T) {
	s, err := open.Open(t.Context(), "mem://", open.Options{Control: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(testwait.Long(t)) })
	for node, queue := range map[string]string{"node-1": "a", "node-2": "a", "node-3": "b"} {
		c, err := s.Consumer(consumer.Config{
			Report: events.Report{NodeID: node, HeartbeatEvery: 20 * time.Millisecond}, Control: &control.Config{}, Queues: map[string]consumer.QueueConfig{queue: {}},
			Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		running(t, c.Run)
	}
	api, err := open.Inspector(s, inspect.Config{Listen: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	running(t, api.Run)
	testwait.Until(t, "all consumers answer", func() bool {
		page, err := api.ListWorkers(testwait.Brief(t), inspect.WorkerQuery{})
		return err == nil && len(page.Workers) == 3 && page.Workers[0].Answers && page.Workers[1].Answers && page.Workers[2].Answers
	})
	for _, c := range []struct {
		q    inspect.RunningQuery
		want []string
	}{
		{inspect.RunningQuery{}, []string{"node-1", "node-2", "node-3"}},
		{inspect.RunningQuery{Queues: []string{"a"}}, []string{"node-1", "node-2"}},
		{inspect.RunningQuery{Queues: []string{"a"}, Nodes: []string{"node-2", "node-3"}}, []string{"node-2"}},
	} {
		page, err := api.ListRunning(testwait.Long(t), c.q)
		if err != nil || !slices.Equal(page.Nodes, c.want) {
			t.Errorf("%+v: nodes %v, %v, want %v", c.q, page.Nodes, err, c.want)
		}
	}
}

// running runs a function until the test ends.
func running(t *testing.T, run func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error("Run:", err)
		}
	})
}
