package inspect_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/inspect"
)

// TestKeysWithoutEffect shows that a check tells of fairness keys in a queue that is not fair, and
// only there.
func TestKeysWithoutEffect(t *testing.T) {
	b := membroker.New()
	t.Cleanup(func() { _ = b.Close(t.Context()) })
	l, err := inspect.New(inspect.Config{Broker: b, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	queues := []broker.Queue{{Name: "fair", Fair: true}, {Name: "plain"}, {Name: "keyless"}}
	if err := b.Declare(t.Context(), queues...); err != nil {
		t.Fatal(err)
	}
	for _, q := range queues {
		m := &broker.Message{ID: "m", Key: "customer"}
		if q.Name == "keyless" {
			m.Key = ""
		}
		if err := b.Publish(t.Context(), q.Name, m); err != nil {
			t.Fatal(err)
		}
	}
	r, err := l.Check(t.Context(), inspect.CheckQuery{Queues: []string{"fair", "plain", "keyless"}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range r.Findings {
		if f.Outcome == inspect.Warn && strings.Contains(f.Detail, "fairness keys") {
			got = append(got, f.Check)
		}
	}
	if want := []string{"queue plain"}; !slices.Equal(got, want) {
		t.Errorf("the warnings are of %v, want %v; all: %+v", got, want, r.Findings)
	}
	page, err := l.ListMessages(t.Context(), inspect.MessageQuery{Queue: "fair", Place: broker.PlaceWaiting})
	if err != nil || len(page.Messages) != 1 || page.Messages[0].Key != "customer" {
		t.Errorf("ListMessages: %+v, %v; want the key", page, err)
	}
}
