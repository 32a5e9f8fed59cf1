package deferrals_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// slowStore is a store whose next reply can be delayed.
type slowStore struct {
	jobs.Store
	late atomic.Pointer[chan struct{}] // closed to send the reply; nil: no delay
}

func (s *slowStore) Update(ctx context.Context, fn func(context.Context, jobstore.Tx) error) error {
	err := s.Store.Update(ctx, fn)
	if late := s.late.Swap(nil); late != nil {
		<-*late
	}
	return err
}

// TestRenewalDuringASettlement shows that a delivery does not become lost if its lease is renewed
// while its settlement is stored.
func TestRenewalDuringASettlement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowStore{Store: memory(t)(t)}
		s := service(t, store)
		d := kept(t, s)
		if _, err := d.Defer(t.Context(), deferral.Attempt{Queue: "q", Name: "n", Task: "t1"}, "k", time.Hour); err != nil {
			t.Fatal(err)
		}
		if _, err := s.AnswerAll(t.Context(), []jobs.Answer{{Name: "n", Key: "k", Result: []byte("1")}}); err != nil {
			t.Fatal(err)
		}
		sub, err := d.Subscribe(t.Context(), []string{"q"}, broker.SubscribeOptions{Lease: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		got, err := sub.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		late, settled := make(chan struct{}), make(chan error)
		store.late.Store(&late)
		go func() { settled <- got.Next(t.Context(), time.Time{}) }()
		synctest.Wait()
		if store.late.Load() != nil {
			t.Fatal("Next has asked for nothing")
		}
		time.Sleep(time.Minute) // time for renewals
		synctest.Wait()
		select {
		case <-got.Lost():
			t.Error("a delivery whose settlement has succeeded is lost")
		default:
		}
		close(late)
		if err := <-settled; err != nil {
			t.Errorf("Next: %v", err)
		}
		if err := sub.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
