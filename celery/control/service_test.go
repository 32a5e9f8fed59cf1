package control_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/celery/control"
	"github.com/swarmiji/swarmiji/task"
)

// send sends a command as Celery's clients do and returns the reply of go@vm, or "" without one.
func send(t testing.TB, tr *memory, method, arguments string, more ...string) string {
	t.Helper()
	body := fmt.Sprintf(`{"method": %q, "arguments": %s, "destination": null, "pattern": null, "matcher": null,
		"ticket": "t1", "reply_to": {"exchange": "reply.celery.pidbox", "routing_key": "oid"}%s}`, method, arguments, strings.Join(more, ""))
	return raw(t, tr, body)
}

// raw sends a command with this body and returns the reply.
func raw(t testing.TB, tr *memory, body string) string {
	t.Helper()
	m := &control.Message{Exchange: control.Commands, Headers: map[string]any{"clock": int64(5), "expires": 0.0}, JSON: true, Body: []byte(body)}
	if err := tr.Publish(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	replies := tr.taken(control.Replies)
	if len(replies) == 0 {
		return ""
	}
	var reply map[string]json.RawMessage
	if err := json.Unmarshal(replies[0].Body, &reply); err != nil || len(replies) != 1 || replies[0].Key != "oid" || replies[0].Headers["ticket"] != "t1" {
		t.Fatalf("%d replies, %+v, %v", len(replies), replies[0], err)
	}
	return string(reply["go@vm"])
}

// TestCommands compares the replies of commands with those of Celery, and the calls of the node.
func TestCommands(t *testing.T) {
	for _, c := range []struct {
		method, arguments, want string
		calls                   []string
	}{
		{"ping", `{}`, `{"ok":"pong"}`, nil},
		{"registered", `{}`, `["go.add","go.mul"]`, nil},
		{"registered", `{"taskinfoitems": [], "builtins": true}`, `["celery.ping","go.add","go.mul"]`, nil},
		{"dump_tasks", `{}`, `["go.add","go.mul"]`, nil},
		{"scheduled", `{}`, `[]`, nil},
		{"revoked", `{}`, `[]`, nil},
		{"bogus_cmd", `{}`, `{"error":"KeyError('bogus_cmd')"}`, nil},
		{"it's", `{}`, `{"error":"KeyError(\"it's\")"}`, nil},
		{"revoke", `{"task_id": "x1", "terminate": false, "signal": "SIGTERM"}`, `{"ok":"tasks x1 flagged as revoked"}`, []string{"revoke[false,1]"}},
		{"revoke", `{"task_id": ["x1", "x2"]}`, `{"ok":"tasks x1, x2 flagged as revoked"}`, []string{"revoke[false,2]"}},
		{"revoke", `{"task_id": "a1", "terminate": true}`, `{"ok":"terminate: a1"}`, []string{"revoke[true,1]"}},
		{"terminate", `{"signal": "SIGKILL", "task_id": ["z"]}`, `{"ok":"terminate: tasks unknown"}`, []string{"revoke[true,1]"}},
		{"revoke", `{"task_id": 5}`, `{"error":"TypeError('task_id must be a text or a list of at most 50000 texts')"}`, nil},
		{"revoke", `{"task_id": "not an id"}`, `{"error":"ValueError('not the id of a task: not an id')"}`, nil},
		{"revoke", `{}`, `{"error":"TypeError(\"missing 1 required positional argument: 'task_id'\")"}`, nil},
		{"rate_limit", `{"task_name": "go.add", "rate_limit": "10/m"}`, `{"ok":"new rate limit set successfully"}`, []string{`rate["go.add","10/m"]`}},
		{"rate_limit", `{"task_name": "go.add", "rate_limit": 0}`, `{"ok":"rate limit disabled successfully"}`, []string{`rate["go.add",""]`}},
		{"rate_limit", `{"task_name": "go.add", "rate_limit": null}`, `{"ok":"rate limit disabled successfully"}`, []string{`rate["go.add",""]`}},
		{"rate_limit", `{"task_name": "go.add", "rate_limit": "0.5/s"}`, `{"ok":"new rate limit set successfully"}`, []string{`rate["go.add","30/m"]`}},
		{"rate_limit", `{"task_name": "go.add", "rate_limit": 7}`, `{"ok":"new rate limit set successfully"}`, []string{`rate["go.add","7/s"]`}},
		{"rate_limit", `{"task_name": "go.no", "rate_limit": "10/m"}`, `{"error":"unknown task"}`, nil},
		{"rate_limit", `{"task_name": "go.add", "rate_limit": "x/m"}`, `{"error":"Invalid rate limit string: ValueError(\"could not convert string to float: 'x'\")"}`, nil},
		{"time_limit", `{"task_name": "go.no", "soft": 1, "hard": 2}`, `{"error":"unknown task"}`, nil},
		{"time_limit", `{"task_name": "go.add", "soft": 1, "hard": 2}`, `{"error":"the time limits of a task of this worker are those of its definition and its message"}`, nil},
		{"pool_grow", `{"n": 2}`, `{"ok":"pool will grow"}`, []string{`scale["q",4]`}},
		{"pool_grow", `{}`, `{"ok":"pool will grow"}`, []string{`scale["q",3]`}},
		{"pool_shrink", `{"n": 1}`, `{"ok":"pool will shrink"}`, []string{`scale["q",1]`}},
		{"pool_shrink", `{"n": 10000}`, `{"ok":"pool will shrink"}`, []string{`scale["q",1]`}},
		{"pool_grow", `{"n": -1}`, `{"error":"TypeError('n must be a whole number from 1 to 10000')"}`, nil},
		{"pool_grow", `{"n": 1e300}`, `{"error":"TypeError('n must be a whole number from 1 to 10000')"}`, nil},
		{"autoscale", `{"max": 4, "min": 1}`, `{"error":"ValueError('Autoscale not enabled')"}`, nil},
		{"pool_restart", `{}`, `{"error":"ValueError('Pool restarts not enabled')"}`, nil},
		{"add_consumer", `{"queue": "new", "exchange": null, "exchange_type": "direct", "routing_key": null}`, `{"ok":"add consumer new"}`, []string{`serve["new",0]`}},
		{"add_consumer", `{"queue": "q"}`, `{"ok":"add consumer q"}`, nil},
		{"add_consumer", `{"queue": "bad"}`, `{"error":"no such queue"}`, nil},
		{"add_consumer", `{"queue": "new", "exchange": "other"}`, `{"error":"this worker consumes queues whose exchange has the name of the queue"}`, nil},
		{"cancel_consumer", `{"queue": "q"}`, `{"ok":"no longer consuming from q"}`, []string{`leave["q"]`}},
		{"cancel_consumer", `{"queue": "unknown"}`, `{"ok":"no longer consuming from unknown"}`, nil},
		{"enable_events", `{}`, `{"ok":"task events already enabled"}`, nil},
		{"disable_events", `{}`, `{"ok":"task events disabled"}`, nil},
		{"election", `{"id": "1", "topic": "x"}`, `null`, nil},
		{"heartbeat", `{}`, `null`, nil},
		{"hello", `{"from_node": "go@vm", "revoked": {}}`, `null`, nil},
		{"shutdown", `{}`, ``, []string{`stop[]`}},
	} {
		n := &fakeNode{queues: []string{"q"}, workers: 2}
		tr, _, s := served(t, n, control.ServiceConfig{})
		if got := send(t, tr, c.method, c.arguments); got != c.want {
			t.Errorf("%s %s:\n  %s\nwant\n  %s", c.method, c.arguments, got, c.want)
		}
		for i := range n.calls {
			n.calls[i] = strings.Replace(n.calls[i], "null", "[]", 1)
		}
		if diff := cmp.Diff(c.calls, n.calls); diff != "" {
			t.Errorf("%s %s: calls of the node (-want +got):\n%s", c.method, c.arguments, diff)
		}
		if s.Counts() != (control.Counts{Executed: 1}) {
			t.Errorf("%s: counts %+v", c.method, s.Counts())
		}
	}
}

// TestDescriptions shows that tasks have the fields that Celery's clients read.
func TestDescriptions(t *testing.T) {
	tr, _, _ := served(t, &fakeNode{queues: []string{"q"}, workers: 2}, control.ServiceConfig{})
	for method, wants := range map[string][]string{
		"active":        {`"id":"a1"`, `"name":"go.add"`, `"hostname":"go@vm"`, `"routing_key":"q"`, `"acknowledged":false`, `"args":[]`, `"kwargs":{}`},
		"dump_reserved": {`"id":"r1"`, `"worker_pid":null`, `"time_start":null`},
		"active_queues": {`"name":"q"`, `"type":"direct"`, `"durable":true`},
		"stats":         {`"clock":"`, `"max-concurrency":2`, `"prefetch_count":8`, `"uptime":0`, `"transport":"memory"`},
		"conf":          {`"broker_url":"memory://here:0//"`, `"worker_concurrency":2`},
		"report":        {`swarmiji:`, `go:go1`},
		"clock":         {`{"clock":`},
		"memsample":     {`MB"`},
	} {
		got := send(t, tr, method, `{}`)
		for _, want := range wants {
			if !strings.Contains(got, want) {
				t.Errorf("%s has no %s: %s", method, want, got)
			}
		}
	}
	got := send(t, tr, "query_task", `{"ids": ["a1", "r1", "none"]}`)
	if !strings.Contains(got, `"a1":["active",{`) || !strings.Contains(got, `"r1":["reserved",{`) || strings.Contains(got, "none") {
		t.Errorf("query_task: %s", got)
	}
}

// TestAddressing shows that only the addressed node executes a command and replies.
func TestAddressing(t *testing.T) {
	const to = `, "reply_to": {"exchange": "reply.celery.pidbox", "routing_key": "oid"}, "ticket": "t1"}`
	for rest, want := range map[string]bool{
		``:                                true,
		`, "destination": []`:             true,
		`, "destination": ["go@vm"]`:      true,
		`, "destination": ["x", "go@vm"]`: true,
		`, "destination": ["go@v"]`:       false,
		`, "destination": ["x"], "pattern": "go*", "matcher": "glob"`: false,
		`, "pattern": "go*", "matcher": "glob"`:                       true,
		`, "pattern": "[!x]o@*", "matcher": "glob"`:                   true,
		`, "pattern": "py*", "matcher": "glob"`:                       false,
		`, "pattern": "go@", "matcher": "pcre"`:                       true,
		`, "pattern": "@vm", "matcher": "pcre"`:                       false,
		`, "pattern": "py", "matcher": null`:                          true,
	} {
		tr, _, s := served(t, &fakeNode{}, control.ServiceConfig{})
		got := raw(t, tr, `{"method": "ping", "arguments": null`+rest+to)
		if (got != "") != want || s.Counts().NotMine != map[bool]uint64{true: 0, false: 1}[want] {
			t.Errorf("%s: reply %q, counts %+v", rest, got, s.Counts())
		}
	}
}

// hostile has bodies without a valid command.
var hostile = []string{
	``, `null`, `5`, `"ping"`, `[]`, `{}`, `{"method": 5}`, `{"method": null}`, `{"method": "ping", "arguments": []}`,
	`{"method": "ping", "destination": "go@vm"}`, `{"method": "ping", "destination": [1]}`, `{"method": "ping", "destination": {"go@vm": 1}}`,
	`{"method": "ping", "reply_to": "x"}`, `{"method": "ping", "pattern": 1}`, `{"method": "ping"} x`, `{"method": "ping"`,
	`{"method": "ping", "pattern": "(", "matcher": "pcre"}`, `{"method": "ping", "pattern": "x", "matcher": "sql"}`,
	`{"method": "ping", "pattern": "` + strings.Repeat("a*", 2000) + `", "matcher": "glob"}`,
	`{"method": "` + strings.Repeat("x", 300) + `"}`,
	strings.Repeat("[", 1<<19), `{"method": "ping", "arguments": {"a": ` + strings.Repeat("[", 100_000), strings.Repeat(" ", 8<<20) + `{"method": "ping"}`,
}

// TestHostileCommands shows that an invalid message is counted and ignored, and the next command is
// executed.
func TestHostileCommands(t *testing.T) {
	n := &fakeNode{}
	tr, _, s := served(t, n, control.ServiceConfig{})
	for _, body := range hostile {
		before := s.Counts().Malformed
		if got := raw(t, tr, body); got != "" || s.Counts().Malformed != before+1 {
			t.Errorf("%.60s: reply %q, counts %+v", body, got, s.Counts())
		}
	}
	m := &control.Message{Exchange: control.Commands, Headers: map[string]any{"clock": "x"}, Body: []byte("\x80\x04K\x01.")}
	if err := tr.Publish(t.Context(), m); err != nil || s.Counts().Malformed != uint64(len(hostile)+1) {
		t.Errorf("a pickle: %v, counts %+v", err, s.Counts())
	}
	if got := send(t, tr, "ping", `{}`); got != `{"ok":"pong"}` || len(n.calls) != 0 {
		t.Errorf("after them: %q, %v", got, n.calls)
	}
}

// TestRepliesOnlyToTheirExchange shows that a command cannot make a node write to another exchange.
func TestRepliesOnlyToTheirExchange(t *testing.T) {
	tr, _, _ := served(t, &fakeNode{}, control.ServiceConfig{})
	for _, to := range []string{`{"exchange": "", "routing_key": "orders"}`, `{"exchange": "celery.pidbox", "routing_key": "x"}`, `{"exchange": "reply.celery.pidbox"}`, `null`} {
		if got := raw(t, tr, `{"method": "ping", "ticket": "t1", "reply_to": `+to+`}`); got != "" {
			t.Errorf("%s: reply %q", to, got)
		}
	}
	tr.taken(control.Commands)
	if rest := tr.sent; len(rest) != 0 {
		t.Errorf("messages to other exchanges: %+v", rest)
	}
}

// TestAllow shows that a command that is not allowed gets an error and changes nothing.
func TestAllow(t *testing.T) {
	n := &fakeNode{}
	tr, _, _ := served(t, n, control.ServiceConfig{Allow: []string{"ping"}})
	if got := send(t, tr, "shutdown", `{}`); got != `{"error":"this worker does not allow shutdown"}` || len(n.calls) != 0 {
		t.Errorf("reply %q, calls %v", got, n.calls)
	}
	if got := send(t, tr, "ping", `{}`); got != `{"ok":"pong"}` {
		t.Errorf("ping: %q", got)
	}
	if _, err := control.NewService(control.ServiceConfig{Allow: []string{"pong"}}); err == nil {
		t.Error("NewService accepts an unknown command and no bus")
	}
}

// TestMingle shows that a node that starts learns the revoked tasks of the others, and tells its
// own.
func TestMingle(t *testing.T) {
	n := &fakeNode{}
	tr, _, _ := served(t, n, control.ServiceConfig{})
	got := send(t, tr, "hello", `{"from_node": "py@vm", "revoked": {"p1": [12.5, "p1"], "no id": [1.0, "no id"]}}`)
	var reply struct {
		Clock   int64
		Revoked map[string][2]any
	}
	if err := json.Unmarshal([]byte(got), &reply); err != nil {
		t.Fatalf("%s: %v", got, err)
	}
	at, ok := reply.Revoked["p1"][0].(float64)
	if !ok || at <= 0 || reply.Revoked["p1"][1] != "p1" || len(reply.Revoked) != 1 || reply.Clock < 6 {
		t.Errorf("hello: %s", got)
	}
	if !slices.Equal(n.revoked, []task.ID{"p1"}) {
		t.Errorf("the node has revoked %v, want p1", n.revoked)
	}
	if got := send(t, tr, "revoked", `{}`); got != `["p1"]` {
		t.Errorf("revoked: %s", got)
	}
	send(t, tr, "hello", `{"from_node": "py@vm", "revoked": {"p1": [12.5, "p1"]}}`)
	if len(n.revoked) != 1 {
		t.Errorf("a known revocation is repeated: %v", n.revoked)
	}
}

// FuzzCommand feeds messages to a service.
func FuzzCommand(f *testing.F) {
	for _, body := range hostile {
		if len(body) < 1000 {
			f.Add([]byte(body), int64(1))
		}
	}
	for _, m := range []string{"ping", "revoke", "rate_limit", "hello", "add_consumer", "pool_grow", "query_task", "shutdown"} {
		f.Add(fmt.Appendf(nil, `{"method": %q, "arguments": {"task_id": ["a"], "n": 1, "from_node": "x", "revoked": {"a": [1.0, "a"]}, "queue": "q"}, "destination": ["go@vm"]}`, m), int64(7))
	}
	f.Fuzz(func(t *testing.T, body []byte, clock int64) {
		tr, _, s := served(t, &fakeNode{queues: []string{"q"}, workers: 1}, control.ServiceConfig{})
		m := &control.Message{Exchange: control.Commands, Headers: map[string]any{"clock": clock}, JSON: true, Body: body}
		if err := tr.Publish(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if c := s.Counts(); c.Executed+c.NotMine+c.Malformed != 1 {
			t.Errorf("counts %+v", c)
		}
	})
}
