package amqpconn

import (
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// reported is the state of a queue that a server reports after a time.
type reported struct {
	after               time.Duration
	messages, consumers int
}

// reports is a channel whose server gives these answers, the last one again and again.
type reports struct {
	list  []reported
	asked int
}

func (a *reports) QueueDeclarePassive(string, bool, bool, bool, bool, amqp.Table) (amqp.Queue, error) {
	one := a.list[min(a.asked, len(a.list)-1)]
	a.asked++
	time.Sleep(one.after)
	return amqp.Queue{Messages: one.messages, Consumers: one.consumers}, nil
}

// TestNumbers shows that Numbers asks again after a late answer of 0 messages and 0 consumers.
// RabbitMQ gives this answer for a quorum queue whose leader is busy. Other answers are accepted.
func TestNumbers(t *testing.T) {
	late := reported{after: statTime}
	for name, c := range map[string]struct {
		list            []reported
		messages, asked int
	}{
		"prompt":               {[]reported{{messages: 3}}, 3, 1},
		"prompt and empty":     {[]reported{{}, {messages: 3}}, 0, 1},
		"the leader is busy":   {[]reported{late, late, {messages: 3}}, 3, 3},
		"a slow line":          {[]reported{{after: time.Second, messages: 3}}, 3, 1},
		"empty with consumers": {[]reported{{after: time.Second, consumers: 1}, {messages: 3}}, 0, 1},
		"always late":          {[]reported{late}, 0, statTries},
	} {
		synctest.Test(t, func(t *testing.T) {
			ch := &reports{list: c.list}
			q, err := Numbers(ch, "q")
			if err != nil || q.Messages != c.messages || ch.asked != c.asked {
				t.Errorf("%s: %d messages after %d questions, %v; want %d after %d", name, q.Messages, ch.asked, err, c.messages, c.asked)
			}
		})
	}
}
