package consumer_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// With a Sealer, arguments and results are encrypted on their way. Without the key no program can
// add, change or move a task. A plain task goes to the dead letters.
func ExampleConfig_sealing() {
	secret := make([]byte, 32) // a real program reads it from where it keeps its secrets
	_, _ = rand.Read(secret)
	ring, err := serializer.NewKeyRing(serializer.Key{ID: "2026-01", Secret: secret})
	if err != nil {
		panic(err)
	}

	b := membroker.New()
	pay := task.New[string, string]("pay")
	s := tasktest.New(nil)
	defer s.Close()
	p := s.Producer(producer.Config{Broker: b, Wire: serializer.Wire{Sealer: ring}})
	s.Start(consumer.Config{Broker: b, Wire: serializer.Wire{Sealer: ring}}, func(r task.Registrar) error {
		return pay.Handle(r, func(_ context.Context, card string) (string, error) { return "paid with " + card, nil })
	})

	ctx := context.Background()
	f, err := pay.Submit(ctx, p, "4111-1111")
	if err != nil {
		panic(err)
	}
	fmt.Println(f.Get(ctx))

	if err := b.Publish(ctx, "default", &broker.Message{ID: "m-1", Body: []byte(`{"task":"pay","args":"somebody else's"}`)}); err != nil {
		panic(err)
	}
	var dead []broker.Dead
	for len(dead) == 0 { // until the consumer has looked at it
		if dead, err = broker.ListDead(ctx, b, "default", 1); err != nil {
			panic(err)
		}
	}
	fmt.Println(dead[0].Reason)
	// Output:
	// paid with 4111-1111 <nil>
	// serializer: not sealed: this consumer accepts only sealed tasks
}

// Keys are changed in three steps, each finished everywhere before the next: the new key opens, the
// new key seals, the old key is removed. Tasks that wait in between are opened with the key that
// sealed them.
func ExampleConfig_keyRotation() {
	oldKey := serializer.Key{ID: "2025", Secret: bytes.Repeat([]byte{1}, 32)}
	newKey := serializer.Key{ID: "2026", Secret: bytes.Repeat([]byte{2}, 32)}
	// this producer has not been restarted since the first step
	first, err := serializer.NewKeyRing(oldKey, newKey)
	if err != nil {
		panic(err)
	}
	second, err := serializer.NewKeyRing(newKey, oldKey)
	if err != nil {
		panic(err)
	}

	double := task.New[int, int]("double")
	s := tasktest.New(nil)
	defer s.Close()
	p := s.Producer(producer.Config{Wire: serializer.Wire{Sealer: first}})
	s.Start(consumer.Config{Wire: serializer.Wire{Sealer: second}}, func(r task.Registrar) error {
		return double.Handle(r, func(_ context.Context, i int) (int, error) { return 2 * i, nil })
	})

	ctx := context.Background()
	f, err := double.Submit(ctx, p, 21) // sealed with the old key; its result with the new one
	if err != nil {
		panic(err)
	}
	fmt.Println(f.Get(ctx))
	// Output: 42 <nil>
}
