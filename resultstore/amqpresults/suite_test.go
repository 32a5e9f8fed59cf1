package amqpresults_test

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/amqpresults"
	"github.com/swarmiji/swarmiji/resultstore/resultstoretest"
	"github.com/swarmiji/swarmiji/task"
)

// largest is MaxResult of the suite's stores, in bytes.
const largest = 2 << 20

func TestStore(t *testing.T) {
	for _, queueType := range []amqpresults.QueueType{amqpresults.Classic, amqpresults.Quorum} {
		t.Run(string(queueType), func(t *testing.T) {
			resultstoretest.Run(t, func(t testing.TB) *resultstoretest.Harness {
				if queueType == amqpresults.Quorum && !strings.Contains(t.Name(), "/fault/") {
					testserver.Thorough(t) // only the fault cases depend on the queue type
				}
				h := harness(t, queueType)
				if queueType == amqpresults.Classic { // the default with one server
					h.Report = "../../docs/capabilities/results-amqp.json"
				}
				return h
			})
		})
	}
}

func harness(t testing.TB, queueType amqpresults.QueueType) *resultstoretest.Harness {
	srv := testserver.RequireRabbit(t)
	line := testserver.NewRelay(t, srv.Addr())
	ns := testserver.Namespace()
	return &resultstoretest.Harness{
		Open: func(t testing.TB) resultstore.ResultStore {
			s, err := amqpresults.New(amqpresults.Config{
				Connect: amqpconnect.Config{URLs: []string{line.URL(srv.URL())}, Backoff: task.Backoff{Max: 500 * time.Millisecond}}, Namespace: ns, MaxResult: largest, QueueType: queueType, Logger: quiet(),
			})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Sever: func(testing.TB, resultstore.ResultStore) { line.Sever() },
		Restart: func(t testing.TB) {
			if err := srv.Restart(testwait.Long(t)); err != nil {
				t.Fatal(err)
			}
		},
		Down: func(testing.TB) func() {
			line.SetDown(true)
			return func() { line.SetDown(false) }
		},
		Lose: func(t testing.TB, node string) {
			other, err := amqp.Dial(srv.URL())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = other.Close() }()
			ch, err := other.Channel()
			if err == nil {
				_, err = ch.QueueDelete("swj."+ns+".reply."+node, false, false, false)
			}
			if err != nil {
				t.Fatal(err)
			}
		},
		Prefix:   ns,
		Secret:   srv.Password(),
		Promises: resultstoretest.Promises{RepliesOnly: true, Notify: true, Batches: true, Durable: true, MaxResult: largest},
	}
}
