package wire_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/celery/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// TestDecodeResult reads documents of Celery 5.2.6.
func TestDecodeResult(t *testing.T) {
	revoked := func(why string) string {
		return `{"status": "REVOKED", "result": {"exc_type": "TaskRevokedError", "exc_message": ["` + why + `"], "exc_module": "celery.exceptions"}, "traceback": null, "children": [], "date_done": null, "task_id": "af008186"}`
	}
	for name, c := range map[string]struct {
		doc  string
		want resultstore.Record
		is   error
	}{
		"started": {
			`{"status": "STARTED", "result": {"pid": 26558, "hostname": "capw@vm"}, "traceback": null, "children": [], "date_done": null, "task_id": "af008186"}`,
			resultstore.Record{State: task.StateStarted}, nil,
		},
		"success": {
			`{"status": "SUCCESS", "result": {"a": [2.0, 3]}, "traceback": null, "children": [[["92183d3b", null], null], [["c", "p"], []]], "date_done": "2026-11-20T14:54:02.571487", "task_id": "af008186", "parent_id": "p", "group_id": "g"}`,
			resultstore.Record{
				State: task.StateSucceeded, ContentType: "application/json", Result: []byte(`{"a": [2.0, 3]}`), Parent: "p", Group: "g",
				FinishedAt: time.Date(2026, 11, 20, 14, 54, 2, 571e6, time.UTC), Children: []task.ID{"92183d3b", "c"},
			}, nil,
		},
		"failure": {
			`{"status": "FAILURE", "result": {"exc_type": "ValueError", "exc_message": ["boom"], "exc_module": "builtins"}, "traceback": "Traceback ...\nValueError: boom\n", "children": [], "date_done": "2026-11-20T14:54:02", "task_id": "af008186"}`,
			resultstore.Record{
				State: task.StateFailed, FinishedAt: time.Date(2026, 11, 20, 14, 54, 2, 0, time.UTC),
				Error: &task.RemoteError{Type: "ValueError", Module: "builtins", Message: "boom", Args: []any{"boom"}, Stack: "Traceback ...\nValueError: boom\n"},
			}, nil,
		},
		"retry": {
			`{"status": "RETRY", "result": {"exc_type": "RuntimeError", "exc_message": ["attempt", 0], "exc_module": "builtins"}, "traceback": "...", "task_id": "af008186"}`,
			resultstore.Record{
				State: task.StateRetrying,
				Error: &task.RemoteError{Type: "RuntimeError", Module: "builtins", Message: `["attempt",0]`, Args: []any{"attempt", int64(0)}, Stack: "..."},
			}, nil,
		},
		"revoked": {
			revoked("terminated"), resultstore.Record{
				State: task.StateRevoked, Error: &task.RemoteError{Type: "swarmiji.Revoked", Module: "celery.exceptions", Message: "terminated", Args: []any{"terminated"}},
			}, task.ErrRevoked,
		},
		"expired": {
			revoked("expired"), resultstore.Record{
				State: task.StateExpired, Error: &task.RemoteError{Type: "swarmiji.Expired", Module: "celery.exceptions", Message: "expired", Args: []any{"expired"}},
			}, task.ErrExpired,
		},
		"unknown task": {
			`{"status": "FAILURE", "result": {"exc_type": "NotRegistered", "exc_message": ["interop.nope"], "exc_module": "celery.exceptions"}, "task_id": "af008186"}`,
			resultstore.Record{
				State: task.StateFailed,
				Error: &task.RemoteError{Type: "swarmiji.UnknownTask", Module: "celery.exceptions", Message: "interop.nope", Args: []any{"interop.nope"}},
			}, task.ErrUnknownTask,
		},
		"text as message": {
			`{"status": "FAILURE", "result": {"exc_type": "E", "exc_message": "old"}, "task_id": "af008186"}`,
			resultstore.Record{State: task.StateFailed, Error: &task.RemoteError{Type: "E", Message: "old", Args: []any{"old"}}}, nil,
		},
		"progress": {`{"status": "PROGRESS", "result": {"done": 3}, "task_id": "af008186"}`, resultstore.Record{State: task.StateStarted}, nil},
		"rpc":      {`{"task_id": "af008186", "status": "SUCCESS", "result": 3, "traceback": null, "children": []}`, resultstore.Record{State: task.StateSucceeded, ContentType: "application/json", Result: []byte("3")}, nil},
		"msgpack": {
			"\x83\xa6status\xa7SUCCESS\xa6result\xc4\x02\x00\xff\xa7task_id\xa8af008186",
			resultstore.Record{State: task.StateSucceeded, ContentType: serializer.ContentMsgpack, Result: []byte("\xc4\x02\x00\xff")}, nil,
		},
	} {
		got, foreign, err := wire.DecodeResult([]byte(c.doc))
		if !foreign {
			t.Errorf("%s: not Python's", name)
		}
		c.want.ID = "af008186"
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v, -want +got:\n%s", name, err, diff)
		}
		if c.is != nil && !errors.Is(got.Error, c.is) {
			t.Errorf("%s: %v is not %v", name, got.Error, c.is)
		}
	}
}

// records are records of every kind.
func records() map[string]resultstore.Record {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	full := resultstore.Record{
		ID: "id-1", Name: "a.add", State: task.StateSucceeded, Generation: 3, Deliveries: 2, Retries: 1, ContentType: serializer.ContentJSON, Result: []byte(`{"b": [1.0, 2]}`),
		StartedAt: at.Add(-time.Second), FinishedAt: at, NodeID: "w@host", ReplyTo: "p", Correlation: "mine", Life: 1, Parent: "before", Group: "g", Children: []task.ID{"c1", "c2"},
		Progress: task.ProgressValue{Done: 1, Total: 2, Note: "half", At: at},
	}
	all := map[string]resultstore.Record{"full": full}
	add := func(name string, change func(*resultstore.Record)) {
		r := resultstore.Record{ID: "id-1", State: task.StateSucceeded, Generation: 1, Deliveries: 1}
		change(&r)
		all[name] = r
	}
	add("nothing", func(*resultstore.Record) {})
	add("null", func(r *resultstore.Record) { r.ContentType, r.Result = serializer.ContentJSON, []byte("null") })
	add("msgpack", func(r *resultstore.Record) {
		r.ContentType, r.Result = serializer.ContentMsgpack, []byte("\x92\x01\xcb@\x00\x00\x00\x00\x00\x00\x00")
	})
	add("bytes", func(r *resultstore.Record) { r.ContentType, r.Result = serializer.ContentRaw, []byte("\x00\xff") })
	add("sealed", func(r *resultstore.Record) {
		r.ContentType, r.Result = serializer.ContentJSON+"+sealed", []byte("\x00\xff")
	})
	add("not JSON", func(r *resultstore.Record) { r.ContentType, r.Result = serializer.ContentJSON, []byte("{") })
	add("started", func(r *resultstore.Record) { r.State, r.NodeID, r.StartedAt = task.StateStarted, "w@host", at })
	add("awaiting", func(r *resultstore.Record) { r.State, r.FinishedAt = task.StateAwaiting, at })
	add("awaiting with an error", func(r *resultstore.Record) {
		r.State, r.Error = task.StateAwaiting, &task.RemoteError{Type: "x.Y", Message: "why", Stack: "s"}
	})
	add("requeued", func(r *resultstore.Record) {
		r.State, r.Error = task.StateRequeued, &task.RemoteError{Type: "x.Y", Message: "why"}
	})
	add("retrying", func(r *resultstore.Record) {
		r.State, r.Error = task.StateRetrying, &task.RemoteError{Type: "*errors.errorString", Message: "why"}
	})
	add("retrying without an error", func(r *resultstore.Record) { r.State = task.StateRetrying })
	add("failed", func(r *resultstore.Record) {
		r.State, r.Error = task.StateFailed, &task.RemoteError{Type: "fs.PathError", Message: "no file", Stack: "trace"}
	})
	add("step", func(r *resultstore.Record) {
		r.State, r.Error = task.StateFailed, &task.RemoteError{Type: "fs.PathError", Message: "no file", Step: "b", StepID: "id-2"}
	})
	add("Python's", func(r *resultstore.Record) {
		r.State, r.Error = task.StateFailed, &task.RemoteError{Type: "ValueError", Module: "builtins", Message: "boom", Args: []any{"boom"}}
	})
	add("revoked", func(r *resultstore.Record) { r.State, r.Error = task.StateRevoked, task.Remote(task.ErrRevoked) })
	add("expired", func(r *resultstore.Record) { r.State = task.StateExpired })
	return all
}

// TestResultRoundTrip reads the documents that it wrote, in both encodings.
func TestResultRoundTrip(t *testing.T) {
	for name, r := range records() {
		for _, contentType := range []string{serializer.ContentJSON, serializer.ContentMsgpack} {
			data, err := wire.EncodeResult(&r, contentType)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			got, foreign, err := wire.DecodeResult(data)
			if foreign {
				t.Errorf("%s: Python's", name)
			}
			if diff := cmp.Diff(r, got); err != nil || diff != "" {
				t.Errorf("%s in %s: %v, -want +got:\n%s", name, contentType, err, diff)
			}
		}
	}
}

// TestEncodeResult writes what Python reads.
func TestEncodeResult(t *testing.T) {
	all := records()
	for name, want := range map[string]string{
		"full":     `{"status":"SUCCESS","result":{"b":[1.0,2]},"traceback":null,"children":[[["c1",null],null],[["c2",null],null]],"date_done":"2026-01-02T03:04:05.678000","task_id":"id-1","parent_id":"before","group_id":"g"}`,
		"msgpack":  `{"status":"SUCCESS","result":[1,2.0],"traceback":null,"children":[],"date_done":null,"task_id":"id-1"}`,
		"bytes":    `{"status":"SUCCESS","result":null,"traceback":null,"children":[],"date_done":null,"task_id":"id-1"}`,
		"started":  `{"status":"STARTED","result":{"hostname":"w@host","pid":0},"traceback":null,"children":[],"date_done":null,"task_id":"id-1"}`,
		"failed":   `{"status":"FAILURE","result":{"exc_type":"PathError","exc_message":["no file"],"exc_module":"swarmiji"},"traceback":"trace","children":[],"date_done":null,"task_id":"id-1"}`,
		"Python's": `{"status":"FAILURE","result":{"exc_type":"ValueError","exc_message":["boom"],"exc_module":"builtins"},"traceback":null,"children":[],"date_done":null,"task_id":"id-1"}`,
		"revoked":  `{"status":"REVOKED","result":{"exc_type":"TaskRevokedError","exc_message":["revoked"],"exc_module":"celery.exceptions"},"traceback":null,"children":[],"date_done":null,"task_id":"id-1"}`,
		"expired":  `{"status":"REVOKED","result":{"exc_type":"TaskRevokedError","exc_message":["expired"],"exc_module":"celery.exceptions"},"traceback":null,"children":[],"date_done":null,"task_id":"id-1"}`,
	} {
		r := all[name]
		data, err := wire.EncodeResult(&r, "")
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]json.RawMessage
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		delete(got, "swarmiji")
		text, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(compact(want), compact(string(text))); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

// TestExceptions maps errors of this module to exceptions.
func TestExceptions(t *testing.T) {
	for _, c := range []struct {
		err  error
		want wire.Exception
	}{
		{task.ErrTimeLimit, wire.Exception{Type: "TimeLimitExceeded", Module: "billiard.exceptions", Args: []any{task.ErrTimeLimit.Error()}}},
		{task.ErrSoftTimeLimit, wire.Exception{Type: "SoftTimeLimitExceeded", Module: "billiard.exceptions", Args: []any{task.ErrSoftTimeLimit.Error()}}},
		{task.ErrUnknownTask, wire.Exception{Type: "NotRegistered", Module: "celery.exceptions", Args: []any{"a.add"}}},
		{task.ErrExpired, wire.Exception{Type: "TaskRevokedError", Module: "celery.exceptions", Args: []any{"expired"}}},
		{task.ErrBadArgs, wire.Exception{Type: "TypeError", Module: "builtins", Args: []any{task.ErrBadArgs.Error()}}},
		{task.Named("billing.Busy!", errors.New("try later")), wire.Exception{Type: "Busy", Module: "swarmiji", Args: []any{"try later"}}},
		{errors.New("boom"), wire.Exception{Type: "errorString", Module: "swarmiji", Args: []any{"boom"}}},
	} {
		if diff := cmp.Diff(c.want, wire.ToException(task.Remote(c.err), "a.add")); diff != "" {
			t.Errorf("%v: -want +got:\n%s", c.err, diff)
		}
	}
	long := wire.FromException(wire.Exception{Type: "E", Args: []any{strings.Repeat("x", 5000)}}, strings.Repeat("a", task.MaxStack)+"end")
	if long.Args != nil || len(long.Message) > task.MaxErrorText || !strings.HasSuffix(long.Stack, "end") || len(long.Stack) > task.MaxStack {
		t.Errorf("a long exception: %d args, %d bytes of message, %d of stack", len(long.Args), len(long.Message), len(long.Stack))
	}
}

// TestOddArgs shows that an error with a value that JSON does not have is stored as a text.
func TestOddArgs(t *testing.T) {
	r := resultstore.Record{ID: "a", State: task.StateFailed, Error: &task.RemoteError{Type: "E", Message: "m", Args: []any{math.Inf(1), "x"}}}
	doc, err := wire.EncodeResult(&r, "")
	if err != nil || !strings.Contains(string(doc), `"exc_message":["+Inf","x"]`) {
		t.Errorf("%s, %v", doc, err)
	}
	back, _, err := wire.DecodeResult(doc)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.Error, back.Error); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if part, err := wire.EncodePart(&r, ""); err != nil {
		t.Errorf("%s, %v", part, err)
	}
}

// TestBadResults reads documents that are none.
func TestBadResults(t *testing.T) {
	for _, doc := range []string{
		``, `{`, `[]`, `3`, `{}`, `{"status": 3, "task_id": "a"}`, `{"status": "SUCCESS"}`, `{"status": "SUCCESS", "task_id": "a b"}`,
		`{"status": "SUCCESS", "task_id": "a", "date_done": "x"}`, `{"status": "SUCCESS", "task_id": "a", "swarmiji": 3}`,
		`{"status": "SUCCESS", "task_id": "a", "swarmiji": {"state": "x"}}`, `{"status": "SUCCESS", "task_id": "a", "swarmiji": {"type": "x", "data": "%"}}`,
		"\x81\xa6status\x03", "\xc1", "\x90",
	} {
		if r, _, err := wire.DecodeResult([]byte(doc)); !errors.Is(err, resultstore.ErrMalformed) {
			t.Errorf("%q: %+v, %v, want ErrMalformed", doc, r, err)
		}
	}
	if _, err := wire.EncodeResult(&resultstore.Record{ID: "a", State: "x"}, ""); !errors.Is(err, resultstore.ErrMalformed) {
		t.Errorf("%v, want ErrMalformed", err)
	}
}
