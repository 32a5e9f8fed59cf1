package revoke_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
)

// TestUnheard shows that only the lists of consumers answer a Revoker.
func TestUnheard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memevents.New(memevents.Config{Retain: revoke.Retention()})
		defer bus.Close(context.Background())
		r := newRevoker(t, bus)
		l := newList(t, revoke.Config{Events: bus})
		ready(t, l)
		if outcomes, err := r.Revoke(t.Context(), revoke.Options{}, "1"); !errors.Is(err, revoke.ErrUnheard) || len(outcomes) != 1 {
			t.Errorf("no consumer has a list: %v, %v", outcomes, err)
		}
		if err := r.RevokeMatching(t.Context(), revoke.Options{}, revoke.Selector{Name: "a"}); !errors.Is(err, revoke.ErrUnheard) {
			t.Errorf("no consumer has a list: %v", err)
		}
		check(t, l, "1", true)
		stop := l.Watch(func(revoke.Revocation) {})
		began := time.Now()
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				if _, err := r.Revoke(t.Context(), revoke.Options{}, task.ID(fmt.Sprint("many-", i))); err != nil {
					t.Errorf("a consumer has a list: %v", err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("100 revocations at a time took %v", took)
		}
		stop()
		if _, err := r.Revoke(t.Context(), revoke.Options{}, "2"); !errors.Is(err, revoke.ErrUnheard) {
			t.Errorf("the consumer has gone: %v", err)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// publishes counts the published events.
type publishes struct {
	*memevents.Bus
	n atomic.Int64
}

func (p *publishes) Publish(ctx context.Context, e events.Event) error {
	p.n.Add(1)
	return p.Bus.Publish(ctx, e)
}

// TestOneAnswerSparesTheOthers shows that not every consumer answers.
func TestOneAnswerSparesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := &publishes{Bus: memevents.New(memevents.Config{Retain: revoke.Retention()})}
		defer bus.Close(context.Background())
		const lists = 50
		var all []*revoke.List
		for range lists {
			l := newList(t, revoke.Config{Events: bus})
			ready(t, l)
			defer l.Watch(func(revoke.Revocation) {})()
			all = append(all, l)
		}
		synctest.Wait()
		before := bus.n.Load()
		if _, err := newRevoker(t, bus).Revoke(t.Context(), revoke.Options{}, "1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if n := bus.n.Load() - before; n > 2+lists/5 {
			t.Errorf("a revocation that %d lists hear took %d events", lists, n)
		}
		for _, l := range all {
			if err := l.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}
