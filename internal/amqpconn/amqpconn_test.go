package amqpconn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

func open(t testing.TB, cfg amqpconnect.Config) *Conn {
	t.Helper()
	c, err := New(cfg, "", nil)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Close(testwait.Long(t)); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}

// queue declares a queue for one test and returns its name.
func queue(t testing.TB, c *Conn) string {
	t.Helper()
	name := testserver.Namespace()
	err := c.Do(testwait.Long(t), func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, nil)
		return err
	})
	if err != nil {
		t.Fatalf("declaring %s: %v", name, err)
	}
	t.Cleanup(func() {
		ctx, err := testwait.Long(t), error(nil)
		for range 5 { // the test may have just broken the connection
			if err = c.Do(ctx, func(ch *amqp.Channel) error {
				_, err := ch.QueueDelete(name, false, false, false)
				return err
			}); err == nil {
				return
			}
		}
		t.Errorf("deleting %s: %v", name, err)
	})
	return name
}

func depth(t testing.TB, c *Conn, name string) int {
	t.Helper()
	var n int
	err := c.Do(testwait.Long(t), func(ch *amqp.Channel) error {
		q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		n = q.Messages
		return err
	})
	if err != nil {
		t.Fatalf("depth of %s: %v", name, err)
	}
	return n
}

func message(id string) *amqp.Publishing {
	return &amqp.Publishing{MessageId: id, DeliveryMode: amqp.Persistent, Body: []byte("body of " + id)}
}

func TestPublishedIsConfirmedOrNamed(t *testing.T) {
	c := open(t, amqpconnect.Config{URLs: []string{testserver.RequireRabbit(t).URL()}})
	q := queue(t, c)
	p := NewPublisher(c, PublisherConfig{Window: 64})
	ctx := testwait.Long(t)

	var ms []Outgoing
	for i := range 1000 {
		key := q
		if i%3 == 0 {
			key = q + ".missing"
		}
		// messages with equal ids are pending together
		ms = append(ms, Outgoing{Key: key, Message: message(fmt.Sprint(i / 6))})
	}
	errs := p.PublishBatch(ctx, ms)
	if errs == nil {
		t.Fatal("a batch with unroutable messages reported no error")
	}
	for i, err := range errs {
		if missing := i%3 == 0; missing != errors.Is(err, ErrUnroutable) || !missing && err != nil {
			t.Errorf("message %d, queue missing: %v: got error %v", i, missing, err)
		}
	}
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			key := q
			if i%4 == 0 {
				key = q + ".missing"
			}
			err := p.Publish(ctx, "", key, message("one id for all"))
			if missing := i%4 == 0; missing != errors.Is(err, ErrUnroutable) || !missing && err != nil {
				t.Errorf("single message %d, queue missing: %v: got error %v", i, missing, err)
			}
		})
	}
	wg.Wait()
	if err := p.Close(ctx); err != nil {
		t.Fatalf("Publisher.Close: %v", err)
	}
	if err := p.Publish(ctx, "", q, message("late")); !errors.Is(err, ErrClosed) {
		t.Errorf("Publish after Close: %v, want ErrClosed", err)
	}
	if n, want := depth(t, c, q), 666+150; n != want {
		t.Errorf("the queue holds %d messages, want the %d that were confirmed", n, want)
	}
}

func TestSessionsFollowEachOther(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	proxy := testserver.NewProxy(t, srv.Addr())
	c := open(t, amqpconnect.Config{URLs: []string{proxy.URL(srv.URL())}, Name: "sessions"})
	p := NewPublisher(c, PublisherConfig{})
	q := queue(t, c)
	ctx := testwait.Long(t)

	states := make(chan broker.ConnState, 100)
	stop := c.Watch(func(s broker.ConnState, _ error) { states <- s })
	defer stop()
	for gen := uint64(1); gen <= 3; gen++ {
		s, err := c.Session(ctx)
		if err != nil {
			t.Fatalf("Session: %v", err)
		}
		if s.Generation() != gen {
			t.Fatalf("generation %d, want %d: a session is counted once", s.Generation(), gen)
		}
		if err := p.Publish(ctx, "", q, message("m")); err != nil {
			t.Fatalf("Publish in generation %d: %v", gen, err)
		}
		proxy.Sever()
		select {
		case <-s.Done():
		case <-ctx.Done():
			t.Fatal("a severed connection was not noticed")
		}
		if s.Err() == nil {
			t.Error("a session that ended has no reason")
		}
	}
	for _, want := range []broker.ConnState{broker.Connected, broker.Disconnected, broker.Connected, broker.Disconnected, broker.Connected, broker.Disconnected} {
		for { // failed attempts are reported, too
			select {
			case got := <-states:
				if got != want {
					continue
				}
			case <-ctx.Done():
				t.Fatalf("Watch never told of %q", want)
			}
			break
		}
	}
}

func TestWithoutServerOnlyCtxEndsTheWait(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	proxy := testserver.NewProxy(t, srv.Addr())
	proxy.Cut()
	c := open(t, amqpconnect.Config{URLs: []string{proxy.URL(srv.URL())}})
	p := NewPublisher(c, PublisherConfig{})
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	err := p.Publish(ctx, "", "any", message("m"))
	if !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Publish without a server: %v, want ErrUnavailable and the ctx's error", err)
	}
	proxy.Heal()
	if _, err := c.Session(testwait.Long(t)); err != nil {
		t.Errorf("Session after the server came back: %v", err)
	}
}

func TestLostConfirmIsIndeterminate(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	proxy := testserver.NewProxy(t, srv.Addr())
	c := open(t, amqpconnect.Config{URLs: []string{proxy.URL(srv.URL())}})
	p := NewPublisher(c, PublisherConfig{})
	q := queue(t, c)
	if err := p.Publish(testwait.Long(t), "", q, message("first")); err != nil {
		t.Fatalf("Publish: %v", err)
	}
	proxy.BlackHole(false, true)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if err := p.Publish(ctx, "", q, message("second")); !errors.Is(err, ErrIndeterminate) {
		t.Errorf("Publish with a swallowed confirm: %v, want ErrIndeterminate", err)
	}
	res := make(chan error, 1)
	go func() { res <- p.Publish(testwait.Long(t), "", q, message("third")) }()
	awaitSent(t, p, 3)
	proxy.Heal() // closes the connection
	select {
	case err := <-res:
		if !errors.Is(err, ErrIndeterminate) {
			t.Errorf("Publish over a connection that broke before the confirm: %v, want ErrIndeterminate", err)
		}
	case <-testwait.Long(t).Done():
		t.Fatal("Publish did not return after the connection broke")
	}
}

// awaitSent waits until the publisher's channel has sent n messages.
func awaitSent(t testing.TB, p *Publisher, n uint64) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for tick := time.NewTicker(time.Millisecond); ; <-tick.C {
		if o := p.live.Load(); o != nil {
			o.mu.Lock()
			seq := o.seq
			o.mu.Unlock()
			if seq >= n {
				tick.Stop()
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the publisher never sent %d messages", n)
		}
	}
}

func TestSuperviseRunsAgainAfterEachLoss(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	proxy := testserver.NewProxy(t, srv.Addr())
	c := open(t, amqpconnect.Config{URLs: []string{proxy.URL(srv.URL())}})
	ctx, cancel := context.WithCancel(testwait.Long(t))
	runs := make(chan *Channel)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Supervise(ctx, func(ctx context.Context, ch *Channel) error {
			select {
			case runs <- ch:
			case <-ctx.Done():
				return nil
			}
			select {
			case <-ch.Done():
				return ch.Err()
			case <-ctx.Done():
				return nil
			}
		}, nil)
	}()
	for i := range 3 {
		select {
		case <-runs:
		case <-ctx.Done():
			t.Fatalf("run %d did not come", i+1)
		}
		if i < 2 {
			proxy.Sever()
		}
	}
	cancel()
	select {
	case <-ended:
	case <-testwait.Long(t).Done():
		t.Fatal("Supervise did not end with its ctx")
	}
}
