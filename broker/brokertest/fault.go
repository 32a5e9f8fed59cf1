package brokertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/suite"
)

// faultCases returns the cases of restarts, outages and cut connections.
func faultCases() []testCase {
	return []testCase{
		{
			Area: "fault", Name: "everything goes on after a restart", Needs: []need{needsRestart, needsDurable},
			Explain: "The adapter restores lost connections: after a restart the same Broker publishes, and the same Subscription receives, including the messages that it held.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "goon")
				s := w.subscribe(b, q, 4)
				w.publish(b, q, msgs("before", 3)...)
				d := w.receive(s)
				w.h.Restart(w.TB)
				want := append(names(msgs("before", 3)...), "after/0")
				var maybe []string
				if w.h.Promises.Outlives {
					w.ack(d)
					acked := name(d.Message())
					want = slices.DeleteFunc(want, func(n string) bool { return n == acked })
					if w.h.Promises.Forgets {
						maybe = []string{acked}
					}
				} else {
					suite.Ends(w.World, d.Lost(), "Lost after a restart")
				}
				w.publishSurely(b, q, msg("after"))
				w.drainAllAnd(s, maybe, want...)
			},
		},
		{
			Area: "fault", Name: "Publish while the server is away", Needs: []need{needsDown},
			Explain: "Without a connection Publish waits until ctx ends, then returns ErrUnavailable, or ErrIndeterminate if the request may have been sent. It never hangs.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "away")
				up := w.h.Down(w.TB)
				defer up()
				for i := range 3 {
					w.bounded(func(ctx context.Context) error { return b.Publish(ctx, q, msg(fmt.Sprint(i))) }, "Publish")
				}
				ctx, cancel := w.short()
				defer cancel()
				err := w.Clean(broker.PublishBatch(ctx, b, []broker.Outgoing{{Queue: q, Message: msg("x")}, {Queue: q, Message: msg("y")}}))
				for i, err := range broker.BatchErrors(err, 2) {
					if !errors.Is(err, broker.ErrUnavailable) && !errors.Is(err, broker.ErrIndeterminate) {
						w.Errorf("message %d of a batch while the server is away: got error %v", i, err)
					}
				}
			},
		},
		{
			Area: "fault", Name: "Publish waits for the server", Needs: []need{needsDown},
			Explain: "Without a connection Publish waits, and succeeds when a connection exists before ctx ends.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "comes")
				s := w.subscribe(b, q, 1)
				up := w.h.Down(w.TB)
				up = sync.OnceFunc(up)
				defer up()
				w.Until("Publish that is ErrUnavailable while the server is away", func() bool {
					ctx, cancel := w.short()
					defer cancel()
					return errors.Is(w.Clean(b.Publish(ctx, q, msg("probe"))), broker.ErrUnavailable)
				})
				waiting := w.async(func(ctx context.Context) error { return b.Publish(ctx, q, msg("waits")) })
				select {
				case err := <-waiting:
					w.Fatalf("Publish without a connection did not wait: %v", err)
				case <-time.After(w.Quiet):
				}
				up()
				w.Must(suite.Ends(w.World, waiting, "Publish"), "Publish that waited for the server")
				w.Until("the message that waited", func() bool {
					d := w.receive(s)
					w.ack(d)
					return d.Message().ID == "waits" // the probe may have arrived
				})
			},
		},
		{
			Area: "fault", Name: "every call is bounded while the server is away", Needs: []need{needsDown},
			Explain: "A ctx bounds every wait: no call hangs while the server is down, and each error has a class.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "bounded")
				s := w.subscribe(b, q, 1)
				w.publish(b, q, msg("a"))
				d := w.receive(s)
				up := sync.OnceFunc(w.h.Down(w.TB))
				defer up()
				suite.Ends(w.World, d.Lost(), "Lost while the server is away")
				w.WantIs(suite.Ends(w.World, w.async(d.Ack), "Ack"), broker.ErrLeaseLost, "Ack of a lost delivery while the server is away")
				w.nothing(s, "while the server is away")
				w.bounded(func(ctx context.Context) error {
					_, err := b.Subscribe(ctx, q, broker.SubscribeOptions{})
					if err == nil { // a subscription outlives lost connections, so it may also begin without one
						err = broker.ErrUnavailable
					}
					return err
				}, "Subscribe")
				for what, call := range methodsOfQueue(b) {
					w.bounded(func(ctx context.Context) error { return call(ctx, q) }, what)
				}
				up()
				// the messages that the bounded calls published may also be in the queue
				w.collect(s, []string{"a/0"})
			},
		},
		{
			Area: "fault", Name: "Close while the server is away", Needs: []need{needsDown},
			Explain: "Close is bounded by ctx also while the server is down, and ends the calls that wait for a connection.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "close")
				s := w.subscribe(b, q, 1)
				up := w.h.Down(w.TB)
				defer up()
				publish := w.async(func(ctx context.Context) error { return b.Publish(ctx, q, msg("a")) })
				receive := w.async(func(ctx context.Context) error { _, err := s.Receive(ctx); return err })
				w.quietError(receive, "Receive while the server is away")
				closed := w.async(func(context.Context) error {
					ctx, cancel := w.short()
					defer cancel()
					_ = w.Clean(b.Close(ctx)) // it may be unable to tell the server
					return nil
				})
				w.Must(suite.Ends(w.World, closed, "Broker.Close while the server is away"), "Broker.Close")
				w.WantIs(suite.Ends(w.World, receive, "Receive"), broker.ErrClosed, "Receive at Broker.Close")
				if err := suite.Ends(w.World, publish, "Publish"); !errors.Is(err, broker.ErrClosed) && !errors.Is(err, broker.ErrIndeterminate) {
					w.Errorf("Publish at Broker.Close: got error %v, want ErrClosed or ErrIndeterminate", err)
				}
			},
		},
		{
			Area: "fault", Name: "nothing confirmed is lost in cut connections", Needs: []need{needsSever},
			Explain: "Publish returned nil before a connection of the publisher or of the consumer was cut; a confirmed message must be delivered until it is acknowledged. Only the same (ID, Generation) may be seen twice.",
			Run: func(w *world) {
				pub, con := w.Open(), w.Open()
				w.storm(pub, con, func(round int) {
					if round%2 == 0 {
						w.h.Sever(w.TB, pub)
					} else {
						w.h.Sever(w.TB, con)
					}
				})
			},
		},
		{
			Area: "fault", Name: "nothing confirmed is lost in restarts", Needs: []need{needsRestart, needsDurable},
			Explain: "Publish returned nil before the server was restarted; a confirmed message must be delivered until it is acknowledged. Only the same (ID, Generation) may be seen twice.",
			Run: func(w *world) {
				w.storm(w.Open(), w.Open(), func(round int) {
					if round%3 == 0 {
						w.h.Restart(w.TB)
					}
				})
			},
		},
	}
}

// bounded runs a call with a ctx of 300 ms while the server is down. It expects that the call
// returns ErrUnavailable or ErrIndeterminate, at most Slack after the end of ctx.
func (w *world) bounded(call func(ctx context.Context) error, what string) {
	w.Helper()
	done := make(chan error, 1)
	var took time.Duration
	go func() {
		ctx, cancel := w.short()
		defer cancel()
		deadline, _ := ctx.Deadline()
		err := call(ctx)
		took = time.Since(deadline)
		done <- w.Clean(err)
	}()
	err := suite.Ends(w.World, done, what+" while the server is away")
	if !errors.Is(err, broker.ErrUnavailable) && !errors.Is(err, broker.ErrIndeterminate) {
		w.Errorf("%s while the server is away: got error %v, want ErrUnavailable or ErrIndeterminate", what, err)
	}
	if took > w.Slack {
		w.Errorf("%s while the server is away returned %v after its ctx had ended", what, took)
	}
}

// quietError expects that a call continues to wait: it fails the case at once if done yields the
// call's error within Quiet.
func (w *world) quietError(done <-chan error, what string) {
	w.Helper()
	t := time.NewTimer(w.Quiet)
	defer t.Stop()
	select {
	case err := <-done:
		w.Fatalf("%s returned %v", what, err)
	case <-t.C:
	}
}

// storm publishes 300 messages with pub and consumes them with con. Meanwhile it calls fault six
// times, evenly spread over the confirmations, with the numbers 0 to 5. It expects that every
// confirmed message is seen, and no other.
func (w *world) storm(pub, con broker.Broker, fault func(round int)) {
	w.Helper()
	const publishers, each, rounds = 4, 75, 6
	q := w.queue(pub, "storm")
	s := w.subscribe(con, q, 16)
	seen := newTally()
	patience := (rounds + 1) * w.Patience // each fault may take that long
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	var wg sync.WaitGroup
	defer wg.Wait() // also if fault ends the test
	defer cancel()
	// Every pair is published until it is confirmed, so in the end every one must be seen.
	progress := make(chan struct{}, publishers*each)
	for p := range publishers {
		wg.Go(func() {
			for i := range each {
				id := fmt.Sprintf("p%d-%d", p, i)
				for {
					try, stop := context.WithTimeout(ctx, w.Patience/3)
					err := w.Clean(pub.Publish(try, q, msg(id)))
					stop()
					if err == nil {
						break
					}
					if ctx.Err() != nil || !transient(err) {
						w.Errorf("Publish(%s) amid faults: got error %v, want nil, ErrUnavailable or ErrIndeterminate", id, err)
						return
					}
				}
				progress <- struct{}{}
			}
		})
	}
	for range 2 {
		wg.Go(func() { w.consume(ctx, s, seen, publishers*each) })
	}
	done := 0
	for round := range rounds {
		for done < publishers*each*round/rounds {
			select {
			case <-progress:
				done++
			case <-ctx.Done():
				w.Errorf("%d of %d messages were confirmed within %v", done, publishers*each, patience)
				return
			}
		}
		fault(round)
	}
	wg.Wait()
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if len(seen.seen) != publishers*each {
		w.Errorf("%d different messages were seen, %d were confirmed", len(seen.seen), publishers*each)
	}
	for p := range publishers {
		for i := range each {
			if n := fmt.Sprintf("p%d-%d/0", p, i); seen.seen[n] == 0 {
				w.Errorf("%s was confirmed and never seen", n)
			}
		}
	}
}
