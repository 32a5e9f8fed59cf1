package endtoend_test

import (
	"path/filepath"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/endtoend"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/resultstore"
)

// TestRequeueOverRabbitMQ requeues dead letters on RabbitMQ with a SQL database or Redis as the
// result store.
func TestRequeueOverRabbitMQ(t *testing.T) {
	rabbit, redis := testserver.RequireRabbit(t), testserver.RequireRedis(t)
	noLeaks(t)
	for name, results := range map[string]func(t *testing.T) string{
		"SQL":   func(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "results.db") },
		"Redis": func(*testing.T) string { return redis.URL() },
	} {
		t.Run(name, func(t *testing.T) {
			endtoend.RunRequeue(t, func(t *testing.T) *endtoend.Harness {
				o := open.Options{Namespace: testserver.Namespace(), Logger: quiet()}
				store := results(t)
				return &endtoend.Harness{
					Broker:  func(t *testing.T) broker.Broker { return opened(t, rabbit.URL(), o, open.Broker) },
					Results: func(t *testing.T) resultstore.ResultStore { return opened(t, store, o, open.Results) },
				}
			})
		})
	}
}
