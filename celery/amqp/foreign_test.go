package amqp_test

import (
	"maps"
	"reflect"
	"testing"
	"time"

	client "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/celery/amqp"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// connected opens a Broker and closes it at the end of the test.
func connected(t testing.TB, srv *testserver.Rabbit) *amqp.Broker {
	t.Helper()
	b := open(t, amqp.Config{Connect: amqpconnect.Config{URLs: []string{srv.URL()}}})
	t.Cleanup(func() {
		if err := b.Close(testwait.Long(t)); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b
}

// on calls fn with a channel of a client without this project's code.
func on(t testing.TB, srv *testserver.Rabbit, fn func(ch *client.Channel) error) {
	t.Helper()
	conn, err := client.Dial(srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err == nil {
		err = fn(ch)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// next returns the next delivery of a new subscription to queue, which stays open.
func next(t testing.TB, b *amqp.Broker, queue string) broker.Delivery {
	t.Helper()
	s, err := b.Subscribe(testwait.Long(t), queue, broker.SubscribeOptions{Prefetch: 1})
	if err != nil {
		t.Fatalf("Subscribe: %v", err)
	}
	d, err := s.Receive(testwait.Long(t))
	if err != nil {
		t.Fatalf("Receive: %v", err)
	}
	return d
}

// A queue that Go declares first must not keep a Python worker from declaring it, and the other way
// round.
func TestQueuesAreDeclaredAsCeleryDoes(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	b := connected(t, srv)
	own, theirs := testserver.Namespace(), testserver.Namespace()
	on(t, srv, func(ch *client.Channel) error {
		_, err := ch.QueueDeclare(theirs, true, false, false, false, client.Table{"x-max-priority": int32(10)})
		return err
	})
	if err := b.Declare(testwait.Long(t), broker.Queue{Name: own}, broker.Queue{Name: theirs}); err != nil {
		t.Fatalf("Declare: %v", err)
	}
	on(t, srv, func(ch *client.Channel) error {
		if err := ch.ExchangeDeclare(own, "direct", true, false, false, false, nil); err != nil {
			return err
		}
		if _, err := ch.QueueDeclare(own, true, false, false, false, nil); err != nil {
			return err
		}
		// kombu publishes to the exchange of a queue if the task names it
		return ch.PublishWithContext(t.Context(), own, own, true, false, client.Publishing{MessageId: "through the exchange"})
	})
	if id := next(t, b, own).Message().ID; id != "through the exchange" {
		t.Errorf("received %q, want the message that was sent to the queue's exchange", id)
	}
}

// pythonHeaders are those of a captured message of Celery 5.2.6.
func pythonHeaders(retries int32) client.Table {
	return client.Table{
		"lang": "py", "task": "interop.add", "id": "fad0cb1e-6f0a-4bd0-a3f8-ffb2e1aa8a6a", "shadow": nil, "eta": nil, "expires": nil,
		"group": nil, "group_index": nil, "retries": retries, "timelimit": []any{int32(20), nil}, "root_id": "fad0cb1e-6f0a-4bd0-a3f8-ffb2e1aa8a6a",
		"parent_id": nil, "argsrepr": "(1, 2)", "kwargsrepr": "{}", "origin": "gen22739@vm", "ignore_result": false,
		"x-custom": "v", "stamps": client.Table{"a": "b"},
	}
}

const pythonBody = `[[1, 2], {}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]`

// sendPython sends a message as py-amqp does.
func sendPython(t testing.TB, srv *testserver.Rabbit, queue string, headers client.Table) {
	t.Helper()
	on(t, srv, func(ch *client.Channel) error {
		return ch.PublishWithContext(t.Context(), "", queue, true, false, client.Publishing{
			Headers: headers, ContentType: "application/json", ContentEncoding: "utf-8", DeliveryMode: 2,
			CorrelationId: "fad0cb1e-6f0a-4bd0-a3f8-ffb2e1aa8a6a", ReplyTo: "904f5bb0-0000-4000-8000-000000000000", Priority: 5, Body: []byte(pythonBody),
		})
	})
}

// checkPython fails the test if m is not the message of sendPython.
func checkPython(t testing.TB, what string, m *broker.Message, retries int64) {
	t.Helper()
	want := map[string]any{
		"lang": "py", "task": "interop.add", "id": "fad0cb1e-6f0a-4bd0-a3f8-ffb2e1aa8a6a", "shadow": nil, "eta": nil, "expires": nil,
		"group": nil, "group_index": nil, "retries": retries, "timelimit": []any{int64(20), nil}, "root_id": "fad0cb1e-6f0a-4bd0-a3f8-ffb2e1aa8a6a",
		"parent_id": nil, "argsrepr": "(1, 2)", "kwargsrepr": "{}", "origin": "gen22739@vm", "ignore_result": false,
		"x-custom": "v", "stamps": map[string]any{"a": "b"},
	}
	if !reflect.DeepEqual(m.Headers, want) {
		t.Errorf("%s: headers %v, want %v", what, m.Headers, want)
	}
	properties := map[string]string{
		"content-encoding": "utf-8", "correlation-id": "fad0cb1e-6f0a-4bd0-a3f8-ffb2e1aa8a6a", "reply-to": "904f5bb0-0000-4000-8000-000000000000", "priority": "5",
	}
	if !maps.Equal(m.Properties, properties) {
		t.Errorf("%s: properties %v, want %v", what, m.Properties, properties)
	}
	if m.ID != "fad0cb1e-6f0a-4bd0-a3f8-ffb2e1aa8a6a" || m.ContentType != "application/json" || string(m.Body) != pythonBody {
		t.Errorf("%s: id %q, content type %q, body %q", what, m.ID, m.ContentType, m.Body)
	}
}

// A message of Python keeps all headers through a delay, a retry and the dead letters.
func TestPythonMessagesKeepTheirHeaders(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	b := connected(t, srv)
	q := testserver.Namespace()
	if err := b.Declare(testwait.Long(t), broker.Queue{Name: q}); err != nil {
		t.Fatalf("Declare: %v", err)
	}
	sendPython(t, srv, q, pythonHeaders(0))
	s, err := b.Subscribe(testwait.Long(t), q, broker.SubscribeOptions{Prefetch: 1})
	if err != nil {
		t.Fatalf("Subscribe: %v", err)
	}
	receive := func() broker.Delivery {
		d, err := s.Receive(testwait.Long(t))
		if err != nil {
			t.Fatalf("Receive: %v", err)
		}
		return d
	}
	d := receive()
	checkPython(t, "received", d.Message(), 0)
	if n, exact := d.Deliveries(); n != 1 || !exact || d.Message().Generation != 0 {
		t.Errorf("delivery %d (exact: %v), generation %d; want the first of generation 0", n, exact, d.Message().Generation)
	}
	if err := d.Release(testwait.Long(t), time.Millisecond); err != nil {
		t.Fatalf("Release: %v", err)
	}
	d = receive()
	checkPython(t, "released", d.Message(), 0)
	if d.Message().Generation != 1 {
		t.Errorf("generation %d after a release with a delay, want 1", d.Message().Generation)
	}
	// a retry of a Go worker raises both counts
	next := *d.Message()
	next.Generation++
	next.Headers = maps.Clone(next.Headers)
	next.Headers["retries"] = int64(1)
	if err := b.Publish(testwait.Long(t), q, &next); err != nil {
		t.Fatalf("Publish: %v", err)
	}
	if err := d.Ack(testwait.Long(t)); err != nil {
		t.Fatalf("Ack: %v", err)
	}
	d = receive()
	checkPython(t, "retried", d.Message(), 1)
	if d.Message().Generation != 2 {
		t.Errorf("generation %d after the retry, want 2", d.Message().Generation)
	}
	if err := d.DeadLetter(testwait.Long(t), broker.Dead{Reason: "no handler"}); err != nil {
		t.Fatalf("DeadLetter: %v", err)
	}
	dead, err := broker.ListDead(testwait.Long(t), b, q, 10)
	if err != nil || len(dead) != 1 {
		t.Fatalf("%d dead letters, error %v; want 1", len(dead), err)
	}
	checkPython(t, "dead-lettered", dead[0].Message, 1)
	if dead[0].Reason != "no handler" || dead[0].Queue != q {
		t.Errorf("the letter has reason %q and queue %q", dead[0].Reason, dead[0].Queue)
	}
}

// A Python worker raises only its own count. The generation must rise too, because it orders the
// attempts.
func TestRetriesOfPythonRaiseTheGeneration(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	b := connected(t, srv)
	for name, c := range map[string]struct {
		own  any // the header of the adapter
		want int
	}{
		"no generation":         {nil, 3},
		"a smaller generation":  {int64(2), 3},
		"a larger generation":   {int64(7), 7},
		"a negative generation": {int64(-1), 3},
		"a text":                {"9", 3},
	} {
		q := testserver.Namespace()
		if err := b.Declare(testwait.Long(t), broker.Queue{Name: q}); err != nil {
			t.Fatalf("Declare: %v", err)
		}
		h := pythonHeaders(3)
		if c.own != nil {
			h["swj-gen"] = c.own
		}
		sendPython(t, srv, q, h)
		m := next(t, b, q).Message()
		checkPython(t, name, m, 3)
		if m.Generation != c.want {
			t.Errorf("%s: generation %d, want %d", name, m.Generation, c.want)
		}
	}
}

// The prefetch of a running consumer can change on each type of queue. Only classic queues accept a
// limit of the whole channel. Other queues would end the connection.
func TestPrefetchOnQueuesOfEachType(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	b := connected(t, srv)
	for name, args := range map[string]client.Table{
		"as Celery declares it": nil,
		"classic":               {"x-queue-type": "classic"},
		"with priorities":       {"x-max-priority": int32(10)},
		"with a time to live":   {"x-message-ttl": int32(1_000_000)},
		"quorum":                {"x-queue-type": "quorum"},
		"quorum with a limit":   {"x-queue-type": "quorum", "x-delivery-limit": int32(5)},
	} {
		t.Run(name, func(t *testing.T) {
			q := testserver.Namespace()
			on(t, srv, func(ch *client.Channel) error {
				_, err := ch.QueueDeclare(q, true, false, false, false, args)
				return err
			})
			for range 10 {
				sendPython(t, srv, q, pythonHeaders(0))
			}
			s, err := b.Subscribe(testwait.Long(t), q, broker.SubscribeOptions{Prefetch: 2})
			if err != nil {
				t.Fatalf("Subscribe: %v", err)
			}
			take := func(n int) (ds []broker.Delivery) {
				for range n {
					d, err := s.Receive(testwait.Long(t))
					if err != nil {
						t.Fatalf("Receive: %v", err)
					}
					ds = append(ds, d)
				}
				return ds
			}
			resize := func(n int) {
				if err := s.(broker.Resizer).SetPrefetch(testwait.Long(t), n); err != nil {
					t.Fatalf("SetPrefetch(%d): %v", n, err)
				}
			}
			first := take(2)
			resize(0)
			for _, d := range first {
				if err := d.Ack(testwait.Long(t)); err != nil {
					t.Fatalf("Ack: %v", err)
				}
			}
			resize(8)
			for _, d := range take(8) {
				if err := d.Ack(testwait.Long(t)); err != nil {
					t.Fatalf("Ack: %v", err)
				}
			}
		})
	}
}

// A queue with levels delivers by Celery's priority, whether it is new or declared by Python. A
// queue without x-max-priority is used as it is.
func TestPriorities(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	b := connected(t, srv)
	for name, c := range map[string]struct {
		args   client.Table
		absent bool
		want   string
	}{
		"a new queue":                {absent: true, want: "urgent"},
		"a queue of Python":          {args: client.Table{"x-max-priority": int32(10)}, want: "urgent"},
		"a queue without priorities": {want: "first"},
	} {
		q := testserver.Namespace()
		if !c.absent {
			on(t, srv, func(ch *client.Channel) error {
				_, err := ch.QueueDeclare(q, true, false, false, false, c.args)
				return err
			})
		}
		if err := b.Declare(testwait.Long(t), broker.Queue{Name: q, Levels: []int{95, 100}}); err != nil {
			t.Fatalf("%s: Declare: %v", name, err)
		}
		for _, m := range []broker.Message{
			{ID: "first"},
			{ID: "urgent", Properties: map[string]string{"priority": "9"}},
		} {
			if err := b.Publish(testwait.Long(t), q, &m); err != nil {
				t.Fatalf("%s: Publish: %v", name, err)
			}
		}
		if id := next(t, b, q).Message().ID; id != c.want {
			t.Errorf("%s: %q is delivered first, want %q", name, id, c.want)
		}
	}
}
