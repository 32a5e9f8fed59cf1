package broker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// bare is a broker without any optional interface. It accepts every queue except "missing".
type bare struct {
	mu   sync.Mutex
	sent []string
}

func (b *bare) Publish(_ context.Context, queue string, m *broker.Message) error {
	if queue == "missing" {
		return broker.ErrNoQueue
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sent = append(b.sent, queue+"/"+m.ID)
	return nil
}

func (b *bare) Subscribe(context.Context, string, broker.SubscribeOptions) (broker.Subscription, error) {
	return nil, broker.ErrUnsupported
}
func (b *bare) Close(context.Context) error { return nil }

// able is a broker that implements Delayer and Declarer.
type able struct {
	bare
	delayed  []time.Time
	declared []broker.Queue
}

func (b *able) PublishAt(_ context.Context, _ string, _ *broker.Message, at time.Time) error {
	b.delayed = append(b.delayed, at)
	return nil
}

func (b *able) Declare(_ context.Context, qs ...broker.Queue) error {
	b.declared = append(b.declared, qs...)
	return nil
}

func TestPublishAtWithoutADelayer(t *testing.T) {
	b := &bare{}
	for _, at := range []time.Time{{}, time.Now().Add(-time.Hour)} {
		if err := broker.PublishAt(t.Context(), b, broker.Outgoing{Queue: "q", Message: &broker.Message{}, At: at}); err != nil {
			t.Fatalf("due at %s: %v", at, err)
		}
	}
	err := broker.PublishAt(t.Context(), b, broker.Outgoing{Queue: "q", Message: &broker.Message{}, At: time.Now().Add(time.Hour)})
	if !errors.Is(err, broker.ErrUnsupported) {
		t.Fatalf("a delay that nobody can keep: %v", err)
	}
	a := &able{}
	if err := broker.PublishAt(t.Context(), a, broker.Outgoing{Queue: "q", Message: &broker.Message{}, At: time.Now().Add(time.Hour)}); err != nil || len(a.delayed) != 1 {
		t.Fatal(err, a.delayed)
	}
}

func TestPublishBatchTellsOfEachMessage(t *testing.T) {
	b := &bare{}
	var outs []broker.Outgoing
	for i := range 200 {
		queue := "q"
		if i%50 == 7 {
			queue = "missing"
		}
		outs = append(outs, broker.Outgoing{Queue: queue, Message: &broker.Message{ID: fmt.Sprint(i)}})
	}
	err := broker.PublishBatch(t.Context(), b, outs)
	errs := broker.BatchErrors(err, len(outs))
	for i, err := range errs {
		if (i%50 == 7) != errors.Is(err, broker.ErrNoQueue) {
			t.Errorf("message %d: %v", i, err)
		}
	}
	if len(b.sent) != 196 || !errors.Is(err, broker.ErrNoQueue) || err.Error() != "4 of 200 messages failed, the first with: broker: no such queue" {
		t.Fatalf("%d sent; %v", len(b.sent), err)
	}
	if err := broker.PublishBatch(t.Context(), b, nil); err != nil {
		t.Fatalf("nothing to send: %v", err)
	}
	if errs := broker.BatchErrors(broker.ErrClosed, 3); len(errs) != 3 || !slices.Contains(errs, broker.ErrClosed) {
		t.Fatalf("an error of the whole batch became %v", errs)
	}
}

// held is a delivery that counts its acknowledgements.
type held struct {
	broker.Delivery
	acked int
}

func (d *held) Ack(context.Context) error { d.acked++; return nil }

func TestReplacePublishesBeforeItAcknowledges(t *testing.T) {
	b, d := &bare{}, &held{}
	if err := broker.Replace(t.Context(), b, d, broker.Outgoing{Queue: "missing", Message: &broker.Message{}}); !errors.Is(err, broker.ErrNoQueue) || d.acked != 0 {
		t.Fatalf("%v; acknowledged %d times although its successor was not taken", err, d.acked)
	}
	if err := broker.Replace(t.Context(), b, d, broker.Outgoing{Queue: "q", Message: &broker.Message{ID: "next"}}); err != nil || d.acked != 1 || !slices.Equal(b.sent, []string{"q/next"}) {
		t.Fatal(err, d.acked, b.sent)
	}
	if err := broker.AckSync(t.Context(), d); err != nil || d.acked != 2 {
		t.Fatal(err, d.acked)
	}
}

func TestDeclareRefusesLevelsThatNobodyHonours(t *testing.T) {
	q := broker.Queue{Name: "q", Levels: []int{10, 100}}
	if err := broker.Declare(t.Context(), &bare{}, q); !errors.Is(err, broker.ErrUnsupported) {
		t.Fatal(err)
	}
	if err := broker.Declare(t.Context(), &bare{}, broker.Queue{Name: "q"}); err != nil {
		t.Fatal(err)
	}
	a := &able{}
	if err := broker.Declare(t.Context(), a, q); err != nil || len(a.declared) != 1 {
		t.Fatal(err, a.declared)
	}
}

func TestLocateAndPrefetchFallBack(t *testing.T) {
	if exchange, key := broker.Locate(&bare{}, "q"); exchange != "" || key != "q" {
		t.Fatal(exchange, key)
	}
	if ok, err := broker.SetPrefetch(t.Context(), nil, 3); ok || err != nil {
		t.Fatal(ok, err)
	}
	if !broker.Gone(fmt.Errorf("x: %w", broker.ErrLeaseLost)) || !broker.Gone(broker.ErrSettled) || broker.Gone(broker.ErrBlocked) {
		t.Fatal("Gone")
	}
}
