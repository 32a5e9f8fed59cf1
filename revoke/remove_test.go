package revoke_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// TestRemove shows that messages without successors are removed and recorded. Others are left to a
// consumer and become due.
func TestRemove(t *testing.T) {
	ctx := t.Context()
	b := membroker.New()
	results := memresults.New(memresults.Config{})
	bus := memevents.New(memevents.Config{Retain: revoke.Retention()})
	told := memevents.New(memevents.Config{})
	defer func() {
		ctx := context.Background()
		if err := errors.Join(b.Close(ctx), results.Close(ctx), bus.Close(ctx), told.Close(ctx)); err != nil {
			t.Error(err)
		}
	}()
	heard, err := told.Subscribe(ctx, events.Filter{Types: []string{events.TaskRevoked}})
	if err != nil {
		t.Fatal(err)
	}
	codec, err := wire.New(serializer.Wire{})
	if err != nil {
		t.Fatal(err)
	}
	if err := broker.Declare(ctx, b, broker.Queue{Name: "q"}); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour)
	ids := []task.ID{"plain", "followed", "sealed", "elsewhere", "grouped", "nowhere", "plain"}
	for _, e := range []*task.Envelope{
		{ID: "plain", Name: "a", Correlation: "c"},
		{ID: "followed", Name: "a", Then: []task.Link{{Name: "b"}}},
		{ID: "sealed", Name: "a", ContentType: "application/msgpack+sealed", Args: []byte("?")},
		{ID: "elsewhere", Name: "a", Meta: task.Metadata{ResultStore: task.Set("other")}},
		{ID: "grouped", Name: "a", Group: "g"},
	} {
		m, err := codec.Encode("q", e)
		if err != nil {
			t.Fatal(err)
		}
		if err := broker.PublishAt(ctx, b, broker.Outgoing{Queue: "q", Message: m, At: later}); err != nil {
			t.Fatal(err)
		}
	}
	saves := &noting{ResultStore: results}
	r, err := revoke.NewRevoker(revoke.RevokerConfig{
		Events: bus, Broker: b, Queues: []string{"none", "q"}, Results: saves, Tasks: told, Logger: quiet(),
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Revoke(ctx, revoke.Options{}, ids...)
	want := slices.Repeat([]revoke.Outcome{revoke.Noted}, len(ids))
	want[0] = revoke.Removed
	if stored(err) != nil || !slices.Equal(got, want) {
		t.Fatalf("outcomes are %v, %v; want %v", got, err, want)
	}
	rec, err := results.Load(ctx, "plain")
	if err != nil || rec.State != task.StateRevoked || !errors.Is(rec.Error, task.ErrRevoked) || rec.Correlation != "c" {
		t.Fatalf("the record is %+v, %v", rec, err)
	}
	if len(saves.records) != 1 || !saves.records[0].DropCheckpoints {
		t.Errorf("saved %+v; want one record that drops the checkpoints of earlier attempts", saves.records)
	}
	if e, err := heard.Receive(ctx); err != nil || e.TaskID != "plain" {
		t.Fatalf("heard %+v, %v", e, err)
	}
	if _, err := b.Find(ctx, "q", "plain"); !errors.Is(err, broker.ErrNotFound) {
		t.Fatalf("the message is still there: %v", err)
	}
	for _, id := range ids[1:5] {
		out, err := b.Find(ctx, "q", string(id))
		if err != nil || !out.At.Before(later.Add(-30*time.Minute)) {
			t.Errorf("%s is due %v, %v; want it soon", id, out.At, err)
		}
	}
	// The revocation of a delayed task lasts longer than its delay.
	l := newList(t, revoke.Config{Events: bus})
	ready(t, l)
	check(t, l, "grouped", true)
}

// noting is a result store that also notes the saved records.
type noting struct {
	resultstore.ResultStore
	records []resultstore.Record
}

func (s *noting) Save(ctx context.Context, r resultstore.Record) error {
	s.records = append(s.records, r)
	return s.ResultStore.Save(ctx, r)
}

// dying is a broker and a result store whose process dies after a number of steps; later calls have
// no effect.
type dying struct {
	broker.Finder
	resultstore.ResultStore
	broker.Broker
	left int // steps until the death
}

var errDead = errors.New("dead")

func (d *dying) step(do func() error) error {
	if d.left--; d.left < 0 {
		return errDead
	}
	return do()
}

func (d *dying) Delete(ctx context.Context, queue, id string) error {
	return d.step(func() error { return d.Finder.Delete(ctx, queue, id) })
}

func (d *dying) Update(ctx context.Context, queue string, o broker.Outgoing) error {
	return d.step(func() error { return d.Finder.Update(ctx, queue, o) })
}

func (d *dying) Close(context.Context) error { return nil }

// dyingStore is the result store of a dying process.
type dyingStore struct{ *dying }

func (s dyingStore) Save(ctx context.Context, r resultstore.Record) error {
	if err := s.step(func() error { return s.ResultStore.Save(ctx, r) }); errors.Is(err, errDead) {
		return resultstore.ErrClosed // an error that is not retried
	} else {
		return err
	}
}

func (s dyingStore) Delete(ctx context.Context, id task.ID) error {
	return s.ResultStore.Delete(ctx, id)
}

// TestRemoverDies shows that a task ends whenever the removing process dies: by its record, or by a
// consumer that receives the message again.
func TestRemoverDies(t *testing.T) {
	for steps := range 4 {
		for _, delay := range []time.Duration{0, time.Hour} {
			synctest.Test(t, func(t *testing.T) { removerDies(t, steps, delay) })
		}
	}
}

func removerDies(t *testing.T, steps int, delay time.Duration) {
	ctx := t.Context()
	server := membroker.NewServer(membroker.Config{})
	b, results := server.Connect(), memresults.New(memresults.Config{})
	bus := memevents.New(memevents.Config{Retain: revoke.Retention()})
	p, err := producer.New(producer.Config{Broker: b, Results: results, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	work := task.New[int, int]("work")
	future, err := work.Submit(ctx, p, 1, task.WithDelay(delay))
	if err != nil {
		t.Fatal(err)
	}
	d := &dying{Finder: b, Broker: b, ResultStore: results, left: steps}
	r, err := revoke.NewRevoker(revoke.RevokerConfig{Events: bus, Broker: d, Queues: []string{"default"}, Results: dyingStore{d}, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	outcomes, err := r.Revoke(ctx, revoke.Options{}, future.ID())
	if whole := d.left >= 0; (outcomes[0] == revoke.Removed) != whole || (err == nil) != whole {
		t.Errorf("died after %d steps: %v, %v", steps, outcomes, err)
	}
	list := newList(t, revoke.Config{Events: bus})
	c, err := consumer.New(consumer.Config{Broker: server.Connect(), Results: results, Revocations: list, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	if err := work.Handle(c, func(context.Context, int) (int, error) { t.Error("a revoked task ran"); return 0, nil }); err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(running) }()
	waiting, cancel := context.WithTimeout(ctx, 2*time.Hour)
	defer cancel()
	if _, err := future.Get(waiting); !errors.Is(err, task.ErrRevoked) {
		t.Errorf("died after %d steps: the future answers %v", steps, err)
	}
	time.Sleep(2 * time.Hour)
	if stats, err := b.Stats(ctx, "default"); err != nil || stats != (broker.Stats{}) {
		t.Errorf("died after %d steps: the queue is %+v, %v", steps, stats, err)
	}
	stop()
	if err := errors.Join(<-ended, list.Close(ctx), p.Close(ctx), results.Close(ctx), bus.Close(ctx), b.Close(ctx)); err != nil {
		t.Error(err)
	}
}
