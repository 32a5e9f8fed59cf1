package amqpbroker_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/amqpbroker"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// TestNotesCluster kills each of three nodes in turn. No note of a start is lost, and living nodes
// are absent only briefly. AckedBefore is right for each message that is delivered again.
func TestNotesCluster(t *testing.T) {
	testserver.Thorough(t)
	c := testserver.OwnRabbitCluster(t, testserver.RabbitConfig{})
	begun := time.Now()
	b, other := connect(t, amqpbroker.Config{Connect: amqpconnect.Config{URLs: c.URLs()}}), connect(t, amqpbroker.Config{Connect: amqpconnect.Config{URLs: c.URLs()}})
	q := declared(t, b)
	testwait.Until(t, "queues older than 5 s", func() bool { return time.Since(begun) > 6*time.Second })
	s := subscribe(t, b, q, 60)
	var want []string
	note := func(b *amqpbroker.Broker) {
		t.Helper()
		nonce := fmt.Sprint(len(want))
		testwait.UntilNil(t, "a note", func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			got, err := b.NoteStart(ctx, q, broker.Start{ID: "a", Nonce: nonce, Node: "node"})
			if err == nil && !slices.Equal(nonces(got), want) {
				t.Errorf("before note %s: %v, want %v", nonce, nonces(got), want)
			}
			return err
		})
		want = append(want, nonce+":0")
	}
	for node := range c.Nodes {
		for range 10 {
			note(b)
		}
		for i := range 60 {
			publish(t, other, q, message(fmt.Sprint(node, "-", i)))
		}
		var ds []broker.Delivery
		for range 60 {
			ds = append(ds, receive(t, s))
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		sure := map[string]bool{}
		for _, d := range ds[:30] {
			wg.Go(func() {
				if err := broker.AckSync(testwait.Long(t), d); err != nil {
					t.Errorf("AckSync: %v", err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				sure[d.Message().ID] = true
			})
		}
		wg.Wait()
		c.KillNode(node)
		note(other)
		note(b)
		awaitState(t, other, "node", broker.NodePresent)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		if err := c.RestartNode(ctx, node); err != nil {
			t.Fatalf("RestartNode: %v", err)
		}
		cancel()
		again := map[string]bool{}
		for _, d := range ds[30:] { // the deliveries of a living node are still held
			if err := d.Ack(testwait.Long(t)); err == nil {
				again[d.Message().ID] = true
			}
		}
		testwait.Until(t, "all is settled", func() bool {
			if len(again) == 30 {
				return true
			}
			d := receive(t, s)
			id := d.Message().ID
			if got := ackedBefore(t, d); got != sure[id] {
				t.Errorf("%s: AckedBefore %v, want %v", id, got, sure[id])
			}
			if !sure[id] {
				again[id] = true
			}
			ack(t, d)
			return false
		})
		drain(t, other, q)
	}
}
