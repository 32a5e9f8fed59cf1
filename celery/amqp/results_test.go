package amqp_test

import (
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	client "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/celery/amqp"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
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

// A submitter with the name of a queue of tasks must not take the tasks for replies, nor delete the
// queue when it ends.
func TestRepliesLeaveAQueueOfTasksAlone(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	for name, args := range map[string]client.Table{
		"Celery's": nil, "priorities": {"x-max-priority": int32(10)}, "quorum": {"x-queue-type": "quorum"},
	} {
		t.Run(name, func(t *testing.T) {
			queue := testserver.Namespace()
			on(t, srv, func(ch *client.Channel) error {
				if err := ch.Confirm(false); err != nil {
					return err
				}
				if _, err := ch.QueueDeclare(queue, true, false, false, false, args); err != nil {
					return err
				}
				sent, err := ch.PublishWithDeferredConfirm("", queue, false, false, client.Publishing{Body: []byte("a task")})
				if err == nil {
					sent.Wait()
				}
				return err
			})
			s, err := amqp.NewResults(amqp.ResultsConfig{
				Connect: amqpconnect.Config{URLs: []string{srv.URL()}}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
			})
			if err != nil {
				t.Fatal(err)
			}
			stream, err := s.Replies(testwait.Long(t), queue)
			if !errors.Is(err, resultstore.ErrMalformed) {
				t.Errorf("Replies: %v, want ErrMalformed", err)
			}
			if stream != nil {
				rec, err := stream.Receive(testwait.Long(t))
				t.Errorf("the stream received %v, %v", rec.ID, err)
			}
			if err := s.Close(testwait.Long(t)); err != nil {
				t.Errorf("Close: %v", err)
			}
			on(t, srv, func(ch *client.Channel) error {
				q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
				if err == nil && q.Messages != 1 {
					t.Errorf("the queue has %d messages, want 1", q.Messages)
				}
				return err
			})
		})
	}
}
