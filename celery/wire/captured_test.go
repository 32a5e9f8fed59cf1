package wire_test

import (
	"encoding/json"
	"strings"

	"github.com/swarmiji/swarmiji/broker"
)

// captured are messages of Celery 5.2.6, as its producers and workers sent them. The ids are
// shortened.
var captured = map[string]*broker.Message{
	"add": message(`[[1, 2], {}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]`, map[string]any{
		"root_id": "fad0cb1e", "argsrepr": "(1, 2)", "kwargsrepr": "{}", "origin": "gen22739@vm", "x-custom": "v",
		"timelimit": []any{nil, nil}, "retries": int64(0), "ignore_result": false,
		"shadow": nil, "eta": nil, "expires": nil, "group": nil, "group_index": nil, "parent_id": nil,
	}),
	"late": message(`[[1], {"y": 2}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]`, map[string]any{
		"eta": "2026-11-20T14:52:46.112741+00:00", "expires": "2026-11-20T14:53:46.112741+00:00", "timelimit": []any{int64(20), int64(10)}, "retries": int32(2),
		"parent_id": "fad0cb1e",
	}),
	"chain": message(`[[1, 2], {}, {"callbacks": null, "errbacks": null, "chain": [
      {"task": "interop.add", "args": [4], "kwargs": {}, "options": {"queue": "other.q", "task_id": "39bab3ca", "reply_to": "904f5bb0"},
       "subtask_type": null, "immutable": false},
      {"task": "interop.mul", "args": [3], "kwargs": {}, "options": {"task_id": "03a0438f", "reply_to": "904f5bb0"}, "subtask_type": null, "immutable": false}], "chord": null}]`, nil),
	"callbacks": message(`[[1, 2], {}, {"callbacks": [{"task": "a.add", "args": [3], "kwargs": {}, "options": {}, "subtask_type": null, "immutable": false},
      {"task": "celery.group", "args": [], "kwargs": {"tasks": [{"task": "a.add", "args": [1], "kwargs": {}, "options": {}, "subtask_type": null, "immutable": false},
      {"task": "a.add", "args": [2], "kwargs": {}, "options": {}, "subtask_type": null, "immutable": false}]}, "options": {}, "subtask_type": "group", "immutable": false}],
      "errbacks": [{"task": "a.add", "args": [1, 2], "kwargs": {}, "options": {}, "subtask_type": null, "immutable": true}], "chain": null, "chord": null}]`, nil),
	"chord part": message(`[[3, 4], {}, {"callbacks": null, "errbacks": null, "chain": null, "chord": {"task": "celery.chain", "args": [], "kwargs": {"tasks": [
      {"task": "a.sum", "args": [], "kwargs": {}, "options": {"task_id": "07de1076", "reply_to": "a263861a"}, "subtask_type": null, "immutable": false},
      {"task": "a.add", "args": [9], "kwargs": {}, "options": {"task_id": "7252d8d6", "reply_to": "a263861a"}, "subtask_type": null, "immutable": false}]},
      "options": {}, "subtask_type": "chain", "immutable": false}}]`, map[string]any{"group": "f0f3c342", "group_index": int64(1)}),
	"chain in chord": message(`[[1, 2], {}, {"callbacks": null, "errbacks": null, "chain": [{"task": "a.add", "args": [5], "kwargs": {},
      "options": {"task_id": "4d4bf97c", "reply_to": "a263861a", "group_id": "f0f3c342", "chord": {"task": "a.sum", "args": [], "kwargs": {},
      "options": {"task_id": "07de1076", "reply_to": "a263861a"}, "subtask_type": null, "immutable": false}, "group_index": 0},
      "subtask_type": null, "immutable": false}], "chord": null}]`, nil),
	"chord in chain": message(`[[1, 2], {}, {"callbacks": null, "errbacks": null, "chain": [{"task": "celery.chord", "args": [], "kwargs": {"kwargs": {},
      "header": {"task": "celery.group", "args": [], "kwargs": {"tasks": [
        {"task": "a.add", "args": [1], "kwargs": {}, "options": {"task_id": "01c1cae3", "reply_to": "a263861a", "chord": {"task": "a.sum", "args": [], "kwargs": {},
          "options": {"task_id": "cede00ee", "reply_to": "a263861a"}, "subtask_type": null, "immutable": false}, "group_index": 0}, "subtask_type": null, "immutable": false},
        {"task": "a.add", "args": [2], "kwargs": {}, "options": {"task_id": "ff43bb42", "reply_to": "a263861a", "group_index": 1}, "subtask_type": null, "immutable": false}]},
        "options": {"task_id": "ba32e8ff", "root_id": null, "parent_id": null}, "subtask_type": "group", "immutable": false},
      "body": {"task": "a.sum", "args": [], "kwargs": {}, "options": {"task_id": "cede00ee", "reply_to": "a263861a"}, "subtask_type": null, "immutable": false}},
      "options": {"task_id": "ba32e8ff"}, "subtask_type": "chord", "immutable": false}], "chord": null}]`, nil),
	"group at the end": message(`[[1, 1], {}, {"callbacks": null, "errbacks": null, "chain": [{"task": "celery.group", "args": [], "kwargs": {"tasks": [
        {"task": "a.add", "args": [1], "kwargs": {}, "options": {"task_id": "ad6053f3", "reply_to": "a263861a", "group_index": 0}, "subtask_type": null, "immutable": false},
        {"task": "a.add", "args": [2], "kwargs": {}, "options": {"task_id": "a220c440", "reply_to": "a263861a", "group_index": 1}, "subtask_type": null, "immutable": false}]},
        "options": {"task_id": "b68d23dc"}, "subtask_type": "group", "immutable": false},
      {"task": "a.add", "args": [3], "kwargs": {}, "options": {"task_id": "7efa7156", "countdown": 5}, "subtask_type": null, "immutable": false}], "chord": null}]`, nil),
	"msgpack": msgpackMessage("\x93\x92\x01\x02\x80\x84\xa9callbacks\xc0\xa8errbacks\xc0\xa5chain\xc0\xa5chord\xc0"),
}

// message returns a message of task interop.add with this body and these headers.
func message(body string, headers map[string]any) *broker.Message {
	h := map[string]any{"lang": "py", "task": "interop.add", "id": "fad0cb1e"}
	for k, v := range headers {
		h[k] = v
	}
	return &broker.Message{
		ContentType: "application/json", Headers: h, Body: []byte(body),
		Properties: map[string]string{"content-encoding": "utf-8", "correlation-id": "fad0cb1e", "reply-to": "c28d8671", "priority": "0"},
	}
}

// msgpackMessage returns a message of task interop.add with this body in msgpack.
func msgpackMessage(body string) *broker.Message {
	m := message(body, nil)
	m.ContentType, m.Properties["content-encoding"] = "application/x-msgpack", "binary"
	return m
}

// compact returns JSON without spaces and with sorted keys.
func compact(text string) string {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return text
	}
	out, err := json.Marshal(v)
	if err != nil {
		return text
	}
	return string(out)
}
