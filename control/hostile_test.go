package control_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
)

// tap records the events of commands or replies.
func tap(t *testing.T, bus events.EventBus, typ string) func() events.Event {
	t.Helper()
	sub, err := bus.Subscribe(t.Context(), events.Filter{Types: []string{typ}})
	if err != nil {
		t.Fatal(err)
	}
	return func() events.Event {
		e, err := sub.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		e.Fields = maps.Clone(e.Fields)
		return e
	}
}

func publish(t *testing.T, bus events.EventBus, e events.Event) {
	t.Helper()
	if err := bus.Publish(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// TestForged shows that with keys a node executes only commands signed by a holder of a key for the
// current time, and each only once.
func TestForged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memevents.New(memevents.Config{})
		n := &fake{id: "n1", queues: []string{"a"}}
		s := serve(t, control.Config{Bus: bus, Keys: keys("new", "old")}, n)
		heard := tap(t, bus, control.CommandEvent)
		stop := control.Command{Do: control.DoShutdown, Nodes: []string{"n1"}}
		var want control.Counts
		expect := func(what string) {
			t.Helper()
			if got := s.Counts(); got != want {
				t.Errorf("%s: counts %+v, want %+v", what, got, want)
			}
			if told := len(n.told()); told != int(want.Obeyed) {
				t.Errorf("%s: the node was told %d things, want %d", what, told, want.Obeyed)
			}
		}
		try := func(k *control.Keys) events.Event {
			t.Helper()
			_, _ = client(t, bus, k).Send(t.Context(), stop, control.Wait{Timeout: time.Millisecond})
			synctest.Wait()
			return heard()
		}

		try(nil)
		want.Unsigned++
		expect("unsigned")
		try(keys("other"))
		want.Forged++
		expect("unknown key")
		wrong := keys("new")
		wrong.ByID["new"] = bytes.Repeat([]byte("z"), 16)
		try(wrong)
		want.Forged++
		expect("known id, other key")

		genuine := try(keys("old"))
		want.Obeyed++
		expect("the old key")
		publish(t, bus, genuine)
		want.Replayed++
		expect("again")
		for _, field := range []string{"head", "data", "key", "mac"} {
			e := genuine
			e.Fields = maps.Clone(genuine.Fields)
			switch v := e.Fields[field].(type) {
			case string:
				e.Fields[field] = strings.Map(swap, v)
			case []any:
				e.Fields[field] = []any{strings.Map(swap, v[0].(string))}
			}
			publish(t, bus, e)
			want.Forged++
			expect("another " + field)
			delete(e.Fields, field)
			publish(t, bus, e)
			switch field {
			case "data":
				want.Forged++
			case "key":
				want.Unsigned++
			default:
				want.Malformed++
			}
			expect("without " + field)
		}
		e := genuine
		e.Type = control.ReplyEvent // a command must not be accepted as a reply, or the reverse
		publish(t, bus, e)
		expect("as a reply")

		time.Sleep(control.DefaultWindow + time.Second)
		publish(t, bus, genuine)
		want.Stale++
		expect("when its number is forgotten")
	})
}

// swap replaces a character by another one of the same kind.
func swap(r rune) rune {
	switch r {
	case 'a':
		return 'b'
	case 'b':
		return 'a'
	case 'o':
		return 'l'
	case '1':
		return '2'
	case '2':
		return '1'
	}
	return r
}

// TestStale shows that a node refuses commands with a distant time. It also refuses commands sent
// before its start, because it does not know their ids any more.
func TestStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memevents.New(memevents.Config{})
		k := keys("k")
		heard := tap(t, bus, control.CommandEvent)
		command := func() events.Event {
			_, _ = client(t, bus, k).Send(t.Context(), control.Command{Do: control.DoPause}, control.Wait{Timeout: 1})
			return heard()
		}
		early := command()
		time.Sleep(time.Second)
		n := &fake{id: "n1", queues: []string{"a"}}
		s := serve(t, control.Config{Bus: bus, Keys: k}, n)
		publish(t, bus, early)
		_ = heard()
		if got := s.Counts(); got.Stale != 1 || got.Obeyed != 0 {
			t.Errorf("from before the start: %+v, want it stale", got)
		}
		bus2 := memevents.New(memevents.Config{})
		n2 := &fake{id: "n2", queues: []string{"a"}}
		s2 := serve(t, control.Config{Bus: bus2, Keys: k, Window: 10 * time.Second}, n2)
		time.Sleep(time.Second)
		late := command()
		time.Sleep(10*time.Second - 2*time.Millisecond)
		publish(t, bus2, late)
		if got := s2.Counts(); got.Obeyed != 1 {
			t.Errorf("at the end of the window: %+v, want it obeyed", got)
		}
		later := command()
		time.Sleep(10*time.Second + time.Millisecond)
		publish(t, bus2, later)
		if got := s2.Counts(); got.Stale != 1 {
			t.Errorf("after the window: %+v, want it stale", got)
		}
	})
}

// TestRepeated shows that without keys, too, a repeated command is executed once.
func TestRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memevents.New(memevents.Config{})
		n := &fake{id: "n1", queues: []string{"a"}}
		s := serve(t, control.Config{Bus: bus}, n)
		heard := tap(t, bus, control.CommandEvent)
		send(t, client(t, bus, nil), control.Command{Do: control.DoPause, Nodes: []string{"n1"}})
		publish(t, bus, heard())
		if got := s.Counts(); got.Obeyed != 1 || got.Replayed != 1 {
			t.Errorf("%+v, want one obeyed and one replayed", got)
		}
	})
}

// TestMalformed shows that malformed commands are ignored.
func TestMalformed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memevents.New(memevents.Config{})
		n := &fake{id: "n1", queues: []string{"a"}}
		s := serve(t, control.Config{Bus: bus}, n)
		good := func(id string) string {
			head, _ := json.Marshal(map[string]any{"v": 1, "id": id, "at": time.Now().UnixMilli(), "from": "boss"})
			return string(head)
		}
		ping := []any{`{"do":"ping"}`}
		for i, fields := range []map[string]any{
			nil,
			{"head": 1.0, "data": ping},
			{"head": "", "data": ping},
			{"head": "[]", "data": ping},
			{"head": `{"v":2,"id":"x","from":"boss"}`, "data": ping},
			{"head": `{"v":1,"id":"","from":"boss"}`, "data": ping},
			{"head": `{"v":1,"id":"x","from":"a b"}`, "data": ping},
			{"head": `{"v":1,"id":"` + strings.Repeat("x", 65) + `","from":"boss"}`, "data": ping},
			{"head": good(strings.Repeat("x", 3000)), "data": ping},
			{"head": good("a1")},
			{"head": good("a2"), "data": []any{}},
			{"head": good("a3"), "data": []any{1.0}},
			{"head": good("a4"), "data": []any{`{"do":"format"}`}},
			{"head": good("a5"), "data": []any{`{"do":"ping"`}},
			{"head": good("a6"), "data": []any{`{"do":"scale","queues":["a"],"workers":1e9}`}},
			{"head": good("a7"), "data": []any{strings.Repeat(" ", 4000), strings.Repeat(" ", 4000), strings.Repeat(" ", 180), `{"do":"ping"}`}},
			{"head": good("a8"), "data": ping, "key": "k", "mac": "zz"},
			{"head": good("a9"), "data": ping, "key": 5.0, "mac": "00"},
		} {
			publish(t, bus, events.Event{Type: control.CommandEvent, Fields: fields})
			if got, want := s.Counts().Malformed, uint64(i+1); got != want {
				t.Fatalf("%d: %v: %d malformed, want %d; %+v", i, fields, got, want, s.Counts())
			}
		}
		publish(t, bus, events.Event{Type: control.CommandEvent, Fields: map[string]any{"head": good("b"), "data": ping}})
		if got := s.Counts(); got.Obeyed != 1 {
			t.Errorf("%+v, want the one good command obeyed", got)
		}
	})
}

// TestFlood shows that a flood of commands is dropped, counted and logged once a second at most.
// After the flood the node executes commands again.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memevents.New(memevents.Config{Buffer: 1 << 16})
		var log bytes.Buffer
		n := &fake{id: "n1", queues: []string{"a"}}
		k := keys("k")
		s := serve(t, control.Config{Bus: bus, Keys: k, Logger: slog.New(slog.NewTextHandler(&log, nil))}, n)
		const total = 20000
		for range total {
			_ = bus.Publish(t.Context(), events.Event{Type: control.CommandEvent, NodeID: "stranger", Fields: map[string]any{"head": "x"}})
		}
		synctest.Wait()
		got := s.Counts()
		if got.Unsigned != control.LookRate || got.Flooded != total-control.LookRate {
			t.Errorf("%+v, want %d looked at and the rest dropped", got, control.LookRate)
		}
		if lines := strings.Count(log.String(), "\n"); lines != 1 {
			t.Errorf("%d lines in the log, want 1", lines)
		}
		time.Sleep(2 * time.Second)
		c := client(t, bus, k)
		for range 150 { // genuine, but too many
			_, _ = c.Send(t.Context(), control.Command{Do: control.DoPause}, control.Wait{Timeout: 1})
		}
		synctest.Wait()
		if got := len(n.told()); got != 5*control.ObeyRate {
			t.Errorf("%d of 150 commands at once were obeyed, want %d", got, 5*control.ObeyRate)
		}
		time.Sleep(time.Second)
		if rs := send(t, c, control.Command{Do: control.DoPing, Nodes: []string{"n1"}}); len(rs) != 1 {
			t.Errorf("%d replies after the flood, want 1", len(rs))
		}
	})
}

// TestForgedReplies shows that a client ignores replies without a valid signature, and replies to
// other commands.
func TestForgedReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memevents.New(memevents.Config{})
		k := keys("k")
		serve(t, control.Config{Bus: bus, Keys: k}, &fake{id: "n1", queues: []string{"a"}})
		replies, commands := tap(t, bus, control.ReplyEvent), tap(t, bus, control.CommandEvent)
		c := client(t, bus, k)
		ping := control.Command{Do: control.DoPing}
		send(t, c, ping)
		old := replies()
		_ = commands()

		got := make(chan []control.Reply)
		go func() {
			rs, _ := c.Send(t.Context(), ping, control.Wait{})
			got <- rs
		}()
		cmd := commands()
		publish(t, bus, old) // genuine, but to another command
		for _, node := range []string{"n2", "n3"} {
			var head map[string]any
			_ = json.Unmarshal([]byte(cmd.Fields["head"].(string)), &head)
			head["from"], head["of"] = node, 1
			text, _ := json.Marshal(head)
			forged := map[string]any{"head": string(text), "data": []any{`{}`}}
			if node == "n3" {
				forged["key"], forged["mac"] = "k", strings.Repeat("0", 64)
			}
			publish(t, bus, events.Event{Type: control.ReplyEvent, Fields: forged})
		}
		publish(t, bus, events.Event{Type: control.ReplyEvent})
		rs := <-got
		if len(rs) != 1 || rs[0].Node != "n1" {
			t.Errorf("replies %+v, want that of n1", rs)
		}
		if n := c.Refused(); n != 3 {
			t.Errorf("%d replies refused, want 3", n)
		}
	})
}

// FuzzCommand shows that no event stops a node, and that it executes no unsigned command.
func FuzzCommand(f *testing.F) {
	f.Add(`{"v":1,"id":"x","at":0,"from":"boss"}`, `{"do":"shutdown"}`, "k", strings.Repeat("0", 64), true)
	f.Add(`{"v":1,"id":"x","at":99999999999999,"from":"boss"}`, `{"do":"scale","queues":["a"],"workers":3}`, "", "", false)
	f.Add(`{"v":1e400}`, `[[[[`, "", "", false)
	f.Add("", "", "", "", true)
	f.Fuzz(func(t *testing.T, head, data, key, mac string, signed bool) {
		synctest.Test(t, func(t *testing.T) {
			bus := memevents.New(memevents.Config{})
			strict, open := &fake{id: "n1", queues: []string{"a"}}, &fake{id: "n2", queues: []string{"a"}}
			s := serve(t, control.Config{Bus: bus, Keys: keys("k")}, strict)
			o := serve(t, control.Config{Bus: bus}, open)
			fields := map[string]any{"head": head, "data": []any{data}}
			if signed {
				fields["key"], fields["mac"] = key, mac
			}
			publish(t, bus, events.Event{Type: control.CommandEvent, Fields: fields})
			publish(t, bus, events.Event{Type: control.ReplyEvent, Fields: fields})
			if got := s.Counts(); got.Obeyed+got.NotMine != 0 || got.Malformed+got.Unsigned+got.Forged != 1 {
				t.Errorf("with keys: %+v, want it refused", got)
			}
			if told := strict.told(); len(told) != 0 {
				t.Errorf("a node with keys was told %q", told)
			}
			if got := o.Counts(); got.Obeyed+got.NotMine+got.Malformed != 1 {
				t.Errorf("without keys: %+v, want it counted once", got)
			}
		})
	})
}
