package amqp_test

import (
	"io"
	"log/slog"
	"testing"
	"time"

	client "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/celery/amqp"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/resultstoretest"
	"github.com/swarmiji/swarmiji/task"
)

// TestResults runs the suite of the port.
func TestResults(t *testing.T) {
	resultstoretest.Run(t, func(t testing.TB) *resultstoretest.Harness {
		srv := testserver.RequireRabbit(t)
		line := testserver.NewRelay(t, srv.Addr())
		return &resultstoretest.Harness{
			Open: func(t testing.TB) resultstore.ResultStore {
				s, err := amqp.NewResults(amqp.ResultsConfig{
					Connect:   amqpconnect.Config{URLs: []string{line.URL(srv.URL())}, Backoff: task.Backoff{Max: 500 * time.Millisecond}},
					MaxResult: 2 << 20, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
				})
				if err != nil {
					t.Fatal(err)
				}
				return s
			},
			Sever: func(testing.TB, resultstore.ResultStore) { line.Sever() },
			Down: func(testing.TB) func() {
				line.SetDown(true)
				return func() { line.SetDown(false) }
			},
			Lose: func(t testing.TB, node string) {
				on(t, srv, func(ch *client.Channel) error {
					_, err := ch.QueueDelete(node, false, false, false)
					return err
				})
			},
			Prefix:   testserver.Namespace(),
			Secret:   srv.Password(),
			Promises: resultstoretest.Promises{RepliesOnly: true, Notify: true, Batches: true, MaxResult: 2 << 20},
			Report:   "../../docs/capabilities/results-celery.json",
		}
	})
}
