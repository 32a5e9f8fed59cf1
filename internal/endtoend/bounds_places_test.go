package endtoend_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// boundPlaces observes the messages that consumers hold: from the return of Receive to the call
// that settles the message. Safe for concurrent use.
type boundPlaces struct {
	boundSize

	mu     sync.Mutex
	lives  map[*life]map[string]string // living consumers, and what each holds: id to key
	held   map[string]int              // messages that living consumers hold, by key
	lost   map[string]string           // those of dead consumers, not delivered since: id to key
	gone   map[string]int              // their number, by key
	open   map[string]int              // tasks that have not ended, by key
	ended  map[string]bool             // ids of the others
	over   int                         // messages above the bound
	copies int                         // messages that consumers have published

	since              time.Time
	running, permitted float64 // sums over the time, in seconds
}

func newPlaces(size boundSize) *boundPlaces {
	return &boundPlaces{
		boundSize: size, lives: make(map[*life]map[string]string), held: make(map[string]int),
		lost: make(map[string]string), gone: make(map[string]int), open: make(map[string]int), ended: make(map[string]bool),
	}
}

// observe adds the time since the last change, and moves the messages of consumers that died
// meanwhile. Call it with p.mu held, before each change.
func (p *boundPlaces) observe() {
	now, running, permitted := time.Now(), 0, 0
	for key, open := range p.open {
		running += p.held[key]
		permitted += max(0, min(boundMost, open)-p.gone[key])
	}
	if !p.since.IsZero() {
		passed := now.Sub(p.since).Seconds()
		p.running += float64(running) * passed
		p.permitted += float64(max(running, min(permitted, len(p.lives)*p.workers))) * passed
	}
	p.since = now
	for l, all := range p.lives {
		if !l.over() {
			continue
		}
		delete(p.lives, l)
		for id, key := range all {
			p.lost[id] = key
			p.gone[key]++
			p.held[key]--
		}
	}
}

// change calls do for a living consumer.
func (p *boundPlaces) change(l *life, do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.observe()
	if !l.over() {
		do()
	}
}

// received counts a message that l has received.
func (p *boundPlaces) received(l *life, m *broker.Message) {
	p.change(l, func() {
		if _, ok := p.lost[m.ID]; ok {
			delete(p.lost, m.ID)
			p.gone[m.Key]--
		}
		p.lives[l][m.ID] = m.Key
		if p.held[m.Key]++; p.held[m.Key] > boundMost {
			p.over++
		}
	})
}

// settles counts a message that l is about to settle. ends says that this is the end of its task.
func (p *boundPlaces) settles(l *life, m *broker.Message, ends bool) {
	p.change(l, func() {
		delete(p.lives[l], m.ID)
		p.held[m.Key]--
		if ends && !p.ended[m.ID] {
			p.ended[m.ID] = true
			p.open[m.Key]--
		}
	})
}

// check compares the observed numbers with the promises.
func (p *boundPlaces) check(t *testing.T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.observe()
	if p.over > 0 {
		t.Errorf("%d messages were held above the bound of %d", p.over, boundMost)
	}
	if p.copies > 0 {
		t.Errorf("consumers have published %d messages, while no task is retried", p.copies)
	}
	busy := p.running / p.permitted
	t.Logf("%.1f %% of the permitted places were busy", 100*busy)
	if busy < p.busy {
		t.Errorf("%.1f %% of the permitted places were busy, want %.1f %%", 100*busy, 100*p.busy)
	}
}

// boundBroker is the broker of a process that may die. It declares queues and observes messages.
type boundBroker struct {
	mortalBroker
	places *boundPlaces
}

func (b boundBroker) Declare(ctx context.Context, qs ...broker.Queue) error {
	return broker.Declare(ctx, b.Broker, qs...)
}

func (b boundBroker) Publish(ctx context.Context, queue string, m *broker.Message) error {
	err := b.mortalBroker.Publish(ctx, queue, m)
	if err == nil {
		b.places.change(b.life, func() { b.places.copies++ })
	}
	return err
}

func (b boundBroker) Subscribe(ctx context.Context, queue string, o broker.SubscribeOptions) (broker.Subscription, error) {
	s, err := b.mortalBroker.Subscribe(ctx, queue, o)
	if err == nil {
		b.places.change(b.life, func() { b.places.lives[b.life] = make(map[string]string) })
	}
	return boundSubscription{s, b}, err
}

type boundSubscription struct {
	broker.Subscription
	broker boundBroker
}

func (s boundSubscription) Receive(ctx context.Context) (broker.Delivery, error) {
	d, err := s.Subscription.Receive(ctx)
	if err == nil {
		s.broker.places.received(s.broker.life, d.Message())
	}
	return boundDelivery{d, s.broker}, err
}

type boundDelivery struct {
	broker.Delivery
	broker boundBroker
}

func (d boundDelivery) Ack(ctx context.Context) error {
	d.broker.places.settles(d.broker.life, d.Message(), true)
	return d.Delivery.Ack(ctx)
}

func (d boundDelivery) Release(ctx context.Context, after time.Duration) error {
	d.broker.places.settles(d.broker.life, d.Message(), false)
	return d.Delivery.Release(ctx, after)
}

func (d boundDelivery) DeadLetter(ctx context.Context, dead broker.Dead) error {
	d.broker.places.settles(d.broker.life, d.Message(), true)
	return d.Delivery.DeadLetter(ctx, dead)
}
