package celery_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/celery"
	"github.com/swarmiji/swarmiji/celery/wire"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// inPython submits t to the Python worker, waits for the result, and returns it with the arguments
// that the worker saw at the start.
func inPython[A, R any](tb testing.TB, w *world, t task.Task[A, R], args A, opts ...task.Option) (R, startedInPython) {
	tb.Helper()
	f, err := t.Submit(tb.Context(), w.p, args, append(opts, task.WithQueue(w.pyQueue))...)
	v := value(tb, f, err)
	e := w.worker.Wait(tb, string(f.ID()), "started")
	return v, startedInPython{f.ID(), e.Name, e.Args, e.Kwargs}
}

// startedInPython is a task at its start in the Python worker.
type startedInPython struct {
	id     task.ID
	name   string
	args   []any
	kwargs map[string]any
}

// want fails the test unless Python got these arguments. Numbers are float64.
func (s startedInPython) want(tb testing.TB, name string, args []any, kwargs map[string]any) {
	tb.Helper()
	if d := cmp.Diff([]any{name, args, kwargs}, []any{s.name, s.args, s.kwargs}); d != "" {
		tb.Errorf("Python gets (-want +got):\n%s", d)
	}
}

// TestL2Calls shows that Go calls Python tasks and gets their results, over both result backends.
func TestL2Calls(t *testing.T) {
	none := map[string]any{}
	for name, lazy := range map[string]*lazyWorld{"redis": overRedis, "rpc": overRPC} {
		t.Run(name, func(t *testing.T) {
			w := lazy.get(t)
			t.Run("a struct", func(t *testing.T) {
				v, saw := inPython(t, w, pyAdd, pair{1, 2})
				if v != 3 {
					t.Errorf("result %d", v)
				}
				saw.want(t, "py.add", []any{1.0, 2.0}, none)
			})
			t.Run("a keyword-only field", func(t *testing.T) {
				v, saw := inPython(t, w, task.New[struct {
					A int `celery:"0,a"`
					B int `celery:",b"`
				}, echoed]("py.echo"), struct {
					A int `celery:"0,a"`
					B int `celery:",b"`
				}{1, 2})
				if d := cmp.Diff(echoed{[]any{1.0}, map[string]any{"b": 2.0}}, v); d != "" {
					t.Error(d)
				}
				saw.want(t, "py.echo", []any{1.0}, map[string]any{"b": 2.0})
			})
			t.Run("any arguments", func(t *testing.T) {
				v, saw := inPython(t, w, pyEcho, celery.Args{Args: []any{"x", nil, []any{true}}, Kwargs: map[string]any{"k": map[string]any{"d": 1.5}}})
				if d := cmp.Diff(echoed{[]any{"x", nil, []any{true}}, map[string]any{"k": map[string]any{"d": 1.5}}}, v); d != "" {
					t.Error(d)
				}
				saw.want(t, "py.echo", []any{"x", nil, []any{true}}, map[string]any{"k": map[string]any{"d": 1.5}})
			})
			t.Run("no arguments", func(t *testing.T) {
				v, saw := inPython(t, w, pyEcho, celery.Args{})
				if d := cmp.Diff(echoed{[]any{}, none}, v); d != "" {
					t.Error(d)
				}
				saw.want(t, "py.echo", []any{}, none)
			})
			t.Run("a list as the only argument", func(t *testing.T) {
				v, saw := inPython(t, w, pyTotal, []int{1, 2, 3})
				if v != 6 {
					t.Errorf("result %d", v)
				}
				saw.want(t, "py.total", []any{[]any{1.0, 2.0, 3.0}}, none)
			})
			t.Run("letters of many languages", func(t *testing.T) {
				v, saw := inPython(t, w, pySame, any("hé世😀"))
				if v != "hé世😀" {
					t.Errorf("result %v", v)
				}
				saw.want(t, "py.same", []any{"hé世😀"}, none)
			})
			t.Run("an integer of 64 bits", func(t *testing.T) {
				v, saw := inPython(t, w, task.New[int64, int64]("py.same"), 1<<62+1)
				if v != 1<<62+1 || saw.name != "py.same" {
					t.Errorf("result %d of %+v", v, saw)
				}
			})
			t.Run("a whole float stays a float", func(t *testing.T) {
				v, saw := inPython(t, w, task.New[float64, string]("py.kind"), 2.0)
				if v != "float" || saw.name != "py.kind" {
					t.Errorf("Python got a %s", v)
				}
			})
			t.Run("an int is an int", func(t *testing.T) {
				v, saw := inPython(t, w, task.New[int, string]("py.kind"), 2)
				if v != "int" || saw.name != "py.kind" {
					t.Errorf("Python got a %s", v)
				}
			})
			t.Run("null", func(t *testing.T) {
				v, saw := inPython(t, w, task.New[celery.Args, any]("py.same"), celery.Args{Args: []any{nil}})
				if v != nil {
					t.Errorf("result %v", v)
				}
				saw.want(t, "py.same", []any{nil}, none)
			})
			t.Run("msgpack with bytes", func(t *testing.T) {
				v, saw := inPython(t, w, task.New[[]byte, string]("py.kind"), []byte{0, 0xff}, task.WithSerializer(wire.ContentMsgpackArgs))
				if v != "bytes" || saw.name != "py.kind" {
					t.Errorf("Python got a %s", v)
				}
			})
			t.Run("a retry", func(t *testing.T) {
				v, saw := inPython(t, w, pyLater, 2)
				if e := w.worker.Wait(t, string(saw.id), "retried"); v != 2 || !strings.Contains(e.Exception, "attempt 0") {
					t.Errorf("result %d after %+v", v, e)
				}
			})
			t.Run("a hundred at once", func(t *testing.T) {
				all := make([]pair, 100)
				for i := range all {
					all[i] = pair{i, 1}
				}
				futures, err := pyAdd.SubmitAll(t.Context(), w.p, all, task.WithQueue(w.pyQueue))
				if err != nil {
					t.Fatal(err)
				}
				for i, f := range futures {
					if v := value(t, f, nil); v != i+1 {
						t.Errorf("result %d of %d", v, i)
					}
				}
				if e := w.worker.Wait(t, string(futures[99].ID()), "ended"); e.State != "SUCCESS" {
					t.Errorf("Python says %+v", e)
				}
			})
		})
	}
}

// TestL2Metadata shows that a Python task sees the metadata of a Go producer.
func TestL2Metadata(t *testing.T) {
	w := overRedis.get(t)
	t.Run("id, root and reply queue", func(t *testing.T) {
		v, saw := inPython(t, w, pyAbout, celery.Args{}, task.WithID(task.ID("own-"+w.pyQueue)))
		if v.ID != "own-"+w.pyQueue || v.Root != v.ID || v.Parent != "" || v.ReplyTo == "" || saw.id != task.ID(v.ID) {
			t.Errorf("%+v", v)
		}
	})
	t.Run("a header", func(t *testing.T) {
		v, saw := inPython(t, w, pyAbout, celery.Args{Args: []any{1}}, task.WithHeader("x-custom", "v"))
		if v.Custom != "v" {
			t.Errorf("%+v", v)
		}
		saw.want(t, "py.about", []any{1.0}, map[string]any{})
	})
	t.Run("time limits", func(t *testing.T) {
		v, _ := inPython(t, w, pyAbout, celery.Args{}, task.WithTimeLimit(20*time.Second), task.WithSoftTimeLimit(10500*time.Millisecond))
		if len(v.TimeLimit) != 2 || v.TimeLimit[0] == nil || *v.TimeLimit[0] != 20 || v.TimeLimit[1] == nil || *v.TimeLimit[1] != 10.5 {
			t.Errorf("%+v", v)
		}
	})
	t.Run("an expiry", func(t *testing.T) {
		at := time.Now().Add(time.Hour).Truncate(time.Millisecond)
		v, _ := inPython(t, w, pyAbout, celery.Args{}, task.WithExpires(at))
		if got, err := time.Parse(time.RFC3339, v.Expires); err != nil || !got.Equal(at) {
			t.Errorf("%+v, %v", v, err)
		}
	})
	t.Run("a delay", func(t *testing.T) {
		at := time.Now().Add(1200 * time.Millisecond)
		v, saw := inPython(t, w, pyNow, celery.Args{}, task.WithNotBefore(at))
		if ran := time.UnixMicro(int64(v * 1e6)); ran.Before(at.Add(-2 * time.Millisecond)) {
			t.Errorf("ran at %v, due %v (%+v)", ran, at, saw)
		}
	})
	t.Run("a priority", func(t *testing.T) {
		if _, err := pyAbout.Submit(t.Context(), w.p, celery.Args{}, task.WithQueue(w.pyQueue), task.WithPriority(91)); !errors.Is(err, broker.ErrUnsupported) {
			t.Errorf("%v without levels of the queue", err)
		}
		p, err := w.swarm.Producer(producer.Config{Queues: []broker.Queue{{Name: w.pyQueue, Levels: []int{91, 100}}}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := p.Close(testwait.Long(t)); err != nil {
				t.Error(err)
			}
		}()
		f, err := pyAbout.Submit(t.Context(), p, celery.Args{}, task.WithQueue(w.pyQueue), task.WithPriority(91))
		if v := value(t, f, err); v.Priority != 9 {
			t.Errorf("%+v", v)
		}
	})
	t.Run("an ignored result", func(t *testing.T) {
		f, err := pyNote.Submit(t.Context(), w.p, celery.Args{Args: []any{"quiet"}}, task.WithQueue(w.pyQueue), task.WithIgnoreResult(true))
		if err != nil {
			t.Fatal(err)
		}
		if e := w.worker.Wait(t, string(f.ID()), "ended"); e.State != "SUCCESS" {
			t.Errorf("%+v", e)
		}
		if rec, err := w.swarm.Results.Load(testwait.Long(t), f.ID()); err == nil && rec.Result != nil {
			t.Errorf("the result is stored: %+v", rec)
		}
	})
}

// failure waits for the failure of a Python task.
func failure[R any](tb testing.TB, f *task.Future[R], err error) *task.RemoteError {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
	v, err := f.Get(testwait.Long(tb))
	remote, ok := errors.AsType[*task.RemoteError](err)
	if !ok {
		tb.Fatalf("result %v, %v", v, err)
	}
	return remote
}

// TestL2Failures shows that exceptions of Python arrive as errors with type, module, values and
// traceback.
func TestL2Failures(t *testing.T) {
	for name, lazy := range map[string]*lazyWorld{"redis": overRedis, "rpc": overRPC} {
		t.Run(name, func(t *testing.T) {
			w := lazy.get(t)
			on := task.WithQueue(w.pyQueue)
			t.Run("an exception of Python", func(t *testing.T) {
				f, err := pyFail.Submit(t.Context(), w.p, celery.Args{Args: []any{"broken", 7}}, on)
				e := failure(t, f, err)
				if e.Type != "ValueError" || e.Module != "builtins" || !strings.Contains(e.Message, "broken") || !strings.Contains(e.Stack, "raise ValueError") {
					t.Errorf("%+v", e)
				}
				if d := cmp.Diff([]any{"broken", int64(7)}, e.Args); d != "" {
					t.Errorf("values (-want +got):\n%s", d)
				}
				if saw := w.worker.Wait(t, string(f.ID()), "failed"); !strings.Contains(saw.Exception, "ValueError") {
					t.Errorf("Python says %+v", saw)
				}
			})
			t.Run("an exception of the application", func(t *testing.T) {
				f, err := pyPay.Submit(t.Context(), w.p, 12.5, on)
				e := failure(t, f, err)
				if e.Type != "PaymentError" || e.Module == "" || len(e.Args) != 2 || e.Args[1] != 12.5 {
					t.Errorf("%+v", e)
				}
				if saw := w.worker.Wait(t, string(f.ID()), "failed"); !strings.Contains(saw.Exception, "PaymentError") {
					t.Errorf("Python says %+v", saw)
				}
			})
			t.Run("wrong arguments", func(t *testing.T) {
				f, err := task.New[celery.Args, int]("py.add").Submit(t.Context(), w.p, celery.Args{Args: []any{1}}, on)
				if e := failure(t, f, err); e.Type != "TypeError" || !strings.Contains(e.Message, "'y'") {
					t.Errorf("%+v", e)
				}
				if saw := w.worker.Wait(t, string(f.ID()), "failed"); !strings.Contains(saw.Exception, "TypeError") {
					t.Errorf("Python says %+v", saw)
				}
			})
			t.Run("no retry is left", func(t *testing.T) {
				f, err := pyLater.Submit(t.Context(), w.p, 99, on)
				if e := failure(t, f, err); e.Type != "RuntimeError" || e.Message != "attempt 3" {
					t.Errorf("%+v", e)
				}
				if saw := w.worker.Wait(t, string(f.ID()), "failed"); saw.Retries != 3 {
					t.Errorf("Python says %+v", saw)
				}
			})
			t.Run("an unknown task", func(t *testing.T) {
				f, err := task.New[int, int]("py.nowhere").Submit(t.Context(), w.p, 1, on)
				if e := failure(t, f, err); !errors.Is(e, task.ErrUnknownTask) || e.Module != "celery.exceptions" {
					t.Errorf("%+v", e)
				}
				w.worker.Wait(t, string(f.ID()), "unknown")
			})
		})
	}
	t.Run("expired before its start", func(t *testing.T) {
		w := overRedis.get(t)
		f, err := pyNote.Submit(t.Context(), w.p, celery.Args{}, task.WithQueue(w.pyQueue), task.WithExpires(time.Now().Add(-time.Second)))
		if err != nil {
			t.Fatal(err)
		}
		if e := failure(t, f, nil); !errors.Is(e, task.ErrExpired) {
			t.Errorf("%+v", e)
		}
	})
}

// TestL2Workflows shows that Python carries on what Go has composed.
func TestL2Workflows(t *testing.T) {
	w := overRedis.get(t)
	on := task.WithQueue(w.pyQueue)
	add := func(x, y int) task.Step[task.None, int] { return pyAdd.Bound(pair{x, y}, on) }
	more := func(name string, y int) task.Step[int, int] {
		return task.PrependTo[int](task.New[celery.Args, int](name), celery.Args{Args: []any{y}}, on)
	}
	t.Run("a chain", func(t *testing.T) {
		run, err := task.Chain3(add(1, 2), more("py.mul", 10), more("py.add", 4)).Submit(t.Context(), w.p, task.None{})
		if err != nil {
			t.Fatal(err)
		}
		if v := value(t, run.Future, nil); v != 34 {
			t.Errorf("result %d", v)
		}
		steps := run.Steps()
		if v := value(t, task.FutureOf[int](steps[0]), nil); v != 3 {
			t.Errorf("first step %d", v)
		}
		if e := w.worker.Wait(t, string(run.ID()), "ended"); cmp.Diff([]any{30.0, 4.0}, e.Args) != "" {
			t.Errorf("Python ran %+v", e)
		}
	})
	t.Run("a step that keeps its own arguments", func(t *testing.T) {
		run, err := task.Chain(add(1, 2), task.Fixed[int](pyAdd, pair{7, 8}, on)).Submit(t.Context(), w.p, task.None{})
		if err != nil {
			t.Fatal(err)
		}
		if v := value(t, run.Future, nil); v != 15 {
			t.Errorf("result %d", v)
		}
		if e := w.worker.Wait(t, string(run.ID()), "started"); cmp.Diff([]any{7.0, 8.0}, e.Args) != "" {
			t.Errorf("Python ran %+v", e)
		}
	})
	t.Run("a group", func(t *testing.T) {
		run, err := task.Group(add(1, 1), add(2, 2), add(3, 3)).Submit(t.Context(), w.p, task.None{})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]int{2, 4, 6}, value(t, run.Future, nil)); d != "" {
			t.Error(d)
		}
		if e := w.worker.Wait(t, string(run.Steps()[0].ID()), "started"); e.Group == "" || e.Name != "py.add" {
			t.Errorf("Python ran %+v", e)
		}
	})
	t.Run("a chord", func(t *testing.T) {
		run, err := task.Chord(task.Group(add(1, 1), add(2, 2), add(3, 3)), pyTotal.With(on)).Submit(t.Context(), w.p, task.None{})
		if err != nil {
			t.Fatal(err)
		}
		if v := value(t, run.Future, nil); v != 12 {
			t.Errorf("result %d", v)
		}
		if e := w.worker.Wait(t, string(run.ID()), "started"); cmp.Diff([]any{[]any{2.0, 4.0, 6.0}}, e.Args) != "" {
			t.Errorf("Python ran %+v", e)
		}
	})
	t.Run("a chord with a failed member", func(t *testing.T) {
		broken := pyFail.Bound(celery.Args{Args: []any{"member"}}, on)
		run, err := task.Chord(task.Group(add(1, 1), broken), pyTotal.With(on)).Submit(t.Context(), w.p, task.None{})
		if err != nil {
			t.Fatal(err)
		}
		if e := failure(t, run.Future, nil); e.Type != "ChordError" || !strings.Contains(e.Message, "member") {
			t.Errorf("%+v", e)
		}
		if events := w.worker.Events(string(run.ID())); len(events) > 0 && events[0].Event == "started" {
			t.Errorf("the body ran: %+v", events)
		}
	})
	t.Run("a failed step fails the chain", func(t *testing.T) {
		first := pyFail.Bound(celery.Args{Args: []any{"step"}}, on)
		run, err := task.Chain(first, more("py.add", 1)).Submit(t.Context(), w.p, task.None{})
		if err != nil {
			t.Fatal(err)
		}
		if e := failure(t, task.FutureOf[int](run.Steps()[0]), nil); e.Type != "ValueError" {
			t.Errorf("%+v", e)
		}
		if events := w.worker.Events(string(run.ID())); len(events) > 0 {
			t.Errorf("the second step ran: %+v", events)
		}
	})
	t.Run("a callback", func(t *testing.T) {
		also := task.PrependTo[int](pyNote, celery.Args{Args: []any{"own"}}, on, task.WithID(task.ID("note-"+w.pyQueue)))
		run, err := task.OnSuccess(add(4, 4), also).Submit(t.Context(), w.p, task.None{})
		if err != nil {
			t.Fatal(err)
		}
		if v := value(t, run.Future, nil); v != 8 {
			t.Errorf("result %d", v)
		}
		if e := w.worker.Wait(t, "note-"+w.pyQueue, "ended"); cmp.Diff([]any{8.0, "own"}, e.Args) != "" {
			t.Errorf("Python ran %+v", e)
		}
	})
	t.Run("an error callback", func(t *testing.T) {
		// Celery would call one with several parameters in the process, not as a task.
		handler := task.PrependTo[task.Failure](task.New[celery.Args, any]("py.same"), celery.Args{}, on, task.WithID(task.ID("errnote-"+w.pyQueue)))
		run, err := task.OnError(pyFail.Bound(celery.Args{Args: []any{"x"}}, on), handler).Submit(t.Context(), w.p, task.None{})
		if err != nil {
			t.Fatal(err)
		}
		if e := failure(t, run.Future, nil); e.Type != "ValueError" {
			t.Errorf("%+v", e)
		}
		if e := w.worker.Wait(t, "errnote-"+w.pyQueue, "ended"); cmp.Diff([]any{string(run.ID())}, e.Args) != "" {
			t.Errorf("Python ran %+v", e)
		}
	})
}
