package amqpbroker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/amqpbroker"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

func noteStart(t testing.TB, b *amqpbroker.Broker, queue string, s broker.Start) []broker.Start {
	t.Helper()
	earlier, err := b.NoteStart(testwait.Long(t), queue, s)
	if err != nil {
		t.Fatalf("NoteStart: %v", err)
	}
	return earlier
}

func nonces(ss []broker.Start) (out []string) {
	for _, s := range ss {
		out = append(out, s.Nonce+":"+strconv.Itoa(int(s.Verdict)))
	}
	return out
}

// TestNotesOfStarts shows that every process of a namespace sees its notes in the same order, with
// their verdicts.
func TestNotesOfStarts(t *testing.T) {
	cfg := amqpbroker.Config{Namespace: testserver.Namespace()}
	one, two := connect(t, cfg), connect(t, cfg)
	s := broker.Start{ID: "a", Generation: 1, Nonce: "n1", Node: "node1", Alone: true, At: time.Now()}
	if got := noteStart(t, one, "q", s); len(got) != 0 {
		t.Errorf("before the first note: %v", got)
	}
	s2 := s
	s2.Nonce, s2.Node = "n2", "node2"
	got := noteStart(t, two, "q", s2)
	if len(got) != 1 || got[0].Nonce != "n1" || got[0].ID != "a" || got[0].Generation != 1 || got[0].Node != "node1" || !got[0].Alone || !got[0].At.Equal(s.At) {
		t.Errorf("before the second note: %+v, want %+v", got, s)
	}
	judged := s
	judged.Verdict = broker.StartDied
	if err := two.JudgeStart(testwait.Long(t), "q", judged); err != nil {
		t.Fatalf("JudgeStart: %v", err)
	}
	s3 := s
	s3.Nonce = "n3"
	if got := nonces(noteStart(t, one, "q", s3)); !slices.Equal(got, []string{"n1:2", "n2:0"}) {
		t.Errorf("before the third note: %v", got)
	}
	if got := nonces(noteStart(t, two, "q", s2)); !slices.Equal(got, []string{"n1:2"}) {
		t.Errorf("before the second note, told again: %v", got)
	}
	other := s
	other.Generation = 2
	if got := noteStart(t, one, "q", other); len(got) != 0 {
		t.Errorf("the notes of another generation: %v", got)
	}
	if got := noteStart(t, one, "r", s); len(got) != 0 {
		t.Errorf("the notes of another queue: %v", got)
	}
	// A process that starts later reads the earlier notes.
	if got := nonces(noteStart(t, connect(t, cfg), "q", broker.Start{ID: "a", Generation: 1, Nonce: "n4", Node: "x"})); !slices.Equal(got, []string{"n1:2", "n2:0", "n3:0"}) {
		t.Errorf("seen by a fresh process: %v", got)
	}
}

// TestNotesOfStartsFirst shows that many processes can note their first start at the same time,
// while the stream is being created.
func TestNotesOfStartsFirst(t *testing.T) {
	cfg := amqpbroker.Config{Namespace: testserver.Namespace()}
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[int]bool{}
	for i := range 10 {
		b := connect(t, cfg)
		for j := range 10 {
			wg.Go(func() {
				earlier, err := b.NoteStart(testwait.Long(t), "q", broker.Start{ID: "a", Nonce: fmt.Sprint(i, "-", j), Node: fmt.Sprint("n", i)})
				mu.Lock()
				defer mu.Unlock()
				if err != nil || seen[len(earlier)] {
					t.Errorf("NoteStart: %d earlier, as somebody else has got; %v", len(earlier), err)
				}
				seen[len(earlier)] = true
			})
		}
	}
	wg.Wait()
	if len(seen) != 100 {
		t.Errorf("%d different numbers of earlier notes, want 100", len(seen))
	}
}

// notesOutliveAnOutage shows that notes of starts work after cut connections, a restart of the
// server and a deletion of the stream.
func notesOutliveAnOutage(t *testing.T, srv *testserver.Rabbit) {
	relay := testserver.NewRelay(t, srv.Addr())
	b := connect(t, amqpbroker.Config{Connect: amqpconnect.Config{URLs: []string{relay.URL(srv.URL())}}, Namespace: "outage"})
	s := func(nonce string) broker.Start { return broker.Start{ID: "a", Nonce: nonce, Node: "n"} }
	noteStart(t, b, "q", s("1"))
	relay.Sever()
	if got := nonces(noteStart(t, b, "q", s("2"))); !slices.Equal(got, []string{"1:0"}) {
		t.Errorf("after a cut: %v", got)
	}
	ctx := testwait.Long(t)
	if err := srv.Restart(ctx); err != nil {
		t.Fatalf("Restart: %v", err)
	}
	if got := nonces(noteStart(t, b, "q", s("3"))); !slices.Equal(got, []string{"1:0", "2:0"}) {
		t.Errorf("after a restart: %v", got)
	}
	raw(t, srv.URL(), func(ch *amqp.Channel) error {
		_, err := ch.QueueDelete("swj.outage.starts", false, false, false)
		return err
	})
	if got := nonces(noteStart(t, b, "q", s("4"))); len(got) != 0 {
		t.Errorf("after the deletion of the stream: %v", got)
	}
	if got := nonces(noteStart(t, b, "q", s("5"))); !slices.Equal(got, []string{"4:0"}) {
		t.Errorf("with the new stream: %v", got)
	}
}

// awaitState waits until w sees node in a state.
func awaitState(t testing.TB, w *amqpbroker.Broker, node string, want broker.NodeState) {
	t.Helper()
	testwait.Until(t, fmt.Sprintf("state %d of %s", want, node), func() bool {
		got, err := w.NodeState(testwait.Long(t), node)
		return err == nil && got == want
	})
}

// TestPresence shows the states of a node: present while its process is connected, absent after a
// long cut, left after Leave. An observer whose own connection is cut gets an error.
func TestPresence(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireRabbit(t)
	ns := testserver.Namespace()
	open := func() (*amqpbroker.Broker, *testserver.Relay) {
		relay := testserver.NewRelay(t, srv.Addr())
		return connect(t, amqpbroker.Config{Connect: amqpconnect.Config{URLs: []string{relay.URL(srv.URL())}}, Namespace: ns}), relay
	}
	j, jLine := open()
	o, oLine := open()
	noteStart(t, j, "q", broker.Start{ID: "a", Nonce: "1", Node: "j"})
	noteStart(t, j, "q", broker.Start{ID: "a", Nonce: "2", Node: "j2"})
	awaitState(t, o, "j", broker.NodePresent)
	awaitState(t, j, "j", broker.NodePresent)
	awaitState(t, connect(t, amqpbroker.Config{Namespace: ns}), "j", broker.NodePresent)
	awaitState(t, j, "nobody", broker.NodeAbsent)
	if err := j.Leave(testwait.Long(t), "j2"); err != nil {
		t.Fatalf("Leave: %v", err)
	}
	if got, err := o.NodeState(testwait.Long(t), "j2"); err != nil || got != broker.NodeLeft {
		t.Errorf("right after Leave: %v, %v", got, err)
	}
	jLine.SetDown(true)
	awaitState(t, o, "j", broker.NodeAbsent)
	jLine.SetDown(false)
	awaitState(t, o, "j", broker.NodePresent)
	// The observer sees no state for a while, and returns errors until it has watched again.
	oLine.SetDown(true)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if got, err := o.NodeState(ctx, "j"); !errors.Is(err, broker.ErrUnavailable) && !errors.Is(err, broker.ErrIndeterminate) {
		t.Errorf("without a connection: %v, %v", got, err)
	}
	oLine.SetDown(false)
	testwait.Until(t, "an answer again", func() bool {
		got, err := o.NodeState(testwait.Long(t), "j")
		if err == nil && got != broker.NodePresent {
			t.Fatalf("after the observer's lines were cut: %v", got)
		}
		return err == nil
	})
}
