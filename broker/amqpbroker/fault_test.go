package amqpbroker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/amqpbroker"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// raw calls fn with a channel of the plain client.
func raw(t testing.TB, url string, fn func(ch *amqp.Channel) error) {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatalf("the plain client cannot connect: %v", err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err == nil {
		err = fn(ch)
	}
	if err != nil {
		t.Fatalf("the plain client: %v", err)
	}
}

func awaitLost(t testing.TB, d broker.Delivery, why string) {
	t.Helper()
	select {
	case <-d.Lost():
	case <-testwait.Long(t).Done():
		t.Fatalf("Lost was not closed after %s", why)
	}
}

func TestOldGenerationCannotSettle(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	line := testserver.NewRelay(t, srv.Addr())
	b := connect(t, amqpbroker.Config{Connect: amqpconnect.Config{URLs: []string{line.URL(srv.URL())}}})
	q := declared(t, b)
	publish(t, b, q, message("a"))
	s := subscribe(t, b, q, 1)
	var old []broker.Delivery
	for i := range 3 {
		d := receive(t, s)
		if n, exact := d.Deliveries(); n != i+1 || !exact {
			t.Errorf("after %d losses Deliveries() = %d, %v", i, n, exact)
		}
		for _, o := range old {
			if o.Lost() == d.Lost() {
				t.Error("two channel generations share one Lost")
			}
			if err := o.Ack(testwait.Long(t)); !errors.Is(err, broker.ErrLeaseLost) {
				t.Errorf("Ack of an old generation: %v, want ErrLeaseLost", err)
			}
		}
		if i < 2 {
			old = append(old, d)
			line.Sever()
			awaitLost(t, d, "the connection was cut")
			continue
		}
		ack(t, d) // the same tag as the old deliveries: the Ack must count only for this one
	}
	if err := s.Close(testwait.Long(t)); err != nil {
		t.Fatalf("Close: %v", err)
	}
	if st, err := b.Stats(testwait.Long(t), q); err != nil || st.Ready != 0 {
		t.Errorf("Stats after the Ack: %+v, %v, want an empty queue", st, err)
	}
}

func TestDeletedQueueIsDeclaredAgain(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	var book logBook
	b := connect(t, amqpbroker.Config{Namespace: "deleted", Logger: book.logger()})
	q := declared(t, b)
	s := subscribe(t, b, q, 1)
	publish(t, b, q, message("before"))
	d := receive(t, s)
	raw(t, srv.URL(), func(ch *amqp.Channel) error {
		_, err := ch.QueueDelete("swj.deleted.q."+q, false, false, false)
		return err
	})
	awaitLost(t, d, "its queue was deleted")
	testwait.Until(t, "publishing works again", func() bool {
		err := b.Publish(testwait.Long(t), q, message("after"))
		// While the queue is being deleted the server refuses messages that it can no longer store.
		if err != nil && !errors.Is(err, broker.ErrNoQueue) && !errors.Is(err, broker.ErrBlocked) {
			t.Fatalf("Publish to a deleted queue: %v, want ErrNoQueue, or ErrBlocked for a moment", err)
		}
		return err == nil
	})
	if d := receive(t, s); d.Message().ID != "after" {
		t.Errorf("received %q from the new queue", d.Message().ID)
	} else {
		ack(t, d)
	}
	if err := b.PublishAt(testwait.Long(t), q, message("later"), time.Now().Add(50*time.Millisecond)); err != nil {
		t.Fatalf("PublishAt: %v", err)
	}
	ack(t, receive(t, s)) // the new queue gets delayed messages too
	if !strings.Contains(book.String(), "cancelled the consumer") {
		t.Errorf("the log does not tell of the cancelled consumer: %s", book.String())
	}
}

// TestServerMischief runs tests on a separate server that would disturb others on the shared one.
func TestServerMischief(t *testing.T) {
	t.Parallel()
	files, err := testserver.NewTLSFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	srv := testserver.OwnRabbit(t, testserver.RabbitConfig{TLS: files})
	t.Run("consumer_timeout", func(t *testing.T) { consumerTimeoutCostsOneChannel(t, srv) })
	t.Run("memory alarm", func(t *testing.T) { memoryAlarmBlocksPublishingOnly(t, srv) })
	t.Run("states of nodes under an alarm", func(t *testing.T) { alarmHidesNoNode(t, srv) })
	t.Run("wrong password", func(t *testing.T) { wrongPasswordIsSaidAndMended(t, srv) })
	t.Run("no permission to write", func(t *testing.T) { refusedMessageIsSaidToBe(t, srv) })
	t.Run("no permission for notes", func(t *testing.T) { refusedNotesAreSaidToBe(t, srv) })
	t.Run("channel_max", func(t *testing.T) { tooManyChannelsAreRefused(t, srv) })
	t.Run("TLS", func(t *testing.T) { tlsIsVerified(t, srv, files) })
	t.Run("outage", func(t *testing.T) { notesOutliveAnOutage(t, srv) })
}

// eval runs an Erlang expression on the server.
func eval(t testing.TB, srv *testserver.Rabbit, format string, args ...any) {
	t.Helper()
	if _, err := srv.Eval(testwait.Long(t), fmt.Sprintf(format, args...)); err != nil {
		t.Fatal(err)
	}
}

// allow gives a user permissions: the regular expressions match the names of queues and exchanges.
func allow(t testing.TB, srv *testserver.Rabbit, user, configure, write, read string) {
	t.Helper()
	eval(t, srv, `rabbit_auth_backend_internal:set_permissions(<<%q>>, <<"/">>, <<%q>>, <<%q>>, <<%q>>, <<"test">>)`, user, configure, write, read)
}

func addUser(t testing.TB, srv *testserver.Rabbit, user, password string) {
	t.Helper()
	eval(t, srv, `rabbit_auth_backend_internal:add_user(<<%q>>, <<%q>>, <<"test">>)`, user, password)
}

func changePassword(t testing.TB, srv *testserver.Rabbit, user, password string) {
	t.Helper()
	eval(t, srv, `rabbit_auth_backend_internal:change_password(<<%q>>, <<%q>>, <<"test">>)`, user, password)
}

func consumerTimeoutCostsOneChannel(t *testing.T, srv *testserver.Rabbit) {
	// A channel checks for late acknowledgements once per tick: a minute, unless it is set before the
	// channel is opened.
	eval(t, srv, "application:set_env(rabbit, consumer_timeout, 500), application:set_env(rabbit, channel_tick_interval, 500)")
	defer eval(t, srv, "application:set_env(rabbit, consumer_timeout, 1800000), application:set_env(rabbit, channel_tick_interval, 60000)")
	var book logBook
	b := connect(t, amqpbroker.Config{Connect: amqpconnect.Config{URLs: []string{srv.URL()}}, Logger: book.logger()})
	slow, other := declared(t, b), declared(t, b)
	s := subscribe(t, b, slow, 1)
	publish(t, b, slow, message("slow"))
	d := receive(t, s)
	awaitLost(t, d, "it was held for longer than consumer_timeout")
	if err := d.Ack(testwait.Long(t)); !errors.Is(err, broker.ErrLeaseLost) {
		t.Errorf("Ack after consumer_timeout: %v, want ErrLeaseLost", err)
	}
	ack(t, receive(t, s)) // the message is delivered again, on a new channel
	if log := book.String(); !strings.Contains(log, "consumer_timeout") {
		t.Errorf("the log does not name consumer_timeout: %s", log)
	}
	publish(t, b, other, message("other")) // the connection still works
	ack(t, receive(t, subscribe(t, b, other, 1)))
}

func memoryAlarmBlocksPublishingOnly(t *testing.T, srv *testserver.Rabbit) {
	b := connect(t, amqpbroker.Config{Connect: amqpconnect.Config{URLs: []string{srv.URL()}}})
	q := declared(t, b)
	for _, id := range ids(10) {
		publish(t, b, q, message(id))
	}
	s := subscribe(t, b, q, 1)
	blocked, unblocked := make(chan error, 1), make(chan struct{}, 1)
	var seen bool
	defer b.Watch(func(st broker.ConnState, err error) {
		switch {
		case st == broker.Blocked && !seen:
			seen = true
			blocked <- err
		case st == broker.Connected && seen:
			select {
			case unblocked <- struct{}{}:
			default:
			}
		}
	})()
	if err := srv.SetMemoryAlarm(testwait.Long(t), true); err != nil {
		t.Fatalf("raising the alarm: %v", err)
	}
	for i := range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		begin := time.Now()
		err := b.Publish(ctx, q, message("blocked"))
		cancel()
		if !errors.Is(err, broker.ErrBlocked) {
			t.Errorf("publish %d under an alarm: %v, want ErrBlocked", i, err)
		}
		// The first publish makes the server report its alarm: it was sent.
		if sent := errors.Is(err, broker.ErrIndeterminate); sent != (i == 0) {
			t.Errorf("publish %d under an alarm: indeterminate is %v: %v", i, sent, err)
		}
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("publish %d took %v, its ctx 300ms", i, took)
		}
	}
	select {
	case err := <-blocked:
		if !errors.Is(err, broker.ErrBlocked) {
			t.Errorf("Watch told of %v, want ErrBlocked", err)
		}
	case <-testwait.Long(t).Done():
		t.Fatal("Watch did not tell of the alarm")
	}
	for range 5 {
		ack(t, receive(t, s)) // consuming and acknowledging continue
	}
	res := make(chan error, 1)
	go func() { res <- b.Publish(testwait.Long(t), q, message("waits")) }()
	if err := srv.SetMemoryAlarm(testwait.Long(t), false); err != nil {
		t.Fatalf("ending the alarm: %v", err)
	}
	if err := <-res; err != nil {
		t.Errorf("a publish that waited through the alarm: %v", err)
	}
	select {
	case <-unblocked:
	case <-testwait.Long(t).Done():
		t.Error("Watch did not tell of the end of the alarm")
	}
}

func wrongPasswordIsSaidAndMended(t *testing.T, srv *testserver.Rabbit) {
	const user, secret = "carol", "hush-hush-7319"
	addUser(t, srv, user, "another")
	allow(t, srv, user, ".*", ".*", ".*")
	var book logBook
	b := connect(t, amqpbroker.Config{Connect: amqpconnect.Config{URLs: []string{fmt.Sprintf("amqp://%s:%s@%s/", user, secret, srv.Addr())}}, Logger: book.logger()})
	var mu sync.Mutex
	var told []string
	defer b.Watch(func(st broker.ConnState, err error) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, fmt.Sprint(st, err))
	})()
	errs := []error{
		b.Publish(testwait.Long(t), "q", message("m")),
		b.Declare(testwait.Long(t), broker.Queue{Name: "q"}),
	}
	_, err := b.Subscribe(testwait.Long(t), "q", broker.SubscribeOptions{})
	for _, err := range append(errs, err) {
		if !errors.Is(err, broker.ErrAccess) {
			t.Errorf("with a wrong password: %v, want ErrAccess", err)
		}
		if strings.Contains(fmt.Sprintf("%v %+v", err, err), secret) {
			t.Errorf("an error holds the password: %v", err)
		}
	}
	changePassword(t, srv, user, secret)
	testwait.Until(t, "the Broker works after the password was mended", func() bool {
		return b.Declare(testwait.Long(t), broker.Queue{Name: "q"}) == nil
	})
	s := subscribe(t, b, "q", 1)
	// Each of the two connections notices that at its own next attempt.
	testwait.Until(t, "publishing works after the password was mended", func() bool {
		return b.Publish(testwait.Long(t), "q", message("m")) == nil
	})
	ack(t, receive(t, s))

	// Now the reverse: a subscription that worked is refused, and recovers.
	changePassword(t, srv, user, "another")
	if err := srv.CloseAllConnections(testwait.Long(t)); err != nil {
		t.Fatalf("closing all connections: %v", err)
	}
	testwait.Until(t, "Receive reports ErrAccess", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_, err := s.Receive(ctx)
		return errors.Is(err, broker.ErrAccess)
	})
	changePassword(t, srv, user, secret)
	testwait.Until(t, "publishing works again", func() bool { return b.Publish(testwait.Long(t), "q", message("again")) == nil })
	testwait.Until(t, "receiving works again", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		d, err := s.Receive(ctx)
		return err == nil && d.Ack(ctx) == nil
	})
	mu.Lock()
	defer mu.Unlock()
	if all := strings.Join(told, "\n") + book.String(); strings.Contains(all, secret) || strings.Contains(all, "another") {
		t.Errorf("Watch or the log tell a password: %s", all)
	}
}

func refusedMessageIsSaidToBe(t *testing.T, srv *testserver.Rabbit) {
	q := declared(t, connect(t, amqpbroker.Config{Connect: amqpconnect.Config{URLs: []string{srv.URL()}}}))
	addUser(t, srv, "reader", "word")
	allow(t, srv, "reader", ".*", "", ".*")
	b := connect(t, amqpbroker.Config{Connect: amqpconnect.Config{URLs: []string{fmt.Sprintf("amqp://reader:word@%s/", srv.Addr())}}})
	err := b.Publish(testwait.Long(t), q, message("m"))
	if !errors.Is(err, broker.ErrAccess) || !errors.Is(err, broker.ErrIndeterminate) {
		t.Errorf("Publish without the permission to write: %v, want ErrAccess, and ErrIndeterminate since it was sent", err)
	}
}

func tlsIsVerified(t *testing.T, srv *testserver.Rabbit, files *testserver.TLSFiles) {
	strangers, err := testserver.NewTLSFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	right, err := files.ClientConfig(true)
	if err != nil {
		t.Fatal(err)
	}
	wrongCA, err := strangers.ClientConfig(false)
	if err != nil {
		t.Fatal(err)
	}
	wrongHost := right.Clone()
	wrongHost.ServerName = "elsewhere.example"
	plainAtTLS := strings.Replace(srv.URL(), srv.Addr(), srv.TLSAddr(), 1)
	tlsAtPlain := strings.Replace(srv.TLSURL(), srv.TLSAddr(), srv.Addr(), 1)
	tests := []struct {
		name string
		cfg  amqpbroker.Config
		want string // text in the error; "": no error
	}{
		{"right authority", amqpbroker.Config{Connect: amqpconnect.Config{URLs: []string{srv.TLSURL()}, TLS: right}}, ""},
		{"wrong authority", amqpbroker.Config{Connect: amqpconnect.Config{URLs: []string{srv.TLSURL()}, TLS: wrongCA}}, "certificate signed by unknown authority"},
		{"wrong host", amqpbroker.Config{Connect: amqpconnect.Config{URLs: []string{srv.TLSURL()}, TLS: wrongHost}}, "elsewhere.example"},
		{"plain client at the TLS port", amqpbroker.Config{Connect: amqpconnect.Config{URLs: []string{plainAtTLS}}}, "use an amqps:// URL"},
		{"TLS client at the plain port", amqpbroker.Config{Connect: amqpconnect.Config{URLs: []string{tlsAtPlain}, TLS: right}}, "use an amqp:// URL"},
		{"the second URL works", amqpbroker.Config{Connect: amqpconnect.Config{URLs: []string{tlsAtPlain, srv.TLSURL()}, TLS: right}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := connect(t, tt.cfg)
			wait := 30 * time.Second
			if tt.want != "" {
				wait = 2 * time.Second
			}
			ctx, cancel := context.WithTimeout(context.Background(), wait)
			defer cancel()
			err := b.Declare(ctx, broker.Queue{Name: "tls"})
			if tt.want == "" {
				if err != nil {
					t.Fatalf("Declare: %v", err)
				}
				m := message("big")
				m.Body = make([]byte, 5<<20)
				publish(t, b, "tls", m)
				d := receive(t, subscribe(t, b, "tls", 1))
				if len(d.Message().Body) != len(m.Body) {
					t.Errorf("a body of %d bytes came as %d", len(m.Body), len(d.Message().Body))
				}
				ack(t, d)
				return
			}
			if !errors.Is(err, broker.ErrUnavailable) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Declare: %v, want ErrUnavailable that says %q", err, tt.want)
			}
			if strings.Contains(fmt.Sprint(err), srv.Password()) {
				t.Errorf("the error holds the password: %v", err)
			}
		})
	}
}

func TestQueueWithOtherArgumentsIsUsed(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	var book logBook
	b := connect(t, amqpbroker.Config{Namespace: "others", Logger: book.logger()})
	q := testserver.Namespace()
	raw(t, srv.URL(), func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare("swj.others.q."+q, true, false, false, false, amqp.Table{"x-max-length": int32(1000)})
		return err
	})
	for range 2 {
		if err := b.Declare(testwait.Long(t), broker.Queue{Name: q}); err != nil {
			t.Fatalf("Declare: %v", err)
		}
	}
	publish(t, b, q, message("m"))
	d := receive(t, subscribe(t, b, q, 1))
	if n, exact := d.Deliveries(); n != 1 || !exact {
		t.Errorf("Deliveries() = %d, %v", n, exact)
	}
	ack(t, d)
	if n := strings.Count(book.String(), "other settings"); n != 1 {
		t.Errorf("warned %d times, want once: %s", n, book.String())
	}
}

func TestServersOwnDeadLettersAreSeen(t *testing.T) {
	b := connect(t, amqpbroker.Config{DeliveryLimit: 2})
	q := declared(t, b)
	publish(t, b, q, message("poison"))
	s := subscribe(t, b, q, 1)
	for range 3 {
		if err := receive(t, s).Release(testwait.Long(t), 0); err != nil {
			t.Fatalf("Release: %v", err)
		}
	}
	var dead []broker.Dead
	testwait.Until(t, "the server dead-letters after 2 returns", func() bool {
		var err error
		dead, err = broker.ListDead(testwait.Long(t), b, q, 10)
		return err == nil && len(dead) == 1
	})
	d := dead[0]
	if d.Message.ID != "poison" || d.Queue != q || !strings.Contains(d.Reason, "delivery_limit") || time.Since(d.At).Abs() > time.Minute || d.Message.Headers != nil {
		t.Errorf("the dead letter is %+v of %+v", d, d.Message)
	}
}

func TestConfigIsChecked(t *testing.T) {
	const secret = "s3cr3t-word"
	for _, cfg := range []amqpbroker.Config{
		{},
		{Connect: amqpconnect.Config{URLs: []string{"amqp://u:" + secret + "@h:port/"}}},
		{Connect: amqpconnect.Config{URLs: []string{"amqp://u:" + secret + "#x@h/"}}},
		{Connect: amqpconnect.Config{URLs: []string{"amqp://u:" + secret + " @h/"}}},
		{Connect: amqpconnect.Config{URLs: []string{"http://u:" + secret + "@h/"}}},
		{Connect: amqpconnect.Config{URLs: []string{"amqps://u:" + secret + "@h/?verify=verify_none"}}},
		{Connect: amqpconnect.Config{URLs: []string{"amqp://u:" + secret + "@h/?frame_max=7"}}},
		{Connect: amqpconnect.Config{URLs: []string{"amqps://u:" + secret + "@h/?cacertfile=/none"}}},
		{Connect: amqpconnect.Config{URLs: []string{"amqp://h/"}}, Namespace: "a.b"},
		{Connect: amqpconnect.Config{URLs: []string{"amqp://h/"}}, Namespace: strings.Repeat("a", 65)},
		{Connect: amqpconnect.Config{URLs: []string{"amqp://h/"}}, QueueType: "stream"},
		{Connect: amqpconnect.Config{URLs: []string{"amqp://h/"}}, MaxBody: -1},
		{Connect: amqpconnect.Config{URLs: []string{"amqp://h/"}}, DeliveryLimit: -1},
		{Connect: amqpconnect.Config{URLs: []string{"amqp://h/?heartbeat=0"}}},
	} {
		_, err := amqpbroker.New(cfg)
		if err == nil {
			t.Errorf("New accepted %+v", cfg)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("the error holds the password: %v", err)
		}
	}
}
