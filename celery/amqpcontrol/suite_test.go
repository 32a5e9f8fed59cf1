package amqpcontrol_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/celery/amqpcontrol"
	"github.com/swarmiji/swarmiji/celery/control"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/eventstest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/task"
)

// quiet returns a Logger that writes nothing.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// suiteBuffer is smaller than the number of events that the suite publishes.
const suiteBuffer = 2000

// TestBus runs the suite of event buses. Celery's exchange has one name, so that each case has a
// virtual host of its own.
//
// Promises: S6.
func TestBus(t *testing.T) { eventstest.Run(t, harness) }

func harness(t testing.TB) *eventstest.Harness {
	srv := testserver.RequireRabbit(t)
	line := testserver.NewRelay(t, srv.Addr())
	url := line.URL(srv.NewVhost(t))
	return &eventstest.Harness{
		Open: func(t testing.TB) events.EventBus {
			tr, err := amqpcontrol.New(amqpcontrol.Config{
				Connect: amqpconnect.Config{URLs: []string{url}, Backoff: task.Backoff{Max: 500 * time.Millisecond}}, Logger: quiet(),
			})
			if err != nil {
				t.Fatal(err)
			}
			b, err := control.NewBus(control.Config{Transport: tr, Buffer: suiteBuffer})
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
		Sever: func(testing.TB, events.EventBus) { line.Sever() },
		Restart: func(t testing.TB) {
			if err := srv.Restart(testwait.Long(t)); err != nil {
				t.Fatal(err)
			}
		},
		Down: func(testing.TB) func() {
			line.SetDown(true)
			return func() { line.SetDown(false) }
		},
		Secret: srv.Password(),
		Buffer: suiteBuffer,
		Report: "../../docs/capabilities/events-celery-amqp.json",
	}
}
