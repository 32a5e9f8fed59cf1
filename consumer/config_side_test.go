package consumer_test

import (
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
)

// TestSideQueueNameIsRefused shows that New refuses a queue with the name of another queue's old
// side queue, which consumers of that queue would empty.
func TestSideQueueNameIsRefused(t *testing.T) {
	_, err := consumer.New(consumer.Config{Broker: membroker.New(), Queues: map[string]consumer.QueueConfig{"mail": {}, "mail.suspects": {}}})
	if err == nil || !strings.Contains(err.Error(), `"mail.suspects"`) || !strings.Contains(err.Error(), "choose another name") {
		t.Errorf("New: %v", err)
	}
}
