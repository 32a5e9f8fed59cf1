package amqpbroker

import (
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// answer is the state of a queue that a server reports after a time.
type answer struct {
	after               time.Duration
	messages, consumers int
}

// answers is a channel whose server gives these answers, the last one again and again.
type answers struct {
	list  []answer
	asked int
}

func (a *answers) QueueDeclarePassive(string, bool, bool, bool, bool, amqp.Table) (amqp.Queue, error) {
	one := a.list[min(a.asked, len(a.list)-1)]
	a.asked++
	time.Sleep(one.after)
	return amqp.Queue{Messages: one.messages, Consumers: one.consumers}, nil
}

// TestAskQueue shows that askQueue asks again after a late answer of 0 messages and 0 consumers.
// RabbitMQ gives this answer for a quorum queue whose leader is busy. Other answers are accepted.
func TestAskQueue(t *testing.T) {
	late := answer{after: statTime}
	for name, c := range map[string]struct {
		list            []answer
		messages, asked int
	}{
		"prompt":               {[]answer{{messages: 3}}, 3, 1},
		"prompt and empty":     {[]answer{{}, {messages: 3}}, 0, 1},
		"the leader is busy":   {[]answer{late, late, {messages: 3}}, 3, 3},
		"a slow line":          {[]answer{{after: time.Second, messages: 3}}, 3, 1},
		"empty with consumers": {[]answer{{after: time.Second, consumers: 1}, {messages: 3}}, 0, 1},
		"always late":          {[]answer{late}, 0, statTries},
	} {
		synctest.Test(t, func(t *testing.T) {
			ch := &answers{list: c.list}
			q, err := askQueue(ch, "q")
			if err != nil || q.Messages != c.messages || ch.asked != c.asked {
				t.Errorf("%s: %d messages after %d questions, %v; want %d after %d", name, q.Messages, ch.asked, err, c.messages, c.asked)
			}
		})
	}
}
