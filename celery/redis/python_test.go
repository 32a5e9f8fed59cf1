package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/celery/internal/python"
	"github.com/swarmiji/swarmiji/celery/redis"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/serializer/msgpack"
	"github.com/swarmiji/swarmiji/task"
)

// both is a store of Go and a Python program on one server.
type both struct {
	*testing.T
	ctx    context.Context
	store  *redis.Store
	python *python.Producer
}

// start returns a store and a Python program whose results are in msgpack if packed is set.
func start(t *testing.T, packed bool) *both {
	srv := testserver.RequireRedis(t)
	to := address(srv, srv.Addr())
	s, err := redis.New(redis.Config{URL: to, Msgpack: packed, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	p := python.StartProducer(t, t.TempDir(), python.Config{Broker: "memory://", Results: to, Queue: "q", Node: "py@host", Msgpack: packed})
	t.Cleanup(func() {
		p.Close()
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return &both{t, testwait.Long(t), s, p}
}

func (b *both) save(rs ...resultstore.Record) {
	b.Helper()
	for _, r := range rs {
		if err := b.store.Save(b.ctx, r); err != nil {
			b.Fatal(err)
		}
	}
}

// eval runs Python code and returns its variable result.
func (b *both) eval(code string) any {
	b.Helper()
	var v any
	b.python.Eval(b, code, &v)
	return v
}

// TestPythonReads has Python read the results of Go consumers.
func TestPythonReads(t *testing.T) {
	b := start(t, false)
	at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	record := func(id task.ID, state task.State, change func(*resultstore.Record)) resultstore.Record {
		r := resultstore.Record{ID: id, Name: "go.task", State: state, Deliveries: 1, NodeID: "go@host", FinishedAt: at}
		if change != nil {
			change(&r)
		}
		return r
	}
	failed := func(err error) func(*resultstore.Record) {
		return func(r *resultstore.Record) { r.Error = task.Remote(err) }
	}
	prefix := task.ID(testserver.Namespace())
	b.save(
		record(prefix+"-json", task.StateSucceeded, func(r *resultstore.Record) {
			r.ContentType, r.Result = serializer.ContentJSON, []byte(`{"a":[1,2.5,"é",null,9007199254740993]}`)
			r.Children, r.Parent = []task.ID{prefix + "-child"}, "before"
		}),
		record(prefix+"-msgpack", task.StateSucceeded, func(r *resultstore.Record) {
			r.ContentType, r.Result = serializer.ContentMsgpack, []byte("\x92\x01\xa1x")
		}),
		record(prefix+"-none", task.StateSucceeded, nil),
		record(prefix+"-started", task.StateStarted, nil),
		record(prefix+"-retry", task.StateRetrying, failed(errors.New("again"))),
		record(prefix+"-failed", task.StateFailed, func(r *resultstore.Record) {
			r.Error = &task.RemoteError{Type: "fs.PathError", Message: "no file", Stack: "goroutine 1"}
		}),
		record(prefix+"-value", task.StateFailed, func(r *resultstore.Record) {
			r.Error = &task.RemoteError{Type: "ValueError", Module: "builtins", Message: "boom", Args: []any{"boom", int64(3)}}
		}),
		record(prefix+"-limit", task.StateFailed, failed(task.ErrTimeLimit)),
		record(prefix+"-soft", task.StateFailed, failed(task.ErrSoftTimeLimit)),
		record(prefix+"-unknown", task.StateFailed, failed(task.ErrUnknownTask)),
		record(prefix+"-args", task.StateFailed, failed(task.ErrBadArgs)),
		record(prefix+"-revoked", task.StateRevoked, failed(task.ErrRevoked)),
		record(prefix+"-expired", task.StateExpired, failed(task.ErrExpired)),
	)
	got := b.eval(fmt.Sprintf(`
def seen(name):
    r = AsyncResult("%s-" + name, app=app)
    v = r.result
    if isinstance(v, BaseException):
        v = [type(v).__module__ + "." + type(v).__name__, list(v.args)]
    return [r.state, v]
names = "json msgpack none started retry failed value limit soft unknown args revoked expired".split()
result = {n: seen(n) for n in names}
r = AsyncResult("%s-json", app=app)
result["more"] = [str(r.date_done), [c.id[-6:] for c in r.children], AsyncResult("%s-failed", app=app).traceback]
`, prefix, prefix, prefix))
	want := map[string]any{
		"json":    []any{"SUCCESS", map[string]any{"a": []any{1.0, 2.5, "é", nil, 9007199254740992.0}}},
		"msgpack": []any{"SUCCESS", []any{1.0, "x"}},
		"none":    []any{"SUCCESS", nil},
		"started": []any{"STARTED", map[string]any{"hostname": "go@host", "pid": 0.0}},
		"retry":   []any{"RETRY", []any{"celery.exceptions.errorString", []any{"again"}}},
		"failed":  []any{"FAILURE", []any{"celery.exceptions.PathError", []any{"no file"}}},
		"value":   []any{"FAILURE", []any{"builtins.ValueError", []any{"boom", 3.0}}},
		"limit":   []any{"FAILURE", []any{"billiard.exceptions.TimeLimitExceeded", []any{task.ErrTimeLimit.Error()}}},
		"soft":    []any{"FAILURE", []any{"billiard.exceptions.SoftTimeLimitExceeded", []any{task.ErrSoftTimeLimit.Error()}}},
		"unknown": []any{"FAILURE", []any{"celery.exceptions.NotRegistered", []any{"go.task"}}},
		"args":    []any{"FAILURE", []any{"builtins.TypeError", []any{task.ErrBadArgs.Error()}}},
		"revoked": []any{"REVOKED", []any{"celery.exceptions.TaskRevokedError", []any{"revoked"}}},
		"expired": []any{"REVOKED", []any{"celery.exceptions.TaskRevokedError", []any{"expired"}}},
		"more":    []any{"2026-01-02 03:04:05.678000", []any{"-child"}, "goroutine 1"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +seen by Python:\n%s", diff)
	}
}

// TestPythonWaits has Python wait for a result that Go stores later.
func TestPythonWaits(t *testing.T) {
	b := start(t, false)
	id := testserver.Namespace()
	b.eval(fmt.Sprintf(`
import builtins
r = AsyncResult("%s", app=app)
app.backend.add_pending_result(r)
builtins.waiting = r
`, id))
	b.save(resultstore.Record{ID: task.ID(id), State: task.StateSucceeded, Deliveries: 1, ContentType: serializer.ContentJSON, Result: []byte(`7`)})
	if got := b.eval("import builtins; result = builtins.waiting.get(timeout=60)"); got != 7.0 {
		t.Errorf("Python waited for %v, want 7", got)
	}
}

// TestGoReads has Go read and await the results of Python workers.
func TestGoReads(t *testing.T) {
	for _, packed := range []bool{false, true} {
		t.Run(fmt.Sprintf("msgpack=%v", packed), func(t *testing.T) {
			b := start(t, packed)
			id := testserver.Namespace()
			stream, err := b.store.Notify(b.ctx, "go")
			if err != nil {
				t.Fatal(err)
			}
			b.eval(fmt.Sprintf(`
app.backend.store_result("%s", [1, 2.0, "é"], "SUCCESS")
try:
    raise ValueError("boom", 3)
except ValueError as e:
    app.backend.store_result("%s-f", e, "FAILURE", traceback=traceback.format_exc())
`, id, id))
			ok, err := stream.Receive(b.ctx)
			if err != nil || ok.ID != task.ID(id) || ok.State != task.StateSucceeded {
				t.Errorf("received %+v, %v", ok, err)
			}
			var v []any
			var s serializer.Serializer = serializer.JSON{}
			if packed {
				s = msgpack.Serializer{}
			}
			if err := s.Unmarshal(ok.Result, &v); err != nil || ok.ContentType != s.ContentType() || v[2] != "é" {
				t.Errorf("%s %v: %v", ok.ContentType, v, err)
			}
			r, err := b.store.Load(b.ctx, task.ID(id+"-f"))
			if err != nil {
				t.Fatal(err)
			}
			e := r.Error
			if e == nil || e.Type != "ValueError" || e.Module != "builtins" || len(e.Args) != 2 || !strings.HasSuffix(e.Stack, "ValueError: ('boom', 3)\n") {
				t.Errorf("the error is %+v", e)
			}
			again := resultstore.Record{ID: task.ID(id), State: task.StateFailed, Deliveries: 1, Error: &task.RemoteError{Type: "x"}}
			if err := b.store.Save(b.ctx, again); !errors.Is(err, resultstore.ErrStale) {
				t.Errorf("a result of Python was replaced: %v", err)
			}
			if err := stream.Close(b.ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// part runs the end of a chord's part in Python, as a worker does, and returns the bodies that
// Python sent.
const part = `
from celery.app.task import Context
sent = []
app.signature(dict(task="py.total", args=[], kwargs={}, options={}))
class Body:
    id, task, options = "body", "py.total", {}
    def delay(self, results): sent.append(results)
    def keys(self): return []
import celery.backends.redis as module
module.maybe_signature = lambda *a, **k: Body()
def end(group, index, value, state="SUCCESS"):
    request = Context(id="py-%d" % index, group=group, group_index=index, chord={"task": "py.total"})
    app.backend.on_chord_part_return(request, state, value)
    return sent
`

// TestChord counts parts that run in Go and in Python together. The one that ends last sends the
// body.
func TestChord(t *testing.T) {
	b := start(t, false)
	arrive := func(group string, index int, state task.State) resultstore.Gathered {
		t.Helper()
		a := resultstore.Arrival{Group: task.ID(group), Index: index, Record: resultstore.Record{ID: task.ID(fmt.Sprint("go-", index)), Name: "go.part", State: state}}
		if state == task.StateSucceeded {
			a.Record.ContentType, a.Record.Result = serializer.ContentJSON, []byte(fmt.Sprint(index))
		} else {
			a.Record.Error = &task.RemoteError{Type: "x.Y", Message: "broken"}
		}
		g, err := b.store.Arrive(b.ctx, a)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	python := func(group string, index int, how string) any {
		t.Helper()
		return b.eval(part + fmt.Sprintf("result = end(%q, %d, %s)", group, index, how))
	}
	for name, test := range map[string]func(group string){
		"Go is last": func(group string) {
			if err := b.store.SetChordSize(b.ctx, task.ID(group), 3); err != nil {
				t.Fatal(err)
			}
			arrive(group, 2, task.StateSucceeded)
			if sent := python(group, 0, "10"); len(sent.([]any)) != 0 {
				t.Errorf("Python sent the body with %v", sent)
			}
			want := resultstore.Gathered{Size: 3, Done: 3, Decider: 1}
			for range 2 { // the second time after a crash
				if got := arrive(group, 1, task.StateSucceeded); got != want {
					t.Errorf("%+v, want %+v", got, want)
				}
			}
			if sent := python(group, 0, "10"); len(sent.([]any)) != 0 {
				t.Errorf("Python sent the body too, with %v", sent)
			}
			members, err := b.store.Members(b.ctx, task.ID(group), 0, 10)
			var texts []string
			for _, m := range members {
				texts = append(texts, string(m.ID)+" "+string(m.Result))
			}
			if diff := cmp.Diff([]string{"py-0 10", "go-1 1", "go-2 2"}, texts); err != nil || diff != "" {
				t.Errorf("%v, members: -want +got:\n%s", err, diff)
			}
		},
		"Python is last": func(group string) {
			b.eval(fmt.Sprintf("app.backend.set_chord_size(%q, 2)", group))
			if got, want := arrive(group, 1, task.StateSucceeded), (resultstore.Gathered{Size: 2, Done: 1, Decider: -1}); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
			if diff := cmp.Diff([]any{[]any{"zero", 1.0}}, python(group, 0, `"zero"`)); diff != "" {
				t.Errorf("the bodies of Python: -want +got:\n%s", diff)
			}
			if got := arrive(group, 1, task.StateSucceeded); got.Decider != -1 {
				t.Errorf("Go decided a chord that Python had ended: %+v", got)
			}
		},
		"a part fails in Python": func(group string) {
			b.eval(fmt.Sprintf("app.backend.set_chord_size(%q, 2)", group))
			python(group, 1, `ValueError("boom"), "FAILURE"`)
			if got, want := arrive(group, 0, task.StateSucceeded), (resultstore.Gathered{Size: 2, Done: 2, Failed: 1, Decider: 0}); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
			members, err := b.store.Members(b.ctx, task.ID(group), 1, 1)
			if err != nil || len(members) != 1 || members[0].State != task.StateFailed || members[0].Error.Type != "ValueError" {
				t.Fatalf("%+v, %v", members, err)
			}
			body := resultstore.Record{ID: task.ID(group + "-body"), State: task.StateFailed, Deliveries: 1, Error: members[0].Error.OfStep("", members[0].ID)}
			b.save(body)
			got := b.eval(fmt.Sprintf("e = AsyncResult('%s-body', app=app).result; result = [type(e).__name__, str(e)]", group))
			if diff := cmp.Diff([]any{"ChordError", "Dependency py-1 raised ValueError('boom')"}, got); diff != "" {
				t.Errorf("-want +seen by Python:\n%s", diff)
			}
			if r, err := b.store.Load(b.ctx, body.ID); err != nil || r.Error.Type != "ValueError" || r.Error.StepID != "py-1" {
				t.Errorf("Go reads %+v, %v", r.Error, err)
			}
		},
		"a part fails in Go": func(group string) {
			b.eval(fmt.Sprintf("app.backend.set_chord_size(%q, 2)", group))
			arrive(group, 0, task.StateFailed)
			got := b.eval(part + fmt.Sprintf(`
end(%q, 1, 5)
result = [sent, AsyncResult("body", app=app).state, type(AsyncResult("body", app=app).result).__name__]
`, group))
			if diff := cmp.Diff([]any{[]any{}, "FAILURE", "ChordError"}, got); diff != "" {
				t.Errorf("-want +seen by Python:\n%s", diff)
			}
		},
		"a member is retried after Go has decided": func(group string) {
			size := func() {
				t.Helper()
				if err := b.store.SetChordSize(b.ctx, task.ID(group), 3); err != nil {
					t.Fatal(err)
				}
			}
			size()
			failed := resultstore.Record{ID: "go-0", State: task.StateFailed, Error: &task.RemoteError{Type: "x.Y"}}
			g, err := b.store.Arrive(b.ctx, resultstore.Arrival{Group: task.ID(group), Index: 0, Size: 3, Record: failed, Decides: true})
			if err != nil || g.Decider != 0 {
				t.Fatalf("%+v, %v", g, err)
			}
			size()
			if got := b.eval(fmt.Sprintf("result = repr(app.backend.client.get('celery-taskset-meta-%s.s'))", group)); got != "None" {
				t.Errorf("Python would decide the chord of %s again", got)
			}
		},
		"a result of Python cannot be read": func(group string) {
			b.eval(fmt.Sprintf("app.backend.set_chord_size(%q, 2)", group))
			python(group, 0, `float("nan")`)
			arrive(group, 1, task.StateSucceeded)
			members, err := b.store.Members(b.ctx, task.ID(group), 0, 10)
			if err != nil || len(members) != 2 {
				t.Fatalf("%+v, %v", members, err)
			}
			if m := members[0]; m.ID.Check() != nil || m.State != task.StateFailed || !errors.Is(m.Error, task.ErrBadResult) {
				t.Errorf("%+v, %v", m, m.Error)
			}
		},
	} {
		t.Run(name, func(*testing.T) { test(testserver.Namespace()) })
	}
}
