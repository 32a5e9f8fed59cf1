package brokertest

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/tx"
)

// methodsOfQueue returns, by the name of the method, a call of each optional method of b that takes
// a queue name.
func methodsOfQueue(b broker.Broker) map[string]func(ctx context.Context, queue string) error {
	calls := make(map[string]func(ctx context.Context, queue string) error)
	if d, ok := capability.As[broker.Delayer](b); ok {
		calls["PublishAt"] = func(ctx context.Context, q string) error {
			return d.PublishAt(ctx, q, msg("bad"), time.Now().Add(time.Minute))
		}
	}
	if p, ok := capability.As[broker.BatchPublisher](b); ok {
		calls["PublishBatch"] = func(ctx context.Context, q string) error {
			return p.PublishBatch(ctx, []broker.Outgoing{{Queue: q, Message: msg("bad")}})
		}
	}
	if d, ok := capability.As[broker.Declarer](b); ok {
		calls["Declare"] = func(ctx context.Context, q string) error { return d.Declare(ctx, broker.Queue{Name: q}) }
	}
	if d, ok := capability.As[broker.Describer](b); ok {
		calls["Describe"] = func(ctx context.Context, q string) error { _, err := d.Describe(ctx, q); return err }
	}
	if i, ok := capability.As[broker.Inspector](b); ok {
		calls["Stats"] = func(ctx context.Context, q string) error { _, err := i.Stats(ctx, q); return err }
		calls["Purge"] = func(ctx context.Context, q string) error { _, err := i.Purge(ctx, q); return err }
	}
	if d, ok := capability.As[broker.DeadLetterer](b); ok {
		calls["PutDead"] = func(ctx context.Context, q string) error { return d.PutDead(ctx, q, broker.Dead{Message: msg("bad")}) }
		calls["ScanDead"] = func(ctx context.Context, q string) error {
			return d.ScanDead(ctx, q, func(*broker.Dead) broker.DeadAction { return broker.DeadKeep })
		}
		calls["PurgeDead"] = func(ctx context.Context, q string) error { _, err := d.PurgeDead(ctx, q); return err }
	}
	if f, ok := capability.As[broker.Finder](b); ok {
		calls["Find"] = func(ctx context.Context, q string) error { _, err := f.Find(ctx, q, "x"); return err }
		calls["Delete"] = func(ctx context.Context, q string) error { return f.Delete(ctx, q, "x") }
		calls["Update"] = func(ctx context.Context, q string) error {
			return f.Update(ctx, q, broker.Outgoing{Queue: q, Message: msg("x")})
		}
	}
	if l, ok := capability.As[broker.Lister](b); ok {
		calls["List"] = func(ctx context.Context, q string) error {
			_, err := l.List(ctx, q, broker.ListQuery{Place: broker.PlaceWaiting})
			return err
		}
	}
	if l, ok := capability.As[broker.KeyLister](b); ok {
		calls["ListKeys"] = func(ctx context.Context, q string) error { _, err := l.ListKeys(ctx, q, "", 0); return err }
	}
	if f, ok := capability.As[broker.DeadFinder](b); ok {
		calls["ScanDeadID"] = func(ctx context.Context, q string) error {
			return f.ScanDeadID(ctx, q, "x", func(*broker.Dead) broker.DeadAction { return broker.DeadKeep })
		}
	}
	if n, ok := capability.As[broker.Witness](b); ok {
		start := note("n", "node")
		calls["NoteStart"] = func(ctx context.Context, q string) error { _, err := n.NoteStart(ctx, q, start); return err }
		calls["JudgeStart"] = func(ctx context.Context, q string) error { return n.JudgeStart(ctx, q, start) }
	}
	return calls
}

// checkPromises is the case that b offers each optional interface if and only if the adapter
// promises it.
func checkPromises(w *world) {
	b := w.Open()
	q := w.queue(b, "promises")
	s := w.subscribe(b, q, 1)
	w.publish(b, q, msg("a"))
	d := w.receive(s)
	p := w.h.Promises
	has := func(name string, promised, offered bool) {
		switch {
		case promised && !offered:
			w.Errorf("%s is promised and not offered", name)
		case offered && !promised:
			w.Errorf("%s is offered and not promised: no case tests it", name)
		}
	}
	has("Delays", p.Delays, offers[broker.Delayer](b))
	has("Batch", p.Batch, offers[broker.BatchPublisher](b))
	has("Retry", p.Retry, offers[broker.Retrier](b))
	has("Inspect", p.Inspect, offers[broker.Inspector](b))
	has("DeadLetters", p.DeadLetters, offers[broker.DeadLetterer](b))
	has("Find", p.Find, offers[broker.Finder](b))
	has("Queues", p.Queues, offers[broker.QueueLister](b))
	has("List", p.List, offers[broker.Lister](b))
	has("ListKeys", p.ListKeys, offers[broker.KeyLister](b))
	has("Bounds", p.Bounds, offers[broker.Bounder](s))
	has("DeadByID", p.DeadByID, offers[broker.DeadFinder](b))
	has("Watch", p.Watch, offers[broker.Watcher](b))
	has("Witness", p.Witness, offers[broker.Witness](b))
	has("Transactions", p.Transactions, offers[broker.TxPublisher](b))
	has("Transactions (of acknowledgements)", p.Transactions, offers[broker.TxAcker](d))
	has("Transactions (to check)", p.Transactions, offers[tx.Checker](b))
	has("Resize", p.Resize, offers[broker.Resizer](s))
	has("SyncAck", p.SyncAck, offers[broker.SyncAcker](d))
	if a, ok := capability.As[broker.PrefetchAdviser](b); ok && a.PrefetchPerWorker() < 1 {
		w.Errorf("PrefetchPerWorker is %d, want 1 or more", a.PrefetchPerWorker())
	}
	if p.Priorities && !offers[broker.Declarer](b) {
		w.Error("Priorities are promised, and there is no Declarer to name the levels")
	}
	if (p.Fair || p.Lanes) && !offers[broker.Describer](b) {
		w.Error("Fair or Lanes is promised, and there is no Describer to show which queues are fair")
	}
	w.ack(d)
}

// offers reports whether capability.As finds the interface T on v.
func offers[T any](v any) bool {
	_, ok := capability.As[T](v)
	return ok
}

// Wrappers as users write them.
type (
	wrapper             struct{ broker.Broker }
	subscriptionWrapper struct{ broker.Subscription }
	deliveryWrapper     struct{ broker.Delivery }
)

// Unwrap returns the wrapped Broker, in which capability.As continues its search.
func (w wrapper) Unwrap() any { return w.Broker }

// Unwrap returns the wrapped Subscription.
func (w subscriptionWrapper) Unwrap() any { return w.Subscription }

// Unwrap returns the wrapped Delivery.
func (w deliveryWrapper) Unwrap() any { return w.Delivery }

// checkWrapped is the case that each optional interface is found through a wrapper with Unwrap.
func checkWrapped(w *world) {
	b := w.Open()
	suite.Keeps(w, b, wrapper{b}, suite.CapabilityOf[broker.Delayer](), suite.CapabilityOf[broker.BatchPublisher](),
		suite.CapabilityOf[broker.Retrier](), suite.CapabilityOf[broker.Declarer](), suite.CapabilityOf[broker.Describer](), suite.CapabilityOf[broker.PrefetchAdviser](),
		suite.CapabilityOf[broker.Inspector](), suite.CapabilityOf[broker.Auditor](), suite.CapabilityOf[broker.Locator](),
		suite.CapabilityOf[broker.Finder](), suite.CapabilityOf[broker.Watcher](), suite.CapabilityOf[broker.DeadLetterer](),
		suite.CapabilityOf[broker.QueueLister](), suite.CapabilityOf[broker.Lister](), suite.CapabilityOf[broker.KeyLister](), suite.CapabilityOf[broker.DeadFinder](),
		suite.CapabilityOf[broker.Witness](), suite.CapabilityOf[broker.TxPublisher]())
	q := w.queue(b, "wrapped")
	s := w.subscribe(b, q, 1)
	suite.Keeps(w, s, subscriptionWrapper{s}, suite.CapabilityOf[broker.Resizer](), suite.CapabilityOf[broker.Divider](), suite.CapabilityOf[broker.Buffer](), suite.CapabilityOf[broker.Bounder](),
		suite.CapabilityOf[broker.AckChecker]())
	w.publish(b, q, msg("a"))
	d := w.receive(s)
	suite.Keeps(w, d, deliveryWrapper{d}, suite.CapabilityOf[broker.SyncAcker](), suite.CapabilityOf[broker.AckChecker]())
	w.ack(d)
	if w.h.Promises.Delays {
		ctx, cancel := w.Ctx()
		defer cancel()
		o := broker.Outgoing{Queue: q, Message: msg("b"), At: time.Now().Add(time.Millisecond)}
		w.Must(broker.PublishAt(ctx, wrapper{b}, o), "PublishAt through a wrapper")
		w.ack(w.receive(s))
	}
}
