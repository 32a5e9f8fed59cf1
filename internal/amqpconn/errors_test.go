package amqpconn_test

import (
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/internal/amqpconn"
)

// A queue whose node is down or still starting exists. If a caller treated it as missing, it would
// stop or declare another one.
func TestNodeDownIsNotNotFound(t *testing.T) {
	for reason, down := range map[string]bool{
		"NOT_FOUND - no queue 'q' in vhost '/'":                                                                   false,
		"NOT_FOUND - no exchange 'home' in vhost '/'":                                                             false,
		"NOT_FOUND - home node 'n0@localhost' of durable queue 'q' in vhost '/' is down or inaccessible":          true,
		"NOT_FOUND - failed to perform operation on queue 'q' in vhost '/' because its master process is stopped": true,
	} {
		err := fmt.Errorf("declare: %w", &amqp.Error{Code: amqp.NotFound, Reason: reason, Server: true, Recover: true})
		if got := amqpconn.IsNodeDown(err); got != down {
			t.Errorf("IsNodeDown(%q) is %v", reason, got)
		}
		if got := amqpconn.IsNotFound(err); got == down {
			t.Errorf("IsNotFound(%q) is %v", reason, got)
		}
	}
	if amqpconn.IsNodeDown(&amqp.Error{Code: amqp.AccessRefused, Reason: "home node"}) {
		t.Error("an error of another code is taken for a node that is down")
	}
}
