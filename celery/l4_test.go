package celery_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/celery"
	"github.com/swarmiji/swarmiji/task"
)

// mixedByPython are workflows of Python whose steps run in both languages. last is the id of a task
// that must have run in Go with the arguments of args.
var mixedByPython = []struct {
	name   string
	chords bool // needs a result backend with chords
	code   string
	value  string
	args   any
}{
	{
		name: "Go, then Python", value: `9`, args: pair{1, 2},
		code: `r = chain(sig("go.add", 1, 2, queue=GOQ), sig("py.mul", 3))()
go = r.parent.id`,
	},
	{
		name: "Python, then Go", value: `9`, args: pair{3, 3},
		code: `r = chain(sig("py.add", 1, 2), sig("go.mul", 3, queue=GOQ))()
go = r.id`,
	},
	{
		name: "Go, Python, Go", value: `63`, args: pair{9, 7},
		code: `r = chain(sig("go.add", 1, 2, queue=GOQ), sig("py.mul", 3), sig("go.mul", 7, queue=GOQ))()
go = r.id`,
	},
	{
		name: "Python, Go, Python, Go, Python", value: `23`, args: pair{12, 5},
		code: `r = chain(sig("py.add", 1, 2), sig("go.mul", 2, queue=GOQ), sig("py.mul", 2), sig("go.add", 5, queue=GOQ), sig("py.add", 6))()
go = r.parent.id`,
	},
	{
		name: "all digits of an integer in both languages", value: `4611686018427387906`, args: pair{1<<62 + 1, 1},
		code: `r = chain(sig("py.same", 2**62 + 1), sig("go.add", 1, queue=GOQ), sig("py.same"))()
go = r.parent.id`,
	},
	{
		name: "a chord of both languages with a body in Python", chords: true, value: `10`, args: pair{2, 2},
		code: `r = chord([sig("py.add", 1, 1), sig("go.add", 2, 2, queue=GOQ), sig("py.add", 2, 2)], sig("py.total"))()
go = r.parent.results[1].id`,
	},
	{
		name: "a chord of both languages with a body in Go", chords: true, value: `10`, args: []int{2, 4, 4},
		code: `r = chord([sig("py.add", 1, 1), sig("go.add", 2, 2, queue=GOQ), sig("go.add", 3, 1, queue=GOQ)], sig("go.total", queue=GOQ))()
go = r.id`,
	},
	{
		name: "a chord of Go with a body in Python", chords: true, value: `30`, args: pair{3, 3},
		code: `r = chord([sig("go.mul", n, n, queue=GOQ) for n in range(5)], sig("py.total"))()
go = r.parent.results[3].id`,
	},
	{
		name: "a chord of one task", chords: true, value: `3`, args: []int{3},
		code: `r = chord([sig("py.add", 1, 2)], sig("go.total", queue=GOQ))()
go = r.id`,
	},
	{
		name: "a chord whose members are chains of both languages", chords: true, value: `24`, args: pair{3, 4},
		code: `r = chord([chain(sig("py.add", 1, 2), sig("go.mul", 4, queue=GOQ)), chain(sig("go.add", 1, 2, queue=GOQ), sig("py.mul", 4))], sig("py.total"))()
go = r.parent.results[0].id`,
	},
	{
		name: "a chord behind a step in Go", chords: true, value: `21`, args: pair{1, 2},
		code: `r = chain(sig("go.add", 1, 2, queue=GOQ), group(sig("py.mul", 3), sig("go.mul", 4, queue=GOQ)), sig("py.total"))()
go = r.parent.parent.id`,
	},
	{
		name: "a step behind a chord", chords: true, value: `12`, args: pair{6, 2},
		code: `r = chain(chord([sig("go.add", 1, 1, queue=GOQ), sig("py.add", 2, 2)], sig("py.total")), sig("go.mul", 2, queue=GOQ))()
go = r.id`,
	},
	{
		name: "chords in a chord", chords: true, value: `[[2, 4], [6, 8]]`, args: pair{2, 2},
		code: `r = chord([chord([sig("py.add", 1, 1), sig("go.add", 2, 2, queue=GOQ)], sig("py.same")), chord([sig("go.add", 3, 3, queue=GOQ), sig("py.add", 4, 4)], sig("go.same", queue=GOQ))], sig("py.same"))()
go = r.parent.results[0].parent.results[1].id`,
	},
	{
		name: "groups behind each other", chords: true, value: `[[2, 4], [2, 4]]`, args: pair{2, 2},
		code: `go = "second-" + GOQ
r = chain(group(sig("go.add", 1, 1, queue=GOQ), sig("go.add", 2, 2, queue=GOQ, task_id=go)), group(sig("py.same"), sig("go.same", queue=GOQ)), sig("py.same"))()`,
	},
	{
		name: "a group without tasks behind a step in Go", chords: true, value: `[]`, args: pair{1, 1},
		code: `go = "first-" + GOQ
r = chain(sig("go.add", 1, 1, queue=GOQ, task_id=go), group([]), sig("py.same"))()`,
	},
	{
		name: "a whole float in both languages", value: `"float"`, args: 1e18,
		code: `r = chain(sig("go.same", 1e18, queue=GOQ), sig("py.kind"))()
go = r.parent.id`,
	},
	{
		name: "msgpack", value: `18`, args: pair{6, 3},
		code: `m = dict(serializer="msgpack")
r = chain(sig("go.add", 1, 2, queue=GOQ, **m), sig("py.mul", 2, **m), sig("go.mul", 3, queue=GOQ, **m))()
go = r.id`,
	},
	{
		name: "a member that retries", chords: true, value: `3`, args: []int{1, 2},
		code: `r = chord([sig("go.later", 1, queue=GOQ), sig("py.later", 2)], sig("go.total", queue=GOQ))()
go = r.id`,
	},
}

// TestL4ByPython shows that workflows of Python go through both languages.
func TestL4ByPython(t *testing.T) {
	for name, lazy := range map[string]*lazyWorld{"redis": overRedis, "rpc": overRPC} {
		t.Run(name, func(t *testing.T) {
			w := lazy.get(t)
			for _, c := range mixedByPython {
				if c.chords && lazy == overRPC {
					continue
				}
				t.Run(c.name, func(t *testing.T) {
					var got struct {
						Go  task.ID
						End end
					}
					w.eval(t, c.code+"\nresult = {'end': outcome(r), 'go': go}", &got)
					if got.End.State != "SUCCESS" {
						t.Fatalf("Python sees %s, %+v\n%s", got.End.State, got.End.Error, got.End.Traceback)
					}
					wantJSON(t, got.End.Value, c.value)
					if d := cmp.Diff(c.args, w.run(t, got.Go).args); d != "" {
						t.Errorf("the Go handler gets (-want +got):\n%s", d)
					}
				})
			}
		})
	}
}

// TestL4Failures shows that failures go through workflows of both languages.
func TestL4Failures(t *testing.T) {
	w := overRedis.get(t)
	t.Run("a failed member in Go fails a body in Python", func(t *testing.T) {
		var got struct {
			Kind, Text, Body string
		}
		w.eval(t, `
r = chord([sig("go.fail", "member", queue=GOQ), sig("py.add", 1, 1)], sig("py.total"))()
for i in range(1200):
    if r.state == "FAILURE":
        break
    time.sleep(0.05)
result = dict(kind=type(r.result).__name__, text=str(r.result), body=r.id)`, &got)
		if got.Kind != "ChordError" || !strings.Contains(got.Text, "member") {
			t.Errorf("Python sees %+v", got)
		}
		if events := w.worker.Events(got.Body); len(events) > 0 {
			t.Errorf("the body ran: %+v", events)
		}
	})
	t.Run("a failed member in Python fails a body in Go", func(t *testing.T) {
		var got struct {
			Kind, Text string
			Body       task.ID
		}
		w.eval(t, `
r = chord([sig("py.fail", "member"), sig("go.add", 1, 1, queue=GOQ)], sig("go.total", queue=GOQ))()
for i in range(1200):
    if r.state == "FAILURE":
        break
    time.sleep(0.05)
result = dict(kind=type(r.result).__name__, text=str(r.result), body=r.id)`, &got)
		if got.Kind != "ChordError" || !strings.Contains(got.Text, "member") {
			t.Errorf("Python sees %+v", got)
		}
		if runs := w.runs(got.Body); len(runs) > 0 {
			t.Errorf("the body ran: %+v", runs)
		}
	})
	t.Run("a failed step in Go ends a chain", func(t *testing.T) {
		var got struct {
			First end
			Last  string
		}
		w.eval(t, `
r = chain(sig("go.fail", "step", queue=GOQ), sig("py.add", 1))()
result = dict(first=outcome(r.parent), last=r.id)`, &got)
		if got.First.State != "FAILURE" || got.First.Error.Text != "step" {
			t.Errorf("%+v", got.First)
		}
		if events := w.worker.Events(got.Last); len(events) > 0 {
			t.Errorf("the second step ran: %+v", events)
		}
	})
}

// TestL4ByGo shows that workflows of Go go through both languages.
func TestL4ByGo(t *testing.T) {
	w := overRedis.get(t)
	on := task.WithQueue(w.pyQueue)
	here := task.WithQueue(w.goQueue)
	then := func(name string, y int, queue task.Option) task.Step[int, int] {
		return task.PrependTo[int](task.New[celery.Args, int](name), celery.Args{Args: []any{y}}, queue)
	}
	t.Run("Go, Python, Go", func(t *testing.T) {
		run, err := task.Chain3(goAdd.Bound(pair{1, 2}, here), then("py.mul", 3, on), then("go.mul", 7, here)).Submit(t.Context(), w.p, task.None{})
		if err != nil {
			t.Fatal(err)
		}
		if v := value(t, run.Future, nil); v != 63 {
			t.Errorf("result %d", v)
		}
		if d := cmp.Diff(pair{9, 7}, w.run(t, run.ID()).args); d != "" {
			t.Error(d)
		}
		if e := w.worker.Wait(t, string(run.Steps()[1].ID()), "ended"); cmp.Diff([]any{3.0, 3.0}, e.Args) != "" {
			t.Errorf("Python ran %+v", e)
		}
	})
	t.Run("a chord of both languages", func(t *testing.T) {
		members := task.Group(goAdd.Bound(pair{1, 2}, here), pyAdd.Bound(pair{3, 4}, on))
		run, err := task.Chord(members, goTotal.With(here)).Submit(t.Context(), w.p, task.None{})
		if err != nil {
			t.Fatal(err)
		}
		if v := value(t, run.Future, nil); v != 10 {
			t.Errorf("result %d", v)
		}
		if d := cmp.Diff([]int{3, 7}, w.run(t, run.ID()).args); d != "" {
			t.Error(d)
		}
		if n := len(w.runs(run.ID())); n != 1 {
			t.Errorf("the body ran %d times", n)
		}
	})
	t.Run("a chord of both languages with a body in Python", func(t *testing.T) {
		members := task.Group(goAdd.Bound(pair{1, 2}, here), pyAdd.Bound(pair{3, 4}, on), goMul.Bound(pair{5, 2}, here))
		run, err := task.Chord(members, pyTotal.With(on)).Submit(t.Context(), w.p, task.None{})
		if err != nil {
			t.Fatal(err)
		}
		if v := value(t, run.Future, nil); v != 20 {
			t.Errorf("result %d", v)
		}
		if e := w.worker.Wait(t, string(run.ID()), "started"); cmp.Diff([]any{[]any{3.0, 7.0, 10.0}}, e.Args) != "" {
			t.Errorf("Python ran %+v", e)
		}
	})
	t.Run("an exception of Python ends a chain of Go", func(t *testing.T) {
		run, err := task.Chain(pyFail.Bound(celery.Args{Args: []any{"cross"}}, on), then("go.mul", 2, here)).Submit(t.Context(), w.p, task.None{})
		if err != nil {
			t.Fatal(err)
		}
		if e := failure(t, task.FutureOf[int](run.Steps()[0]), nil); e.Type != "ValueError" || e.Module != "builtins" {
			t.Errorf("%+v", e)
		}
		if runs := w.runs(run.ID()); len(runs) > 0 {
			t.Errorf("the second step ran: %+v", runs)
		}
	})
	t.Run("a workflow of Go that Python waits for", func(t *testing.T) {
		run, err := task.Chain(goAdd.Bound(pair{1, 2}, here), then("py.mul", 5, on)).Submit(t.Context(), w.p, task.None{})
		if err != nil {
			t.Fatal(err)
		}
		var got json.RawMessage
		w.eval(t, "result = AsyncResult('"+string(run.ID())+"', app=app).get(timeout=60)", &got)
		wantJSON(t, got, `15`)
		if v := value(t, run.Future, nil); v != 15 {
			t.Errorf("result %d", v)
		}
	})
}
