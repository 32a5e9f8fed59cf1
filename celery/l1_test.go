package celery_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/celery"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/task"
)

// fromPython is a call of a Go task by Python.
type fromPython struct {
	name  string
	call  string // Python expression that submits the task
	value string // the result in JSON, as Python sees it
	args  any    // the arguments, as the Go handler gets them
	// check examines the first run in Go. nil: args say all.
	check func(t *testing.T, c call)
}

// send is a Python expression that calls a Go task.
func send(name, args string) string {
	return fmt.Sprintf("sig(%q, %s, queue=GOQ).apply_async()", name, args)
}

var callsFromPython = []fromPython{
	{name: "positional arguments", call: send("go.add", "1, 2"), value: `3`, args: pair{1, 2}},
	{name: "keyword arguments", call: send("go.add", "kwargs=dict(y=5, x=2)"), value: `7`, args: pair{2, 5}},
	{name: "both kinds of arguments", call: send("go.add", "1, kwargs=dict(y=9)"), value: `10`, args: pair{1, 9}},
	{name: "an optional argument is left out", call: send("go.page", "'a'"), value: `"a 0 false"`, args: page{Title: "a"}},
	{name: "an optional argument is given", call: send("go.page", "'a', 2.5, kwargs=dict(draft=True)"), value: `"a 2.5 true"`, args: page{"a", 2.5, true}},
	{name: "an int for a float", call: send("go.page", "'a', 2"), value: `"a 2 false"`, args: page{"a", 2, false}},
	{name: "a list as the only argument", call: send("go.total", "[1, 2, 3]"), value: `6`, args: []int{1, 2, 3}},
	{
		name: "nested values", call: send("go.order", "'o-1', [dict(sku='a', count=2), dict(sku='b', count=3)]"), value: `5`,
		check: func(t *testing.T, c call) {
			if o, ok := c.args.(order); !ok || o.ID != "o-1" || len(o.Lines) != 2 || o.Lines[1].SKU != "b" {
				t.Errorf("%+v", c.args)
			}
		},
	},
	{
		name: "any arguments", call: send("go.echo", "1, 'two', [3.5, None], kwargs=dict(k={'deep': [True]})"), value: `{"Args": [1, "two", [3.5, null]], "Kwargs": {"k": {"deep": [true]}}}`,
		args: celery.Args{Args: []any{int64(1), "two", []any{3.5, nil}}, Kwargs: map[string]any{"k": map[string]any{"deep": []any{true}}}},
	},
	{name: "letters of many languages", call: send("go.same", "'h\u00e9\u4e16\U0001f600'"), value: `"hé世😀"`, args: "hé世😀"},
	{name: "an integer of 64 bits", call: send("go.same", "2**62 + 1"), value: `4611686018427387905`, args: int64(1<<62 + 1)},
	{name: "no arguments", call: send("go.echo", "*[]"), value: `{"Args": [], "Kwargs": {}}`, args: celery.Args{Args: []any{}, Kwargs: map[string]any{}}},
	{name: "null", call: send("go.same", "None"), value: `null`, args: nil},
	{name: "msgpack", call: `sig("go.add", 3, 4, queue=GOQ).apply_async(serializer="msgpack")`, value: `7`, args: pair{3, 4}},
	{name: "bytes in msgpack", call: `sig("go.bytes", b"\x00\xff", queue=GOQ).apply_async(serializer="msgpack")`, value: `2`, args: []byte{0, 0xff}},
	{name: "zlib", call: `sig("go.same", "x" * 5000, queue=GOQ).apply_async(compression="zlib")`, value: `"` + strings.Repeat("x", 5000) + `"`, args: strings.Repeat("x", 5000)},
	{name: "gzip", call: `sig("go.add", 5, 6, queue=GOQ).apply_async(compression="gzip")`, value: `11`, args: pair{5, 6}},
	{name: "bzip2", call: `sig("go.add", 6, 6, queue=GOQ).apply_async(compression="bzip2")`, value: `12`, args: pair{6, 6}},
	{
		name: "large integers in headers", value: `2`, args: pair{1, 1},
		call: `sig("go.add", 1, 1, queue=GOQ).apply_async(headers={"sent-ms": 1764561423000, "deep": {"ids": [2**40, -2**40]}})`,
	},
	{
		name: "a header of the user", call: `sig("go.add", 1, 1, queue=GOQ).apply_async(headers={"x-custom": "v"})`, value: `2`,
		check: func(t *testing.T, c call) {
			if c.request.Headers["x-custom"] != "v" {
				t.Errorf("headers %v", c.request.Headers)
			}
		},
	},
	{
		name: "an id that is no UUID", call: `sig("go.add", 1, 1, queue=GOQ).apply_async(task_id="order-7-" + str(time.time()))`, value: `2`,
		check: func(t *testing.T, c call) {
			if !strings.HasPrefix(string(c.request.ID), "order-7-") || c.request.Queue == "" || c.request.Retries != 0 {
				t.Errorf("request %+v", c.request.Envelope)
			}
		},
	},
	{
		name: "a priority", call: `sig("go.add", 1, 1, queue=GOQ).apply_async(priority=9)`, value: `2`,
		check: func(t *testing.T, c call) {
			if p := c.request.Effective.Priority.Or(0); p != 91 {
				t.Errorf("priority %d", p)
			}
		},
	},
	{
		name: "time limits that hold", call: `sig("go.add", 2, 2, queue=GOQ).apply_async(time_limit=60, soft_time_limit=30.5)`, value: `4`,
		check: func(t *testing.T, c call) {
			if m := c.request.Effective; m.TimeLimit.Or(0) != time.Minute || m.SoftTimeLimit.Or(0) != 30500*time.Millisecond {
				t.Errorf("limits %v, %v", m.TimeLimit, m.SoftTimeLimit)
			}
		},
	},
	{
		name: "a retry", call: send("go.later", "2"), value: `2`,
		check: func(t *testing.T, c call) {
			if c.request.Retries != 0 || c.request.Parent != "" {
				t.Errorf("first attempt %+v", c.request.Envelope)
			}
		},
	},
	{
		name: "a countdown", call: `sig("go.add", 1, 2, queue=GOQ).apply_async(countdown=1)`, value: `3`,
		check: func(t *testing.T, c call) {
			if due, ok := c.request.Meta.NotBefore.Get(); !ok || c.at.Before(due) {
				t.Errorf("it ran at %v, before %v", c.at, due)
			}
		},
	},
	{
		name: "an ETA without an offset, which is UTC",
		call: `sig("go.add", 1, 3, queue=GOQ).apply_async(eta=__import__("datetime").datetime.utcnow() + __import__("datetime").timedelta(seconds=1))`, value: `4`,
		check: func(t *testing.T, c call) {
			if due, ok := c.request.Meta.NotBefore.Get(); !ok || c.at.Before(due) || due.Sub(c.request.Received) > time.Minute {
				t.Errorf("it ran at %v, received at %v, due %v", c.at, c.request.Received, due)
			}
		},
	},
	{
		name: "an expiry in the future", call: `sig("go.add", 1, 4, queue=GOQ).apply_async(expires=120)`, value: `5`,
		check: func(t *testing.T, c call) {
			if at, ok := c.request.Meta.Expires.Get(); !ok || at.Before(c.at) {
				t.Errorf("expires %v", at)
			}
		},
	},
}

// TestL1Calls shows that Python calls Go tasks and gets their results, over both result backends.
func TestL1Calls(t *testing.T) {
	for name, lazy := range map[string]*lazyWorld{"redis": overRedis, "rpc": overRPC} {
		t.Run(name, func(t *testing.T) {
			w := lazy.get(t)
			for _, c := range callsFromPython {
				t.Run(c.name, func(t *testing.T) {
					id, end := w.submit(t, c.call)
					if end.State != "SUCCESS" || end.Error != nil {
						t.Fatalf("Python sees %s, %+v\n%s", end.State, end.Error, end.Traceback)
					}
					wantJSON(t, end.Value, c.value)
					run := w.run(t, id)
					if c.check != nil {
						c.check(t, run)
					} else if d := cmp.Diff(c.args, run.args); d != "" {
						t.Errorf("the Go handler gets (-want +got):\n%s", d)
					}
				})
			}
		})
	}
}

// failedFromPython is a call of a Go task that fails.
type failedFromPython struct {
	name string
	call string
	// the exception of Python: its class, module, a part of its text and its arguments
	kind, module, text string
	args               []any
	state              string // "": FAILURE
	runs               int    // of the Go handler
}

var failuresFromPython = []failedFromPython{
	{name: "an error", call: send("go.fail", "'out of paper'"), kind: "errorString", text: "out of paper", runs: 1},
	{name: "an error with a type", call: send("go.fail", "'payment'"), kind: "errPayment", text: "no cover for 7", runs: 1},
	{name: "an exception of Python", call: send("go.pyerror", "'k'"), kind: "KeyError", module: "builtins", text: "k", args: []any{"k", 2.0}, runs: 1},
	{name: "a panic", call: send("go.panic", "*[]"), kind: "Panic", text: "out of range", runs: 1},
	{name: "no retry is left", call: send("go.later", "99"), text: "attempt 3", runs: 4},
	{name: "an argument is missing", call: send("go.add", "1"), kind: "TypeError", module: "builtins", text: "y"},
	{name: "an argument too many", call: send("go.add", "1, 2, 3"), kind: "TypeError", module: "builtins"},
	{name: "an unknown keyword", call: send("go.add", "1, 2, kwargs=dict(z=2)"), kind: "TypeError", module: "builtins", text: "z"},
	{name: "an argument of another type", call: send("go.add", "1, 'two'"), kind: "TypeError", module: "builtins", text: "y"},
	{name: "a soft time limit", call: `sig("go.slow", "s", queue=GOQ).apply_async(soft_time_limit=0.1)`, kind: "SoftTimeLimitExceeded", module: "billiard.exceptions", runs: 1},
	{name: "a hard time limit", call: `sig("go.slow", "h", queue=GOQ).apply_async(time_limit=0.1)`, kind: "TimeLimitExceeded", module: "billiard.exceptions", runs: 1},
	{name: "expired", call: `sig("go.add", 1, 1, queue=GOQ).apply_async(countdown=1.5, expires=0.5)`, kind: "TaskRevokedError", module: "celery.exceptions", text: "expired", state: "REVOKED"},
	{name: "an unknown task", call: send("go.nowhere", "1"), kind: "NotRegistered", module: "celery.exceptions", text: "go.nowhere"},
}

// TestL1Failures shows that Python gets the exceptions that it would get from a Python worker.
func TestL1Failures(t *testing.T) {
	for name, lazy := range map[string]*lazyWorld{"redis": overRedis, "rpc": overRPC} {
		t.Run(name, func(t *testing.T) {
			w := lazy.get(t)
			for _, c := range failuresFromPython {
				t.Run(c.name, func(t *testing.T) {
					id, end := w.submit(t, c.call)
					state := c.state
					if state == "" {
						state = "FAILURE"
					}
					if end.Error == nil || end.State != state {
						t.Fatalf("Python sees %s, %s", end.State, end.Value)
					}
					e := end.Error
					if c.kind != "" && e.Type != c.kind || c.module != "" && e.Module != c.module || !strings.Contains(e.Text, c.text) {
						t.Errorf("Python sees %+v, want %s of %s: %s", e, c.kind, c.module, c.text)
					}
					if d := cmp.Diff(c.args, e.Args); c.args != nil && d != "" {
						t.Errorf("arguments of the exception (-want +got):\n%s", d)
					}
					if n := len(w.runs(id)); n != c.runs {
						t.Errorf("%d runs in Go, want %d", n, c.runs)
					}
				})
			}
		})
	}
}

// TestL1Stored shows what Python reads of the record of a Go task besides its result.
func TestL1Stored(t *testing.T) {
	w := overRedis.get(t)
	t.Run("children and parent of a chain", func(t *testing.T) {
		var got struct {
			First, Last string
			Children    []string
			Parent      string
		}
		w.eval(t, `
r = chain(sig("go.add", 1, 2, queue=GOQ), sig("go.mul", 10, queue=GOQ))()
r.get(timeout=60)
doc = r.backend.get_task_meta(r.id)
result = dict(first=r.parent.id, last=r.id, children=[c.id for c in r.parent.children], parent=doc.get("parent_id"))`, &got)
		if len(got.Children) != 1 || got.Children[0] != got.Last || got.Parent != got.First {
			t.Errorf("%+v", got)
		}
		if run := w.run(t, task.ID(got.Last)); string(run.request.Parent) != got.First || string(run.request.RootID()) != got.First {
			t.Errorf("Go sees the parent %s and the root %s", run.request.Parent, run.request.RootID())
		}
	})
	t.Run("the group of a task", func(t *testing.T) {
		var got struct{ ID, Group, Want string }
		w.eval(t, `
g = group([sig("go.add", 1, 2, queue=GOQ)]).apply_async()
g.get(timeout=60)
result = dict(id=g.results[0].id, group=g.backend.get_task_meta(g.results[0].id).get("group_id"), want=g.id)`, &got)
		if got.Group != got.Want || got.Want == "" || string(w.run(t, task.ID(got.ID)).request.Group) != got.Want {
			t.Errorf("%+v, Go sees %s", got, w.run(t, task.ID(got.ID)).request.Group)
		}
	})
	t.Run("the time of the end", func(t *testing.T) {
		var got struct {
			ID   task.ID
			Done float64
		}
		w.eval(t, `
import datetime
r = sig("go.add", 1, 2, queue=GOQ).apply_async()
r.get(timeout=60)
result = dict(id=r.id, done=r.date_done.replace(tzinfo=datetime.timezone.utc).timestamp())`, &got)
		if at := w.run(t, got.ID).at; time.UnixMilli(int64(got.Done*1000)).Sub(at).Abs() > time.Minute {
			t.Errorf("done at %v, ran at %v", got.Done, at)
		}
	})
	t.Run("STARTED while it runs", func(t *testing.T) {
		var got struct {
			ID   task.ID
			Info struct{ Hostname string }
		}
		w.eval(t, `
r = sig("go.slow", "w", queue=GOQ).apply_async(soft_time_limit=20)
for i in range(600):
    if r.state == "STARTED":
        break
    time.sleep(0.05)
result = dict(id=r.id, info=r.info)`, &got)
		if run := w.run(t, got.ID); got.Info.Hostname == "" || got.Info.Hostname != run.request.NodeID {
			t.Errorf("Python sees the host %q, Go is %q", got.Info.Hostname, run.request.NodeID)
		}
	})
	t.Run("an ignored result", func(t *testing.T) {
		var got struct {
			ID     task.ID
			Stored bool
		}
		w.eval(t, `
r = sig("go.add", 1, 2, queue=GOQ).apply_async(ignore_result=True)
marker = sig("go.add", 3, 4, queue=GOQ).apply_async()
marker.get(timeout=60)
result = dict(id=r.id)`, &got)
		run := w.run(t, got.ID)
		if d := cmp.Diff(pair{1, 2}, run.args); d != "" || !run.request.Effective.IgnoreResult.Or(false) {
			t.Errorf("%v ignored %v", run.args, run.request.Effective.IgnoreResult)
		}
		w.eval(t, fmt.Sprintf("result = dict(stored=AsyncResult(%q, app=app).state == 'SUCCESS')", got.ID), &got)
		if got.Stored {
			t.Error("the result is stored")
		}
	})
}

// TestL1DeadLetter shows that an unknown task is kept as a dead letter beside the FAILURE.
func TestL1DeadLetter(t *testing.T) {
	w := overRedis.get(t)
	id, end := w.submit(t, send("go.lost", "7"))
	if end.Error == nil || end.Error.Type != "NotRegistered" {
		t.Fatalf("%+v", end)
	}
	dead, ok := capability.As[broker.DeadLetterer](w.swarm.Broker)
	if !ok {
		t.Fatal("the broker keeps no dead letters")
	}
	testwait.UntilNil(t, "the dead letter", func() error {
		found := false
		err := dead.ScanDead(testwait.Long(t), w.goQueue, func(d *broker.Dead) broker.DeadAction {
			found = found || d.Message.ID == string(id) && json.Valid(d.Message.Body)
			return broker.DeadKeep
		})
		if err == nil && !found {
			err = fmt.Errorf("no dead letter of %s", id)
		}
		return err
	})
}

// TestL1Successors shows that callbacks, error callbacks and chains of Python follow Go tasks.
func TestL1Successors(t *testing.T) {
	for name, lazy := range map[string]*lazyWorld{"redis": overRedis, "rpc": overRPC} {
		t.Run(name, func(t *testing.T) {
			w := lazy.get(t)
			t.Run("a callback in Python", func(t *testing.T) {
				_, end := w.submit(t, `sig("go.add", 1, 2, queue=GOQ).apply_async(link=sig("py.note", "own", task_id="cb-"+GOQ))`)
				wantJSON(t, end.Value, `3`)
				if e := w.worker.Wait(t, "cb-"+w.goQueue, "ended"); cmp.Diff([]any{3.0, "own"}, e.Args) != "" || e.State != "SUCCESS" {
					t.Errorf("Python ran %+v", e)
				}
			})
			t.Run("a callback in Go", func(t *testing.T) {
				id, end := w.submit(t, `sig("go.add", 2, 2, queue=GOQ).apply_async(link=sig("go.mul", 5, queue=GOQ, task_id="cbgo-"+GOQ))`)
				wantJSON(t, end.Value, `4`)
				if run := w.run(t, task.ID("cbgo-"+w.goQueue)); run.args != (pair{4, 5}) || run.request.Parent != id {
					t.Errorf("Go ran %+v after %s", run.args, run.request.Parent)
				}
			})
			t.Run("an error callback in Python", func(t *testing.T) {
				id, end := w.submit(t, `sig("go.fail", "x", queue=GOQ).apply_async(link_error=sig("py.note", task_id="eb-"+GOQ))`)
				if end.State != "FAILURE" {
					t.Errorf("state %s", end.State)
				}
				if e := w.worker.Wait(t, "eb-"+w.goQueue, "ended"); cmp.Diff([]any{string(id)}, e.Args) != "" {
					t.Errorf("Python ran %+v, want the id %s", e, id)
				}
			})
			t.Run("an error callback in Go", func(t *testing.T) {
				id, end := w.submit(t, `sig("go.fail", "y", queue=GOQ).apply_async(link_error=sig("go.echo", "own", queue=GOQ, task_id="ebgo-"+GOQ))`)
				if end.State != "FAILURE" {
					t.Errorf("state %s", end.State)
				}
				want := celery.Args{Args: []any{string(id), "own"}, Kwargs: map[string]any{}}
				if d := cmp.Diff(want, w.run(t, task.ID("ebgo-"+w.goQueue)).args); d != "" {
					t.Errorf("(-want +got):\n%s", d)
				}
			})
			t.Run("a chain that keeps its steps through a retry", func(t *testing.T) {
				id, end := w.submit(t, `chain(sig("go.later", 1, queue=GOQ), sig("go.add", 10, queue=GOQ))()`)
				wantJSON(t, end.Value, `11`)
				if run := w.run(t, id); run.args != (pair{1, 10}) {
					t.Errorf("Go ran %+v", run.args)
				}
			})
			t.Run("an immutable step", func(t *testing.T) {
				id, end := w.submit(t, `chain(sig("go.add", 1, 2, queue=GOQ), sig("go.add", 5, 6, queue=GOQ, immutable=True))()`)
				wantJSON(t, end.Value, `11`)
				if run := w.run(t, id); run.args != (pair{5, 6}) {
					t.Errorf("Go ran %+v", run.args)
				}
			})
			t.Run("all digits of an integer in a chain", func(t *testing.T) {
				id, end := w.submit(t, `chain(sig("go.same", 2**62 + 1, queue=GOQ), sig("go.same", queue=GOQ))()`)
				wantJSON(t, end.Value, `4611686018427387905`)
				if run := w.run(t, id); run.args != int64(1<<62+1) {
					t.Errorf("Go ran %v", run.args)
				}
			})
			t.Run("a group", func(t *testing.T) {
				var got struct {
					IDs    []task.ID
					Values json.RawMessage
				}
				w.eval(t, `
g = group([sig("go.mul", n, n, queue=GOQ) for n in range(5)]).apply_async()
result = dict(values=g.get(timeout=60), ids=[r.id for r in g.results])`, &got)
				wantJSON(t, got.Values, `[0, 1, 4, 9, 16]`)
				if run := w.run(t, got.IDs[3]); run.args != (pair{3, 3}) || run.request.Group == "" {
					t.Errorf("Go ran %+v in the group %q", run.args, run.request.Group)
				}
			})
		})
	}
}
