package amqpbroker_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/amqpbroker"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

// TestAudit shows that Audit reports a queue of a weaker type and deleted parts of a queue.
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
		b, err := amqpbroker.New(amqpbroker.Config{Connect: amqpconnect.Config{URLs: []string{srv.URL()}}, Namespace: namespace, QueueType: kind})
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
	sub, err := classic.Subscribe(t.Context(), "weak", broker.SubscribeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Close(t.Context()) }()
	audit(classic)
	if _, err := ch.QueueDeclare("swj."+namespace+".dead.old", true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(math.MaxInt32)}); err != nil {
		t.Fatal(err)
	}
	if err := quorum.Declare(t.Context(), broker.Queue{Name: "old"}); err != nil {
		t.Fatal(err)
	}
	old, err := quorum.Subscribe(t.Context(), "old", broker.SubscribeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = old.Close(t.Context()) }()
	notes, err := quorum.Audit(t.Context(), "old")
	if err != nil || !slices.ContainsFunc(notes, func(n string) bool {
		return strings.Contains(n, `rabbitmqctl set_policy --apply-to queues swj-`+namespace+`-dead '^swj\.`+namespace+`\.dead\.' '{"message-ttl":2592000000,"max-length":100000,"overflow":"drop-head"}'`)
	}) {
		t.Errorf("of a dead queue without bounds: %q, %v", notes, err)
	}
	audit(quorum, ".dead.weak was declared with other settings", ".undeliverable was declared with other settings", ".q.weak was declared with other settings")
	prefix := "swj." + namespace + "."
	if _, err := ch.QueueDelete(prefix+"dead.weak", false, false, false); err != nil {
		t.Fatal(err)
	}
	if err := ch.ExchangeDelete(prefix+"delay.deliver", false, false); err != nil {
		t.Fatal(err)
	}
	audit(classic, "dead.weak is missing", "delay.deliver is missing")
	audit(classic, "dead.weak is missing", "delay.deliver is missing") // Audit has not created them
	if _, err := ch.QueueDelete(prefix+"acks", false, false, false); err != nil {
		t.Fatal(err)
	}
	audit(classic, "dead.weak is missing", ".acks is missing; tasks that run at most once", "delay.deliver is missing")
}
