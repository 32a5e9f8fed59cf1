package pushbroker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/examples/pushbroker"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/task"
)

const queue = "q"

func message(id string) *broker.Message { return &broker.Message{ID: id, Priority: 100} }

func subscribe(t *testing.T, n *pushbroker.Node, prefetch int) broker.Subscription {
	t.Helper()
	s, err := n.Subscribe(t.Context(), queue, broker.SubscribeOptions{Prefetch: prefetch})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// receive waits for a delivery on a goroutine of its own.
func receive(t *testing.T, s broker.Subscription) <-chan broker.Delivery {
	got := make(chan broker.Delivery, 1)
	go func() {
		d, err := s.Receive(t.Context())
		if err != nil {
			t.Errorf("receive: %v", err)
		}
		got <- d
	}()
	synctest.Wait() // until it waits, or has one
	return got
}

// publish publishes on a goroutine of its own.
func publish(ctx context.Context, n *pushbroker.Node, id string) <-chan error {
	done := make(chan error, 1)
	go func() { done <- n.Publish(ctx, queue, message(id)) }()
	synctest.Wait()
	return done
}

func settled(t *testing.T, done <-chan error) error {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		return err
	default:
		t.Fatal("Publish waits although nothing is left to wait for")
		return nil
	}
}

// Each way to settle ends the Publish that handed the message over, and none other does.
func TestAtOncePublishReturnsWhenSettled(t *testing.T) {
	for name, settle := range map[string]func(n *pushbroker.Node, d broker.Delivery) error{
		"Ack":     func(_ *pushbroker.Node, d broker.Delivery) error { return d.Ack(context.Background()) },
		"Release": func(_ *pushbroker.Node, d broker.Delivery) error { return d.Release(context.Background(), 0) },
		"DeadLetter": func(_ *pushbroker.Node, d broker.Delivery) error {
			return d.DeadLetter(context.Background(), broker.Dead{Reason: "no"})
		},
		"Retry": func(n *pushbroker.Node, d broker.Delivery) error {
			return n.Retry(context.Background(), d, broker.Outgoing{Queue: queue, Message: message("next")})
		},
		"Close of the node": func(n *pushbroker.Node, _ broker.Delivery) error { return n.Close(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub := pushbroker.AtOnce()
				worker, publisher := hub.Connect(), hub.Connect()
				got := receive(t, subscribe(t, worker, 1))
				done := publish(t.Context(), publisher, "a")
				select {
				case err := <-done:
					t.Fatalf("Publish returned %v before the message was settled", err)
				case d := <-got:
					if err := settle(worker, d); err != nil {
						t.Fatal(err)
					}
				}
				if err := settled(t, done); err != nil {
					t.Fatalf("Publish: %v", err)
				}
			})
		})
	}
}

// TestAtOnceWithoutListener: without a consumer Publish returns an error and does not wait.
func TestAtOnceWithoutListener(t *testing.T) {
	hub := pushbroker.AtOnce()
	n := hub.Connect()
	s := subscribe(t, n, 1)
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.Publish(t.Context(), queue, message("a")); !errors.Is(err, broker.ErrNoQueue) {
		t.Fatalf("Publish with no listener: %v, want ErrNoQueue", err)
	}
}

// TestAtOncePublishTimesOut: if the publisher's context ends, the outcome of the task is unknown,
// and the task continues.
func TestAtOncePublishTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := pushbroker.AtOnce()
		n := hub.Connect()
		got := receive(t, subscribe(t, n, 1))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := <-publish(ctx, hub.Connect(), "a"); !errors.Is(err, broker.ErrIndeterminate) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Publish: %v, want ErrIndeterminate and DeadlineExceeded", err)
		}
		if err := (<-got).Ack(t.Context()); err != nil {
			t.Fatalf("Ack after the publisher has gone: %v", err)
		}
	})
}

// TestPushStaysWithItsNode: Push chooses the node with the fewest messages at Publish. Another node
// gets the message only if that node leaves.
func TestPushStaysWithItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := pushbroker.Push()
		a, b := hub.Connect(), hub.Connect()
		atA, atB := subscribe(t, a, 0), subscribe(t, b, 0)
		for i := range 6 {
			if err := a.Publish(t.Context(), queue, message(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 { // half of them, and no more
			if err := (<-receive(t, atB)).Ack(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		got := receive(t, atB)
		select {
		case d := <-got:
			t.Fatalf("node b was given %s, which had been pushed to node a", d.Message().ID)
		default:
		}
		if err := atA.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		d := <-got
		if n, exact := d.Deliveries(); n != 1 || !exact {
			t.Errorf("a message that node a never handed out counts %d deliveries, %v", n, exact)
		}
	})
}

// bare hides the capabilities beyond the port, so that a retry is a Publish and an Ack.
type bare struct{ broker.Broker }

// TestNothingWaitsForItself: where Publish waits for a run, the messages that the run publishes
// could wait for the run itself. With one worker and a prefetch of one no worker is free for the
// handler's submissions, its successors and its retries.
func TestNothingWaitsForItself(t *testing.T) {
	type step struct{ Depth int }
	hubs := map[string]func() *pushbroker.Hub{"AtOnce": pushbroker.AtOnce, "Push": pushbroker.Push}
	for name, open := range hubs {
		for _, workers := range []int{1, 2} {
			for _, plain := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/workers=%d/plain=%t", name, workers, plain), func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
					defer cancel()
					hub := open()
					var b broker.Broker = hub.Connect()
					if plain {
						b = bare{b}
					}
					results := memresults.New(memresults.Config{})
					p, err := producer.New(producer.Config{Broker: b, Results: results, Timeout: 20 * time.Second})
					if err != nil {
						t.Fatal(err)
					}
					c, err := consumer.New(consumer.Config{
						Broker: b, Results: results, Queues: map[string]consumer.QueueConfig{"default": {Workers: workers, Prefetch: workers}},
					})
					if err != nil {
						t.Fatal(err)
					}
					nested, after := task.New[step, int]("nested"), task.New[int, int]("after")
					last := make(chan int, 1)
					err = errors.Join(
						nested.Handle(c, func(ctx context.Context, s step) (int, error) {
							if r, _ := task.FromContext(ctx); r.Retries == 0 {
								return 0, task.Retry(errors.New("once more"), task.After(0))
							}
							if s.Depth > 0 {
								if _, err := nested.Submit(ctx, p, step{s.Depth - 1}, task.WithID(task.ID(fmt.Sprint("depth-", s.Depth-1)))); err != nil {
									return 0, err
								}
							}
							return s.Depth, nil
						}),
						after.Handle(c, func(_ context.Context, n int) (int, error) {
							last <- n
							return n, nil
						}),
					)
					if err != nil {
						t.Fatal(err)
					}
					run, stop := context.WithCancel(ctx)
					ended := make(chan error, 1)
					go func() { ended <- c.Run(run) }()
					defer func() {
						stop()
						if err := errors.Join(<-ended, p.Close(ctx), results.Close(ctx), b.Close(ctx)); err != nil {
							t.Errorf("closing: %v", err)
						}
					}()

					call := nested.Call(step{3}, task.WithID("depth-3"))
					call.Then = []task.Link{{Name: "after"}}
					for {
						_, err = p.Submit(ctx, call)
						if !errors.Is(err, broker.ErrNoQueue) || ctx.Err() != nil {
							break // else the consumer does not listen yet
						}
					}
					if err != nil {
						t.Fatal(err)
					}
					for depth := 3; depth >= 0; depth-- {
						var got int
						if err := p.Pending(task.ID(fmt.Sprint("depth-", depth))).Result(ctx, &got); err != nil || got != depth {
							t.Fatalf("result at depth %d is %d, %v", depth, got, err)
						}
					}
					select {
					case n := <-last:
						if n != 3 {
							t.Fatalf("the successor got %d, want 3", n)
						}
					case <-ctx.Done():
						t.Fatal("the successor did not run")
					}
				})
			}
		}
	}
}
