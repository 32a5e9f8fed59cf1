package amqpbroker_test

import (
	"errors"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/amqpbroker"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// TestStatsClosesNoChannel shows that repeated Stats of a queue without levels and dead letters
// cause no further errors on the server, which logs each one.
func TestStatsClosesNoChannel(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	b := connect(t, amqpbroker.Config{})
	q := declared(t, b) // a random name, which finds the queue in the log
	look := func() {
		st, err := b.Stats(testwait.Long(t), q)
		if err != nil || st.Ready != 0 || st.Dead != 0 {
			t.Fatalf("%+v, %v", st, err)
		}
	}
	closed := func(mark string) int { // so far, including errors that the server has not logged yet
		if _, err := b.Stats(testwait.Long(t), mark); !errors.Is(err, broker.ErrNoQueue) {
			t.Fatalf("Stats of no queue: %v", err)
		}
		testwait.Until(t, "that the server has logged the mark", func() bool { return strings.Contains(srv.Log(), ".q."+mark+"'") })
		return strings.Count(srv.Log(), "."+q+"'")
	}
	look()
	first := closed("mark-1-" + q)
	for range 20 {
		look()
	}
	if n := closed("mark-2-"+q) - first; n != 0 {
		t.Errorf("the server has closed %d channels for 20 looks", n)
	}
	dead := broker.Dead{Message: &broker.Message{ID: "a", Body: []byte("a")}, Reason: "why"}
	if err := b.PutDead(testwait.Long(t), q, dead); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "that the dead letter is counted", func() bool {
		st, err := b.Stats(testwait.Long(t), q)
		return err == nil && st.Dead == 1
	})
}

// TestLazyDeadQueue shows that a queue that is only declared has no dead queue, and that its first
// consumer or dead letter creates one.
func TestLazyDeadQueue(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	ns := testserver.Namespace()
	b := connect(t, amqpbroker.Config{Namespace: ns})
	exists := func(q string) bool {
		conn, err := amqp.Dial(srv.URL())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		_, err = ch.QueueDeclarePassive("swj."+ns+".dead."+q, true, false, false, false, nil)
		return err == nil
	}
	for _, q := range []string{"consumed", "buried"} {
		if err := b.Declare(testwait.Long(t), broker.Queue{Name: q}); err != nil {
			t.Fatal(err)
		}
		if exists(q) {
			t.Errorf("%s has a dead queue when it was declared", q)
		}
	}
	if _, err := b.Subscribe(testwait.Long(t), "consumed", broker.SubscribeOptions{}); err != nil {
		t.Fatal(err)
	}
	dead := broker.Dead{Message: &broker.Message{ID: "a", Body: []byte("a")}, Reason: "why"}
	if err := b.PutDead(testwait.Long(t), "buried", dead); err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{"consumed", "buried"} {
		if !exists(q) {
			t.Errorf("%s has no dead queue", q)
		}
	}
}

// tooManyChannelsAreRefused shows that a subscription without a free channel is refused, and that
// the others continue.
func tooManyChannelsAreRefused(t *testing.T, srv *testserver.Rabbit) {
	eval(t, srv, "application:set_env(rabbit, channel_max, 20)") // for connections from now on
	defer eval(t, srv, "application:set_env(rabbit, channel_max, 2047)")
	b := connect(t, amqpbroker.Config{Connect: amqpconnect.Config{URLs: []string{srv.URL()}}, Namespace: testserver.Namespace()})
	for i, q := range []string{"a", "b", "c", "d", "e"} {
		_, err := b.Subscribe(testwait.Long(t), q, broker.SubscribeOptions{})
		if i < 4 && err != nil || i == 4 && !errors.Is(err, broker.ErrTooMany) {
			t.Errorf("queue %d: %v", i, err)
		}
	}
	if err := b.Declare(testwait.Long(t), broker.Queue{Name: "f"}); err != nil {
		t.Errorf("Declare: %v", err)
	}
}

// TestListFetchesLittle shows that a list of a few dead letters fetches few of them.
func TestListFetchesLittle(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	ns := testserver.Namespace()
	b := connect(t, amqpbroker.Config{Namespace: ns})
	q := declared(t, b)
	const letters = 60
	for range letters {
		dead := broker.Dead{Message: &broker.Message{ID: testserver.Namespace(), Body: []byte("a")}, Reason: "why"}
		if err := b.PutDead(testwait.Long(t), q, dead); err != nil {
			t.Fatal(err)
		}
	}
	if ds, err := broker.ListDead(testwait.Long(t), b, q, 3); err != nil || len(ds) != 3 {
		t.Fatalf("%d letters, %v", len(ds), err)
	}
	conn, err := amqp.Dial(srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	fetched := 0
	for range letters {
		d, ok, err := ch.Get("swj."+ns+".dead."+q, false)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		if d.Redelivered {
			fetched++
		}
	}
	if fetched > 8 {
		t.Errorf("%d letters were fetched for 3", fetched)
	}
}
