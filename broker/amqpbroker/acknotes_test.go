package amqpbroker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/amqpbroker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// ackedBefore returns AckedBefore of a delivery that is not the first.
func ackedBefore(t testing.TB, d broker.Delivery) bool {
	t.Helper()
	if n, _ := d.Deliveries(); n < 2 {
		t.Errorf("%s: delivery %d", d.Message().ID, n)
	}
	c, ok := capability.As[broker.AckChecker](d)
	if !ok {
		t.Fatal("the delivery is no AckChecker")
	}
	acked, err := c.AckedBefore(testwait.Long(t))
	if err != nil {
		t.Fatalf("AckedBefore of %s: %v", d.Message().ID, err)
	}
	return acked
}

// TestAckedBeforeKill kills the server right after AckSync has returned nil. AckedBefore is true
// for the acknowledged messages that are delivered again, and false for messages that were only
// prefetched.
func TestAckedBeforeKill(t *testing.T) {
	t.Parallel()
	srv := testserver.OwnRabbit(t, testserver.RabbitConfig{})
	var acked []*ackedSome
	for _, typ := range []amqpbroker.QueueType{amqpbroker.Quorum, amqpbroker.Classic} {
		b := connect(t, amqpbroker.Config{Connect: amqpconnect.Config{URLs: []string{srv.URL()}}, QueueType: typ, Namespace: string(typ)})
		acked = append(acked, &ackedSome{b: b, queue: declared(t, b)})
	}
	begun := time.Now()
	testwait.Until(t, "queues older than 5 s", func() bool { return time.Since(begun) > 6*time.Second })
	for _, a := range acked {
		a.ack(t)
	}
	srv.Kill()
	if err := srv.Restart(testwait.Long(t)); err != nil {
		t.Fatalf("Restart: %v", err)
	}
	for _, a := range acked {
		a.check(t)
	}
}

// ackedSome is a queue whose messages are all held. Some of them are acknowledged.
type ackedSome struct {
	b     *amqpbroker.Broker
	queue string
	s     broker.Subscription
	done  map[string]bool // the acknowledged ones
}

const messagesHeld, messagesAcked = 200, 60

// ack publishes and receives the messages, and acknowledges some.
func (a *ackedSome) ack(t *testing.T) {
	for _, id := range ids(messagesHeld) {
		publish(t, a.b, a.queue, message(id))
	}
	a.s = subscribe(t, a.b, a.queue, messagesHeld)
	var ds []broker.Delivery
	for range messagesHeld {
		ds = append(ds, receive(t, a.s))
	}
	a.done = make(map[string]bool)
	var wg sync.WaitGroup
	for _, d := range ds[:messagesAcked] {
		a.done[d.Message().ID] = true
		wg.Go(func() {
			if err := broker.AckSync(testwait.Long(t), d); err != nil {
				t.Errorf("AckSync: %v", err)
			}
		})
	}
	wg.Wait()
}

// check receives the messages that are delivered again.
func (a *ackedSome) check(t *testing.T) {
	again, forgotten := make(map[string]bool), 0
	testwait.Until(t, "what was prefetched is there again", func() bool {
		d := receive(t, a.s)
		id := d.Message().ID
		if a.done[id] && !again[id] {
			forgotten++
		}
		again[id] = true
		if got := ackedBefore(t, d); got != a.done[id] {
			t.Errorf("%s: AckedBefore %v, want %v", id, got, a.done[id])
		}
		return len(again)-forgotten == messagesHeld-messagesAcked
	})
	t.Logf("%d of %d acknowledgements were forgotten", forgotten, messagesAcked)
}

// TestAckedBeforeCut cuts the connection during acknowledgements. AckedBefore is false for messages
// that were only prefetched, and true for every acknowledged message that is delivered again.
func TestAckedBeforeCut(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireRabbit(t)
	relay := testserver.NewRelay(t, srv.Addr())
	cfg := amqpbroker.Config{Connect: amqpconnect.Config{URLs: []string{relay.URL(srv.URL())}}, Namespace: testserver.Namespace()}
	b := connect(t, cfg)
	q := declared(t, b)
	cfg.Connect.URLs = []string{srv.URL()}
	other := connect(t, cfg)
	const rounds, width = 3, 40
	s := subscribe(t, b, q, 2*width)
	for r := range rounds {
		for i := range 2 * width {
			publish(t, other, q, message(fmt.Sprint(r, "-", i)))
		}
		var ds []broker.Delivery
		for range 2 * width {
			ds = append(ds, receive(t, s))
		}
		var mu sync.Mutex
		sure, unsure := map[string]bool{}, map[string]bool{}
		var wg sync.WaitGroup
		for i, d := range ds[:width] {
			if i == width/2 {
				wg.Wait()
			}
			wg.Go(func() {
				if i == width*3/4 {
					relay.Sever()
				}
				err := broker.AckSync(testwait.Long(t), d)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					sure[d.Message().ID] = true
				case errors.Is(err, broker.ErrIndeterminate):
					unsure[d.Message().ID] = true
					awaitLost(t, d, "its connection was cut")
					if err := broker.AckSync(testwait.Long(t), d); !errors.Is(err, broker.ErrIndeterminate) {
						t.Errorf("AckSync once the channel has gone: %v", err)
					}
				case !errors.Is(err, broker.ErrLeaseLost):
					t.Errorf("AckSync: %v", err)
				}
			})
		}
		wg.Wait()
		again := 0
		testwait.Until(t, "what was not acknowledged is there again", func() bool {
			d := receive(t, s)
			id := d.Message().ID
			switch acked := ackedBefore(t, d); {
			case sure[id] && !acked:
				t.Errorf("%s comes again and was acknowledged", id)
			case acked && !sure[id] && !unsure[id]:
				t.Errorf("%s was only prefetched and counts as acknowledged", id)
			}
			if !sure[id] && !unsure[id] {
				again++
			}
			ack(t, d)
			return again == 2*width-len(sure)-len(unsure)
		})
		t.Logf("round %d: %d acknowledged, %d not known", r, len(sure), len(unsure))
		drain(t, other, q)
	}
}

// drain removes the messages that wait in a queue.
func drain(t testing.TB, b *amqpbroker.Broker, queue string) {
	t.Helper()
	if _, err := b.Purge(testwait.Long(t), queue); err != nil {
		t.Fatalf("Purge: %v", err)
	}
}

// TestAckedBeforeUnknown shows that AckedBefore is true for a message without a time, and for one
// that is older than the notes.
func TestAckedBeforeUnknown(t *testing.T) {
	srv, ns := testserver.RequireRabbit(t), testserver.Namespace()
	b := connect(t, amqpbroker.Config{Namespace: ns})
	q := declared(t, b)
	publish(t, b, q, message("dated"))
	published := time.Now()
	raw(t, srv.URL(), func(ch *amqp.Channel) error {
		return ch.PublishWithContext(testwait.Long(t), "", "swj."+ns+".q."+q, false, false, amqp.Publishing{MessageId: "undated"})
	})
	again := func() map[string]bool {
		t.Helper()
		s := subscribe(t, b, q, 10)
		got := make(map[string]bool)
		for len(got) < 2 {
			d := receive(t, s)
			if n, _ := d.Deliveries(); n > 1 {
				got[d.Message().ID] = ackedBefore(t, d)
			}
			if err := d.Release(testwait.Long(t), 0); err != nil {
				t.Fatalf("Release: %v", err)
			}
		}
		if err := s.Close(testwait.Long(t)); err != nil {
			t.Fatalf("Close: %v", err)
		}
		return got
	}
	if got := again(); got["dated"] || !got["undated"] {
		t.Errorf("with all notes: %v", got)
	}
	testwait.Until(t, "a later second than that of the message", func() bool { return time.Since(published) > 2*time.Second })
	raw(t, srv.URL(), func(ch *amqp.Channel) error {
		_, err := ch.QueueDelete("swj."+ns+".acks", false, false, false)
		return err
	})
	if got := again(); !got["dated"] {
		t.Errorf("with a stream that was made anew: %v", got)
	}
}

// refusedNotesAreSaidToBe shows that a user without permission for the stream can run tasks, except
// tasks that run at most once. AckSync then acknowledges nothing.
func refusedNotesAreSaidToBe(t *testing.T, srv *testserver.Rabbit) {
	ctx := testwait.Long(t)
	addUser(t, srv, "worker", "word")
	const work = `^(swj\.refused\.(q|dead|delay|undeliverable).*|amq\.default|)$`
	allow(t, srv, "worker", work, work, work)
	var log logBook
	b := connect(t, amqpbroker.Config{
		Connect: amqpconnect.Config{URLs: []string{fmt.Sprintf("amqp://worker:word@%s/", srv.Addr())}}, Namespace: "refused", Logger: log.logger(),
	})
	q := declared(t, b)
	publish(t, b, q, message("a"))
	d := receive(t, subscribe(t, b, q, 1))
	if err := broker.AckSync(ctx, d); !errors.Is(err, broker.ErrAccess) || errors.Is(err, broker.ErrIndeterminate) {
		t.Errorf("AckSync: %v, want ErrAccess", err)
	}
	ack(t, d)
	if _, err := b.NoteStart(ctx, q, broker.Start{ID: "a", Nonce: "1", Node: "n"}); !errors.Is(err, broker.ErrAccess) {
		t.Errorf("NoteStart: %v, want ErrAccess", err)
	}
	if n := strings.Count(log.String(), "refuses the stream for notes"); n != 1 {
		t.Errorf("the log says so %d times:\n%s", n, log.String())
	}
	notes, err := b.Audit(ctx, q)
	if err != nil || len(notes) != 1 || !strings.Contains(notes[0], ".acks is missing") {
		t.Errorf("Audit: %q, %v", notes, err)
	}
}

// alarmHidesNoNode shows that during an alarm, in which no node can answer, NodeState does not
// return NodeAbsent.
func alarmHidesNoNode(t *testing.T, srv *testserver.Rabbit) {
	open := func() *amqpbroker.Broker {
		return connect(t, amqpbroker.Config{Connect: amqpconnect.Config{URLs: []string{srv.URL()}}, Namespace: "alarm"})
	}
	j, o := open(), open()
	noteStart(t, j, "q", broker.Start{ID: "a", Nonce: "1", Node: "j"})
	awaitState(t, o, "j", broker.NodePresent)
	if err := srv.SetMemoryAlarm(testwait.Long(t), true); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		state, err := o.NodeState(ctx, "j")
		cancel()
		if err == nil && state != broker.NodePresent {
			t.Errorf("under an alarm: %d", state)
		}
	}
	if err := srv.SetMemoryAlarm(testwait.Long(t), false); err != nil {
		t.Fatal(err)
	}
	awaitState(t, o, "j", broker.NodePresent)
}
