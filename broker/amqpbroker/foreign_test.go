package amqpbroker_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/amqpbroker"
	"github.com/swarmiji/swarmiji/broker/brokertest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// TestWhatIsNotSentCanBeSettled shows that messages of a foreign publisher, which ignores the
// adapter's limits, can be settled.
func TestWhatIsNotSentCanBeSettled(t *testing.T) {
	const ns = "delays-quorum" // normally has the levels for Release
	tests := []struct {
		name string
		p    amqp.Publishing
		lost bool // the header "big" is lost
	}{
		{"large body", amqp.Publishing{Body: bytes.Repeat([]byte("b"), 5000)}, false},
		{"large headers", amqp.Publishing{Headers: amqp.Table{"small": "s", "big": strings.Repeat("h", 80<<10)}}, false},
		{"headers that fill a frame", amqp.Publishing{Headers: amqp.Table{"small": "s", "big": strings.Repeat("h", 120<<10)}}, true},
		{"expiration that is not sent", amqp.Publishing{Expiration: "4294967295"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var book logBook
			b := connect(t, amqpbroker.Config{Namespace: ns, MaxBody: 1000, Logger: book.logger()})
			q := declared(t, b)
			raw(t, testserver.RequireRabbit(t).URL(), func(ch *amqp.Channel) error {
				if err := ch.Confirm(false); err != nil {
					return err
				}
				dc, err := ch.PublishWithDeferredConfirm("", "swj."+ns+".q."+q, true, false, tt.p)
				if err == nil && !dc.Wait() {
					err = errors.New("not confirmed")
				}
				return err
			})
			s := subscribe(t, b, q, 1)
			if err := receive(t, s).Release(testwait.Long(t), time.Millisecond); err != nil {
				t.Fatalf("Release: %v", err)
			}
			d := receive(t, s)
			if err := d.DeadLetter(testwait.Long(t), broker.Dead{Reason: "poison"}); err != nil {
				t.Fatalf("DeadLetter: %v", err)
			}
			check := func(where string, m *broker.Message) {
				t.Helper()
				_, small := m.Headers["small"]
				_, big := m.Headers["big"]
				if !bytes.Equal(m.Body, tt.p.Body) || small != (tt.p.Headers != nil) || big != (tt.p.Headers != nil && !tt.lost) || m.Properties["expiration"] != tt.p.Expiration {
					t.Errorf("%s: body of %d bytes, %d headers, properties %v", where, len(m.Body), len(m.Headers), m.Properties)
				}
			}
			dead, err := broker.ListDead(testwait.Long(t), b, q, 10)
			if err != nil || len(dead) != 1 || dead[0].Reason != "poison" {
				t.Fatalf("ListDead: %+v, %v", dead, err)
			}
			check("the dead letter", dead[0].Message)
			n, err := brokertest.Requeue(testwait.Long(t), b, q)
			// a message that Publish refuses stays a dead letter
			if errors.Is(err, broker.ErrTooLarge) || errors.Is(err, broker.ErrMalformed) {
				dead, err = broker.ListDead(testwait.Long(t), b, q, 10)
				if err != nil || len(dead) != 1 {
					t.Fatalf("ListDead after a refused requeue: %+v, %v", dead, err)
				}
				check("the dead letter that was refused", dead[0].Message)
				return
			}
			if n != 1 || err != nil {
				t.Fatalf("Requeue: %d, %v", n, err)
			}
			d = receive(t, s)
			check("the requeued message", d.Message())
			ack(t, d)
			if told := strings.Contains(book.String(), "dropped=[big]"); told != tt.lost {
				t.Errorf("the log tells of a header that was dropped: %v, want %v: %s", told, tt.lost, book.String())
			}
		})
	}
}

func TestForeignDeliveryCountIsNotBelieved(t *testing.T) {
	b := connect(t, amqpbroker.Config{})
	q := declared(t, b)
	raw(t, testserver.RequireRabbit(t).URL(), func(ch *amqp.Channel) error {
		return ch.PublishWithContext(t.Context(), "", "swj.default.q."+q, false, false, amqp.Publishing{Headers: amqp.Table{"x-delivery-count": int64(500)}})
	})
	s := subscribe(t, b, q, 1)
	for i := range 3 {
		d := receive(t, s)
		if n, exact := d.Deliveries(); n != i+1 || !exact {
			t.Errorf("Deliveries() = %d, %v, want %d, true", n, exact, i+1)
		}
		if i == 2 {
			ack(t, d)
		} else if err := d.Release(testwait.Long(t), 0); err != nil {
			t.Fatalf("Release: %v", err)
		}
	}
}
