package amqpbroker_test

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/amqpbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

// TestAudit: it finds a queue of a weaker type, and what was deleted of what belongs to one.
func TestAudit(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	conn, err := amqp.Dial(srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	namespace := testserver.Namespace()
	open := func(kind amqpbroker.QueueType) *amqpbroker.Broker {
		b, err := amqpbroker.New(amqpbroker.Config{URLs: []string{srv.URL()}, Namespace: namespace, QueueType: kind})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close(t.Context()) })
		return b
	}
	classic, quorum := open(amqpbroker.Classic), open(amqpbroker.Quorum)
	if err := classic.Declare(t.Context(), broker.Queue{Name: "weak"}); err != nil {
		t.Fatal(err)
	}
	audit := func(b *amqpbroker.Broker, want ...string) {
		t.Helper()
		notes, err := b.Audit(t.Context(), "weak")
		if err != nil || len(notes) != len(want) {
			t.Fatalf("%q, %v; want %q", notes, err, want)
		}
		for i, n := range notes {
			if !strings.Contains(n, want[i]) {
				t.Errorf("%q; want %q", n, want[i])
			}
		}
	}
	audit(classic)
	audit(quorum, ".dead.weak was declared with other settings", ".undeliverable was declared with other settings", ".q.weak was declared with other settings")
	prefix := "swj." + namespace + "."
	if _, err := ch.QueueDelete(prefix+"dead.weak", false, false, false); err != nil {
		t.Fatal(err)
	}
	if err := ch.ExchangeDelete(prefix+"delay.deliver", false, false); err != nil {
		t.Fatal(err)
	}
	audit(classic, "dead.weak is missing", "delay.deliver is missing")
	audit(classic, "dead.weak is missing", "delay.deliver is missing") // it has not made them
}
