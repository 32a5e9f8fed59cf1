package celery

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/celery/wire"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/task"
)

// TestBrokerURLs shows that URLs of Celery become those of the client.
func TestBrokerURLs(t *testing.T) {
	for list, want := range map[string][]string{
		"amqp://u:p@host//":              {"amqp://u:p@host/%2F"},
		"amqp://u:p@host/":               {"amqp://u:p@host"},
		"pyamqp://host:5673/app":         {"amqp://host:5673/app"},
		"amqps://a//; amqps://b/%2Fdeep": {"amqps://a/%2F", "amqps://b/%2Fdeep"},
	} {
		urls, secure, err := brokerURLs(list)
		if d := cmp.Diff(want, urls); d != "" || err != nil || secure != strings.HasPrefix(list, "amqps") {
			t.Errorf("%s: %v, secure %v (-want +got):\n%s", list, err, secure, d)
		}
	}
}

// TestOpenRefuses shows that wrong options are refused without passwords in the errors.
func TestOpenRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		url         string
		o           Options
		unsupported bool
	}{
		"a broker in Redis":      {"redis://:hunter2@host/0", Options{}, true},
		"a URL that is none":     {"amqp://u:hunter2@ho st//", Options{}, false},
		"results in a database":  {"amqp://u:hunter2@host//", Options{Results: "db+postgresql://u:hunter2@host/db"}, true},
		"a bad URL of results":   {"amqp://host//", Options{Results: "redis://:hunter2@ho st"}, false},
		"a negative TTL":         {"amqp://host//", Options{ResultTTL: -time.Second}, false},
		"a queue without a name": {"amqp://host//", Options{Queue: "a queue"}, false},
	} {
		s, err := Open(t.Context(), c.url, c.o)
		if err == nil || errors.Is(err, broker.ErrUnsupported) != c.unsupported || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
}

// TestTLSOption shows that Options.TLS is used for URLs with TLS only.
func TestTLSOption(t *testing.T) {
	o := Options{Results: "redis://host", TLS: &tls.Config{ServerName: "x"}}
	for _, url := range []string{"amqp://host//", "amqps://host//"} {
		s, err := Open(t.Context(), url, o)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestRolesRefuse shows that producers and consumers cannot replace the parts of the swarm.
func TestRolesRefuse(t *testing.T) {
	s, err := Open(t.Context(), "amqp://host//", Options{})
	if err != nil {
		t.Fatal(err)
	}
	other := membroker.New()
	if _, err := s.Producer(producer.Config{Broker: other}); err == nil {
		t.Error("a producer has another broker")
	}
	if _, err := s.Consumer(consumer.Config{Broker: other}); err == nil {
		t.Error("a consumer has another broker")
	}
	if _, err := s.Consumer(consumer.Config{Stores: map[string]resultstore.ResultStore{"celery": memresults.New(memresults.Config{})}}); err == nil {
		t.Error("a consumer has another store of the name celery")
	}
	c, err := s.Consumer(consumer.Config{Results: memresults.New(memresults.Config{})})
	if err != nil || c == nil {
		t.Errorf("a consumer with results of its own: %v", err)
	}
	if err := errors.Join(other.Close(t.Context()), s.Close(t.Context())); err != nil {
		t.Error(err)
	}
}

// sizes records the sizes of chords, or fails.
type sizes struct {
	stored map[task.ID]int
	err    error
}

func (s *sizes) SetChordSize(_ context.Context, group task.ID, size int) error {
	if s.err == nil {
		s.stored[group] += size
	}
	return s.err
}

// TestChordSizes shows that the size of a chord is stored once before its members are published,
// and that nothing is published if that fails.
func TestChordSizes(t *testing.T) {
	mem := membroker.New()
	defer func() { _ = mem.Close(context.Background()) }()
	store := &sizes{stored: map[task.ID]int{}}
	b := &chordBroker{Broker: mem, sizes: store}
	if err := broker.Declare(t.Context(), b, broker.Queue{Name: "q"}); err != nil {
		t.Fatal(err)
	}
	member := func(i int) broker.Outgoing {
		m, err := wire.Format{}.Encode(&task.Envelope{
			ID: task.Derive("g", string(rune('a'+i))), Name: "t", Group: "g", GroupIndex: i, GroupSize: 2,
			Chord: &task.Link{ID: "body", Name: "total", Queue: "q"},
		})
		if err != nil {
			t.Fatal(err)
		}
		return broker.Outgoing{Queue: "q", Message: m}
	}
	if err := broker.PublishBatch(t.Context(), b, []broker.Outgoing{member(0), member(1)}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[task.ID]int{"g": 2}, store.stored); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	count := func() int {
		t.Helper()
		st, err := mem.Stats(t.Context(), "q")
		if err != nil {
			t.Fatal(err)
		}
		return st.Ready
	}
	if n := count(); n != 2 {
		t.Errorf("%d messages", n)
	}
	store.err = errors.New("no server")
	out := member(0)
	for name, err := range map[string]error{
		"Publish":      b.Publish(t.Context(), "q", out.Message),
		"PublishAt":    b.PublishAt(t.Context(), "q", out.Message, time.Now().Add(time.Hour)),
		"PublishBatch": b.PublishBatch(t.Context(), []broker.Outgoing{out}),
	} {
		if !errors.Is(err, broker.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := count(); n != 2 {
		t.Errorf("%d messages after a failure", n)
	}
}
