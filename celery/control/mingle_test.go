package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/celery/control"
	"github.com/swarmiji/swarmiji/task"
)

// slowly is a transport with another worker, which has revoked the task p1 and answers hello after
// some time.
type slowly struct {
	*memory
	t     testing.TB
	after time.Duration
	hello int // received
}

func (s *slowly) Publish(ctx context.Context, m *control.Message) error {
	var r struct {
		Method, Ticket string
		ReplyTo        struct {
			Key string `json:"routing_key"`
		} `json:"reply_to"`
	}
	if err := json.Unmarshal(m.Body, &r); err != nil || r.Method != "hello" {
		return s.memory.Publish(ctx, m)
	}
	s.hello++
	go func() {
		time.Sleep(s.after)
		reply := &control.Message{
			Exchange: control.Replies, Key: r.ReplyTo.Key, Headers: map[string]any{"ticket": r.Ticket, "clock": int64(9)}, JSON: true,
			Body: []byte(`{"py@vm": {"revoked": {"p1": [12.5, "p1"]}, "clock": 9}}`),
		}
		if err := s.memory.Publish(context.WithoutCancel(ctx), reply); err != nil {
			s.t.Error(err)
		}
	}()
	return nil
}

// TestStartAsksForRevokedTasks shows that a node knows the revoked tasks of the others before it
// starts a task. It does not ask if it does not allow that. Without an answer it starts after a
// second.
func TestStartAsksForRevokedTasks(t *testing.T) {
	for _, c := range []struct {
		allow []string
		after time.Duration
		want  []task.ID
		limit time.Duration
	}{
		{nil, 900 * time.Millisecond, []task.ID{"p1"}, time.Second},
		{nil, 5 * time.Second, nil, time.Second},
		{[]string{"ping", "hello"}, time.Millisecond, []task.ID{"p1"}, time.Second},
		{[]string{"ping", "revoke"}, time.Millisecond, nil, 0},
	} {
		t.Run(fmt.Sprint(c.allow, c.after), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr, n := &slowly{memory: newMemory(), t: t, after: c.after}, &fakeNode{}
				bus, err := control.NewBus(control.Config{Transport: tr, Host: "vm"})
				if err != nil {
					t.Fatal(err)
				}
				s, err := control.NewService(control.ServiceConfig{Bus: bus, Mingle: true, Allow: c.allow, Logger: quiet()})
				if err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				serve, end := s.Start(t.Context(), n)
				if took := time.Since(begin); !slices.Equal(n.revoked, c.want) || took > c.limit {
					t.Errorf("after a start of %v the node has revoked %v, want %v", took, n.revoked, c.want)
				}
				serve()
				end()
				time.Sleep(c.after) // the end of a late answer
				if err := bus.Close(t.Context()); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
		})
	}
}
