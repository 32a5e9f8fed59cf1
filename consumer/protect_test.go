package consumer_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

func testRing(t *testing.T, id string) serializer.Sealer {
	t.Helper()
	ring, err := serializer.NewKeyRing(serializer.Key{ID: id, Secret: []byte(strings.Repeat(id, 32)[:32])})
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

// TestForgedRecord shows that a record from a writer without the key has no effect. The producer's
// future fails. A consumer whose own record it blocks sends no successors and dead-letters the
// task.
func TestForgedRecord(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	server, store := membroker.NewServer(membroker.Config{}), memresults.New(memresults.Config{})
	quiet := slog.New(slog.DiscardHandler)
	counted := new(middleware.Metrics)
	sender := server.Connect()
	p, err := producer.New(producer.Config{Broker: sender, Results: store, Wire: serializer.Wire{Sealer: testRing(t, "k")}, Metrics: counted, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(ctx)
	c, err := consumer.New(consumer.Config{Broker: server.Connect(), Results: store, Wire: serializer.Wire{Sealer: testRing(t, "k")}, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	pay := task.New[int, int]("pay")
	if err := pay.Handle(c, func(_ context.Context, i int) (int, error) { return i, nil }); err != nil {
		t.Fatal(err)
	}
	spend := task.New[int, int]("spend")
	spent := make(chan int, 10)
	if err := spend.Handle(c, func(_ context.Context, i int) (int, error) { spent <- i; return i, nil }); err != nil {
		t.Fatal(err)
	}
	forged := resultstore.Record{
		ID: "forged", Name: "pay", State: task.StateSucceeded, Deliveries: 1, ContentType: serializer.ContentJSON, Result: []byte("1000000"), Generation: 5,
	}
	if err := store.Save(ctx, forged); err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(running) }()

	call := pay.Call(1, task.WithID("forged"))
	call.Then = []task.Link{{Name: "spend", Queue: "default"}}
	pending, err := p.Submit(ctx, call)
	if err != nil {
		t.Fatal(err)
	}
	if err := pending.Result(ctx, nil); !errors.Is(err, serializer.ErrNotSealed) {
		t.Errorf("the future of the forged record: %v", err)
	}
	if state, err := p.Pending("forged").State(ctx); !errors.Is(err, serializer.ErrNotSealed) {
		t.Errorf("its state: %q, %v", state, err)
	}
	if counted.Rejected.Count() == 0 {
		t.Error("not counted")
	}
	for {
		dead, err := broker.ListDead(ctx, sender, "default", 10)
		if err := errors.Join(err, ctx.Err()); err != nil {
			t.Fatalf("waiting for the dead letter: %v", err)
		}
		if len(dead) == 1 && dead[0].Message.ID == "forged" {
			break
		}
		<-time.After(time.Millisecond)
	}
	call = pay.Call(2)
	call.Then = []task.Link{{Name: "spend", Queue: "default"}}
	if _, err := p.Submit(ctx, call); err != nil {
		t.Fatal(err)
	}
	select {
	case i := <-spent:
		if i != 2 {
			t.Errorf("%d was spent", i)
		}
	case <-ctx.Done():
		t.Fatal("the successor of a genuine result did not run")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(spent) > 0 {
		t.Errorf("%d was spent besides", <-spent)
	}
}

// TestSealerOnOneSideOnly shows that a consumer without the key dead-letters sealed tasks with the
// reason.
func TestSealerOnOneSideOnly(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	server := membroker.NewServer(membroker.Config{})
	quiet := slog.New(slog.DiscardHandler)
	sender := server.Connect()
	work := task.New[int, int]("work", task.WithIgnoreResult(true))
	for id, sealer := range map[task.ID]serializer.Sealer{"sealed-k": testRing(t, "k"), "sealed-m": testRing(t, "m")} {
		p, err := producer.New(producer.Config{Broker: sender, Wire: serializer.Wire{Sealer: sealer}, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := work.Submit(ctx, p, 1, task.WithID(id)); err != nil {
			t.Fatal(err)
		}
		if err := p.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	m := new(middleware.Metrics)
	c, err := consumer.New(consumer.Config{Broker: server.Connect(), Logger: quiet, Metrics: m})
	if err != nil {
		t.Fatal(err)
	}
	if err := work.Handle(c, func(context.Context, int) (int, error) { t.Error("it ran"); return 0, nil }); err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(running) }()
	for m.DeadLettered.Count() < 2 && ctx.Err() == nil {
		<-time.After(time.Millisecond)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	dead, err := broker.ListDead(context.WithoutCancel(ctx), sender, "default", 10)
	if err != nil || len(dead) != 2 || !strings.Contains(dead[0].Reason, "no Sealer is configured") {
		t.Errorf("dead letters: %v, %v", dead, err)
	}
}
