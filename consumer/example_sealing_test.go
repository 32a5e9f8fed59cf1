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
)

// With a Sealer, arguments and results are encrypted on their way, and nobody without the key can add, change or move a task.
// A plain task goes to the dead letters.
func ExampleConfig_sealing() {
	secret := make([]byte, 32) // a real program reads it from where it keeps its secrets
	_, _ = rand.Read(secret)
	ring, err := serializer.NewKeyRing(serializer.Key{ID: "2026-01", Secret: secret})
	must(err)

	b := membroker.New()
	pay := task.New[string, string]("pay")
	p, c, run := inMemory(producer.Config{Broker: b, Wire: serializer.Wire{Sealer: ring}}, consumer.Config{Broker: b, Wire: serializer.Wire{Sealer: ring}})
	must(pay.Handle(c, func(_ context.Context, card string) (string, error) { return "paid with " + card, nil }))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	f, err := pay.Submit(ctx, p, "4111-1111")
	must(err)
	fmt.Println(f.Get(ctx))

	must(b.Publish(ctx, "default", &broker.Message{ID: "m-1", Body: []byte(`{"task":"pay","args":"somebody else's"}`)}))
	fmt.Println(waitForDead(ctx, b).Reason)
	// Output:
	// paid with 4111-1111 <nil>
	// serializer: not sealed: this consumer takes sealed tasks only
}

// Keys are changed in three steps, each finished everywhere before the next begins: the new key opens, the new key seals, the
// old key is taken away. Tasks that wait meanwhile are opened with the key that they were sealed with.
func ExampleConfig_keyRotation() {
	oldKey := serializer.Key{ID: "2025", Secret: bytes.Repeat([]byte{1}, 32)}
	newKey := serializer.Key{ID: "2026", Secret: bytes.Repeat([]byte{2}, 32)}
	first, err := serializer.NewKeyRing(oldKey, newKey) // this producer has not been restarted since the first step
	must(err)
	second, err := serializer.NewKeyRing(newKey, oldKey)
	must(err)

	double := task.New[int, int]("double")
	p, c, run := inMemory(producer.Config{Wire: serializer.Wire{Sealer: first}}, consumer.Config{Wire: serializer.Wire{Sealer: second}})
	must(double.Handle(c, func(_ context.Context, i int) (int, error) { return 2 * i, nil }))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	f, err := double.Submit(ctx, p, 21) // sealed with the old key; its result with the new one
	must(err)
	fmt.Println(f.Get(ctx))
	// Output: 42 <nil>
}
