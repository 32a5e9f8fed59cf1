package consumer_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// TestConsumerClockIsBehind shows that a delayed task runs when it is due by the broker's clock,
// although the consumer's clock is behind. It is not sent back. A task that an older or foreign
// producer has delayed is sent back once.
func TestConsumerClockIsBehind(t *testing.T) {
	for name, submit := range map[string]func(*testing.T, *table) (received int64){
		"delayed by a producer": func(_ *testing.T, b *table) int64 {
			b.submit(1, task.WithDelay(30*time.Second))
			return 1
		},
		"a retry": func(_ *testing.T, b *table) int64 {
			b.submit(-30, task.WithMaxRetries(1))
			time.Sleep(25 * time.Second)
			return 2
		},
		"of an older producer": func(t *testing.T, b *table) int64 {
			at := time.Now().Add(30 * time.Second)
			e := &task.Envelope{ID: "01a205ab-5a28-726a-acbc-e5a6da67b985", Name: "echo", Args: []byte("1"), ContentType: serializer.ContentJSON}
			e.Meta.NotBefore = task.Set(at)
			m, err := serializer.JSONFormat{}.Encode(e)
			must0(t, err)
			must0(t, b.server.Connect().PublishAt(t.Context(), "default", m, at.Add(-10*time.Second)))
			return 2
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const by = 10 * time.Second
				b := newTable(t, func(c *consumer.Config) { c.Broker = ahead{c.Broker.(*membroker.Broker), by, new(atomic.Int64)} })
				p, err := producer.New(producer.Config{Broker: ahead{b.server.Connect(), by, new(atomic.Int64)}, Results: b.store})
				must0(t, err)
				must0(t, b.p.Close(t.Context()))
				b.p = p
				b.run()
				synctest.Wait()
				want := submit(t, b)
				time.Sleep(time.Minute)
				if got := b.metrics.Received.Count(); got != want || b.runs.Load() == 0 {
					t.Errorf("the task was received %d times and ran %d times, want %d receptions", got, b.runs.Load(), want)
				}
				b.end()
			})
		})
	}
}
