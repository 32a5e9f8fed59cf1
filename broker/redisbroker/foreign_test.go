package redisbroker_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/redisbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// TestForeignMessages shows what happens to texts that other programs push onto a ready list.
func TestForeignMessages(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	b := connect(t, redisbroker.Config{Namespace: ns, Poll: 50 * time.Millisecond})
	q := declared(t, b, "q")
	list := "swj:{" + ns + "." + q + "}:r0"
	const task = `{"task":"email.send","args":{"to":"ü@example.org"}}`
	// The same text twice is two tasks. A text that is neither JSON nor a key of the adapter is
	// dropped.
	do(t, srv, "RPUSH", list, task, task, "no key of ours", "", `{"task":"first"}`)
	do(t, srv, "LMOVE", list, list, "RIGHT", "LEFT")
	if st := stats(t, b, q); st.Ready != 5 {
		t.Errorf("%+v, want 5 elements ready", st)
	}
	s := subscribe(t, b, q, 1)
	seen := make(map[string]bool)
	for _, body := range []string{`{"task":"first"}`, task, task} {
		d := receive(t, s)
		m := d.Message()
		if n, _ := d.Deliveries(); string(m.Body) != body || m.ContentType != "application/json" || m.Priority != 100 || n != 1 {
			t.Errorf("received %+v, hand-out %d", m, n)
		}
		if m.ID == "" || seen[m.ID] {
			t.Errorf("the id %q is not a new one", m.ID)
		}
		seen[m.ID] = true
		if err := d.Release(testwait.Long(t), 0); err != nil { // it has a key now, and keeps it
			t.Fatalf("Release: %v", err)
		}
		again := receive(t, s)
		if n, _ := again.Deliveries(); again.Message().ID != m.ID || n != 2 {
			t.Errorf("received %s, hand-out %d, after the release of %s", again.Message().ID, n, m.ID)
		}
		if err := again.DeadLetter(testwait.Long(t), broker.Dead{Reason: "why"}); err != nil {
			t.Fatalf("DeadLetter: %v", err)
		}
	}
	nothing(t, s)
	dead, err := broker.ListDead(testwait.Long(t), b, q, 10)
	if err != nil || len(dead) != 3 || string(dead[1].Message.Body) != task || dead[1].Message.ContentType != "application/json" {
		t.Errorf("ListDead: %+v, %v", dead, err)
	}
}

// TestForeignWord shows that a program that pushes may notify a waiting consumer, which then claims
// at once.
func TestForeignWord(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	b := connect(t, redisbroker.Config{Namespace: ns, Poll: patient})
	q := declared(t, b, "q")
	s := subscribe(t, b, q, 1)
	waits(t, srv, ns, q, 1)
	key := "swj:{" + ns + "." + q + "}:"
	do(t, srv, "RPUSH", key+"r0", `{"task":"a"}`)
	owners, ok := do(t, srv, "ZRANGE", key+"h", 0, 0).([]any)
	if !ok || len(owners) != 1 {
		t.Fatalf("ZRANGE: %v", owners)
	}
	owner, _ := owners[0].(string)
	do(t, srv, "PUBLISH", key+"w"+owner, "")
	d := receive(t, s)
	if string(d.Message().Body) != `{"task":"a"}` {
		t.Errorf("received %+v", d.Message())
	}
	ack(t, d)
}

// TestStoredForm holds texts that released versions have stored. This public form must be readable
// for ever.
func TestStoredForm(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	b := connect(t, redisbroker.Config{Namespace: ns})
	q := declared(t, b, "q")
	key := "swj:{" + ns + "." + q + "}:"
	m := &broker.Message{
		ID: "{odd}", Generation: 3, ContentType: "text/plain", Priority: -2,
		Headers:    map[string]any{"n": int64(7), "b": []byte{0xff}, "f": 0.5, "s": "x", "t": true},
		Properties: map[string]string{"type": "p"},
		Body:       []byte("body"), Expires: time.UnixMilli(1_700_000_000_123).UTC(),
	}
	publish(t, b, q, m)
	const wantKey = "~{odd} 3"
	stored, _ := do(t, srv, "HGET", key+"t", wantKey).(string)
	const want = "01" + "fffffffe" + "0000018bcfe5687b" + "0a" + "00000023" + "746578742f706c61696e" +
		"85a162c401ffa166cb3fe0000000000000a16e07a173a178a174c3" + "81a474797065a170" + "626f6479"
	if got := hex.EncodeToString([]byte(stored)); got != want {
		t.Errorf("stored is\n%s, want\n%s", got, want)
	}
	d := receive(t, subscribe(t, b, q, 1))
	r := d.Message()
	if r.ID != m.ID || r.Generation != 3 || r.Priority != -2 || !bytes.Equal(r.Body, m.Body) || len(r.Headers) != 5 ||
		r.Properties["type"] != "p" || !r.Expires.Equal(m.Expires) || r.ContentType != m.ContentType {
		t.Errorf("received %+v", r)
	}
	ack(t, d)
}

// TestStoredDeadForm does the same for dead letters. A letter without stack and attempts is stored
// as in released versions. A letter with them is marked.
func TestStoredDeadForm(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	b := connect(t, redisbroker.Config{Namespace: ns, DeadTTL: -1})
	q := declared(t, b, "q")
	list := "swj:{" + ns + "." + q + "}:x"
	const (
		seconds = "6553f100"
		stored  = "01" + "00000064" + "0000000000000000" + "0a" + "00000000" + "746578742f706c61696e" + "626f6479"
		key     = "612033" // "a 3"
		// seconds, microseconds, lengths of key and reason, key, "why", the message
		plain = seconds + "0001e078" + "0003" + "00000003" + key + "776879" + stored
		// as above, with 2^20 microseconds more, and after the reason "stack", 25 attempts and the length
		// of the stack
		marked = seconds + "0011e078" + "0003" + "00000010" + key + "776879" + "737461636b" + "00000019" + "00000005" + stored
	)
	at := time.Unix(0x6553f100, 123_000_000)
	want := []broker.Dead{{Reason: "why", At: at}, {Reason: "why", Stack: "stack", Attempts: 25, At: at}}
	m := &broker.Message{ID: "a", Generation: 3, ContentType: "text/plain", Priority: 100, Body: []byte("body")}
	for i, form := range []string{plain, marked} {
		d := want[i]
		d.Message = m
		if err := b.PutDead(testwait.Long(t), q, d); err != nil {
			t.Fatal(err)
		}
		got, _ := do(t, srv, "LINDEX", list, -1).(string)
		if hex.EncodeToString([]byte(got)) != form {
			t.Errorf("stored is\n%x, want\n%s", got, form)
		}
		raw, err := hex.DecodeString(form)
		if err != nil {
			t.Fatal(err)
		}
		do(t, srv, "DEL", list)
		do(t, srv, "RPUSH", list, string(raw))
		dead, err := broker.ListDead(testwait.Long(t), b, q, 10)
		if err != nil || len(dead) != 1 {
			t.Fatalf("%+v, %v", dead, err)
		}
		if l := dead[0]; l.Reason != d.Reason || l.Stack != d.Stack || l.Attempts != d.Attempts || !l.At.Equal(at) || l.Message.Generation != 3 || string(l.Message.Body) != "body" {
			t.Errorf("the letter is read as %+v, %+v", l, l.Message)
		}
		do(t, srv, "DEL", list)
	}
}

// TestDamaged shows that a foreign value in the table reaches a consumer, which can dead-letter it.
func TestDamaged(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	b := connect(t, redisbroker.Config{Namespace: ns, Poll: 50 * time.Millisecond})
	q := declared(t, b, "q")
	key := "swj:{" + ns + "." + q + "}:"
	values := []string{"", "text", "\x01", "\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xffx", "\x02new"}
	for i, v := range values {
		do(t, srv, "HSET", key+"t", string(rune('a'+i)), v)
		do(t, srv, "RPUSH", key+"r0", string(rune('a'+i)))
	}
	s := subscribe(t, b, q, 10)
	for i, v := range values {
		d := receive(t, s)
		first(t, d, string(rune('a'+i)))
		if string(d.Message().Body) != v {
			t.Errorf("body is %q, want %q", d.Message().Body, v)
		}
		if err := d.DeadLetter(testwait.Long(t), broker.Dead{Reason: "unreadable"}); err != nil {
			t.Errorf("DeadLetter: %v", err)
		}
	}
	do(t, srv, "LPUSH", key+"x", "damaged")
	dead, err := broker.ListDead(testwait.Long(t), b, q, 10)
	if err != nil || len(dead) != len(values)+1 || string(dead[0].Message.Body) != "damaged" || dead[1].Reason != "unreadable" {
		t.Errorf("ListDead: %+v, %v", dead, err)
	}
}

func TestUnfitMessages(t *testing.T) {
	t.Parallel()
	b := connect(t, redisbroker.Config{MaxBody: 100})
	q := declared(t, b, "q")
	tests := map[string]struct {
		change func(m *broker.Message)
		want   error
	}{
		"no id":            {func(m *broker.Message) { m.ID = "" }, broker.ErrMalformed},
		"a space in it":    {func(m *broker.Message) { m.ID = "a 1" }, broker.ErrMalformed},
		"a long id":        {func(m *broker.Message) { m.ID = strings.Repeat("i", 256) }, broker.ErrMalformed},
		"generation":       {func(m *broker.Message) { m.Generation = -1 }, broker.ErrMalformed},
		"priority":         {func(m *broker.Message) { m.Priority = 1 << 40 }, broker.ErrMalformed},
		"content type":     {func(m *broker.Message) { m.ContentType = strings.Repeat("t", 256) }, broker.ErrMalformed},
		"large body":       {func(m *broker.Message) { m.Body = make([]byte, 101) }, broker.ErrTooLarge},
		"large headers":    {func(m *broker.Message) { m.Headers = map[string]any{"h": strings.Repeat("h", 65<<10)} }, broker.ErrTooLarge},
		"text not UTF-8":   {func(m *broker.Message) { m.Headers = map[string]any{"h": "\xff"} }, broker.ErrMalformed},
		"name not UTF-8":   {func(m *broker.Message) { m.Headers = map[string]any{"\xff": "h"} }, broker.ErrMalformed},
		"property":         {func(m *broker.Message) { m.Properties = map[string]string{"p": "\xff"} }, broker.ErrMalformed},
		"the longest good": {func(m *broker.Message) { m.ID = strings.Repeat("i", 255) }, nil},
	}
	for name, tt := range tests {
		m := message("m")
		tt.change(m)
		if err := b.Publish(testwait.Long(t), q, m); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	if err := b.Publish(testwait.Long(t), q, nil); !errors.Is(err, broker.ErrMalformed) {
		t.Errorf("no message: %v", err)
	}
	if st := stats(t, b, q); st.Ready != 1 {
		t.Errorf("%+v, want the good one", st)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.Publish(ended, q, message("x")); !errors.Is(err, broker.ErrUnavailable) {
		t.Errorf("Publish with a ctx that has ended: %v", err)
	}
}
