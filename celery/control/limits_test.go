package control_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/celery/control"
	"github.com/swarmiji/swarmiji/task"
)

// TestLongLists shows that a node takes as many revoked tasks in one command as Celery keeps.
func TestLongLists(t *testing.T) {
	const most = 50_000
	ids, known := make([]string, most), make(map[string]any, most)
	for i := range ids {
		ids[i] = fmt.Sprintf("0193a2b4-0000-7000-8000-%012d", i)
		known[ids[i]] = []any{123456.789012345 + float64(i), ids[i]}
	}
	for method, arguments := range map[string]map[string]any{
		"revoke": {"task_id": ids, "terminate": false, "signal": "SIGTERM"},
		"hello":  {"from_node": "py@vm", "revoked": known},
	} {
		n := &fakeNode{}
		tr, _, s := served(t, n, control.ServiceConfig{})
		data, err := json.Marshal(arguments)
		if err != nil {
			t.Fatal(err)
		}
		if got := send(t, tr, method, string(data)); len(got) < most || len(n.revoked) != most {
			t.Errorf("%s of %d bytes: the node has revoked %d tasks; the reply has %d bytes; counts %+v", method, len(data), len(n.revoked), len(got), s.Counts())
		}
	}
}

// TestRevokeIgnoresForeignIDs shows that an id that no task can have does not protect the other
// tasks of its command.
func TestRevokeIgnoresForeignIDs(t *testing.T) {
	n := &fakeNode{}
	tr, _, _ := served(t, n, control.ServiceConfig{})
	const want = `{"error":"ValueError('not the id of a task: order 7')"}`
	if got := send(t, tr, "revoke", `{"task_id": ["x1", "order 7", "x2"]}`); got != want || !slices.Equal(n.revoked, []task.ID{"x1", "x2"}) {
		t.Errorf("reply %s, revoked %v", got, n.revoked)
	}
	if got := send(t, tr, "revoked", `{}`); got != `["x1","x2"]` {
		t.Errorf("revoked: %s", got)
	}
}

// TestRefusedCommandsAreLoggedOnce shows that a flood of commands that are not allowed does not
// fill the log.
func TestRefusedCommandsAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		tr := newMemory()
		bus, err := control.NewBus(control.Config{Transport: tr, Host: "vm"})
		if err != nil {
			t.Fatal(err)
		}
		s, err := control.NewService(control.ServiceConfig{Bus: bus, Allow: []string{"ping"}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		serve, end := s.Start(t.Context(), &fakeNode{})
		serve()
		for range 1000 {
			if got := send(t, tr, "shutdown", `{}`); !strings.Contains(got, "does not allow") {
				t.Fatal(got)
			}
		}
		time.Sleep(time.Second)
		send(t, tr, "shutdown", `{}`)
		if n := strings.Count(log.String(), "\n"); n != 2 || !strings.Contains(log.String(), "not_logged=999") {
			t.Errorf("%d lines:\n%.1000s", n, log.String())
		}
		end()
		if err := bus.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}
