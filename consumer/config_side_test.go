package consumer_test

import (
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
)

// TestSideQueueIsNoName: a queue whose name is that of another one's old side queue would be emptied by the consumers of the other.
func TestSideQueueIsNoName(t *testing.T) {
	_, err := consumer.New(consumer.Config{Broker: membroker.New(), Queues: map[string]consumer.QueueConfig{"mail": {}, "mail.suspects": {}}})
	if err == nil || !strings.Contains(err.Error(), `"mail.suspects"`) || !strings.Contains(err.Error(), "choose another name") {
		t.Errorf("New: %v", err)
	}
}
