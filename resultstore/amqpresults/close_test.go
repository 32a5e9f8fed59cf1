package amqpresults_test

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/resultstore/amqpresults"
)

// logBuffer collects log output. Safe for concurrent use.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Streams of one node share its queue. Closing the first stream leaves queue and connection to the
// others, and closing the last one removes the queue. This holds for every type of queue.
func TestLastCloseRemovesTheQueue(t *testing.T) {
	for name, c := range map[string]struct {
		queueType amqpresults.QueueType
		before    amqp.Table // arguments of an existing queue
	}{
		"classic":              {amqpresults.Classic, nil},
		"quorum":               {amqpresults.Quorum, nil},
		"was quorum before":    {amqpresults.Classic, amqp.Table{"x-queue-type": "quorum", "x-expires": int64(60_000)}},
		"was classic before":   {amqpresults.Quorum, amqp.Table{"x-queue-type": "classic", "x-expires": int64(60_000)}},
		"had a shorter expiry": {amqpresults.Quorum, amqp.Table{"x-queue-type": "quorum", "x-expires": int64(60_000)}},
	} {
		t.Run(name, func(t *testing.T) {
			srv := testserver.RequireRabbit(t)
			ns := testserver.Namespace()
			queue := "swj." + ns + ".reply.node"
			if c.before != nil {
				if _, err := channel(t, srv.URL()).QueueDeclare(queue, true, false, false, false, c.before); err != nil {
					t.Fatal(err)
				}
			}
			var log logBuffer
			set := func(cfg *amqpresults.Config) {
				cfg.QueueType, cfg.Logger = c.queueType, slog.New(slog.NewTextHandler(&log, nil))
			}
			a, b := open(t, srv.URL(), ns, set), open(t, srv.URL(), ns, set)
			first, second, third := notify(t, a, "node"), notify(t, a, "node"), notify(t, b, "node")
			begin := log.String() // may mention a queue with other arguments
			if err := errors.Join(first.Close(testwait.Long(t)), third.Close(testwait.Long(t))); err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				save(t, b, done("node", i))
				receive(t, second, done("node", i))
			}
			if told := strings.TrimPrefix(log.String(), begin); told != "" {
				t.Errorf("closing two of three streams disturbed the third: %s", told)
			}
			if err := second.Close(testwait.Long(t)); err != nil {
				t.Fatal(err)
			}
			if q, err := channel(t, srv.URL()).QueueDeclarePassive(queue, true, false, false, false, nil); err == nil {
				t.Errorf("after the last Close the queue is still there, with %d consumers", q.Consumers)
			}
			if told := strings.TrimPrefix(log.String(), begin); told != "" {
				t.Errorf("the log after all: %s", told)
			}
		})
	}
}
