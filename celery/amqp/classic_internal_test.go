package amqp

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// A queue as Celery declares it must count as classic: only there can the prefetch change without
// another consumer. A quorum queue must not, since it ends the connection then.
func TestIsClassic(t *testing.T) {
	con, err := amqpconn.New(amqpconnect.Config{URLs: []string{testserver.RequireRabbit(t).URL()}}, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = con.Close(testwait.Long(t)) }()
	for name, c := range map[string]struct {
		args amqp.Table
		want bool
	}{
		"as Celery declares it": {nil, true},
		"classic":               {amqp.Table{"x-queue-type": "classic"}, true},
		"with priorities":       {amqp.Table{"x-max-priority": int32(10)}, true},
		"with a time to live":   {amqp.Table{"x-message-ttl": int32(1_000_000)}, false}, // not known
		"quorum":                {amqp.Table{"x-queue-type": "quorum"}, false},
		"quorum with a limit":   {amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int32(5)}, false},
	} {
		q := testserver.Namespace()
		err := con.Do(testwait.Long(t), func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(q, true, false, false, false, c.args)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		sess, err := con.Session(testwait.Long(t))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := isClassic(testwait.Long(t), sess, q); err != nil || got != c.want {
			t.Errorf("%s: classic: %v, error %v; want %v", name, got, err, c.want)
		}
	}
}
