package memresults_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/resultstore/resultstoretest"
	"github.com/swarmiji/swarmiji/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func harness(t testing.TB) *resultstoretest.Harness {
	first := memresults.New(memresults.Config{MaxResult: 2 << 20})
	t.Cleanup(func() {
		if err := first.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return &resultstoretest.Harness{
		Open:     func(testing.TB) resultstore.ResultStore { return first.View() },
		Promises: resultstoretest.Promises{Notify: true, Gather: true, Claim: true, Swap: true, Checkpoints: true, TTL: 100 * time.Millisecond, MaxResult: 2 << 20},
		Quiet:    100 * time.Millisecond,
		Report:   "../../docs/capabilities/results-memory.json",
	}
}

func TestStore(t *testing.T) { resultstoretest.Run(t, harness) }

func BenchmarkStore(b *testing.B) { resultstoretest.Bench(b, harness) }

func rec(i int) resultstore.Record {
	return resultstore.Record{ID: task.ID(fmt.Sprint("t", i)), State: task.StateSucceeded, Deliveries: 1, ReplyTo: "node"}
}

func save(t *testing.T, s *memresults.Store, rs ...resultstore.Record) {
	t.Helper()
	for _, r := range rs {
		if err := s.Save(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMemoryIsGivenBackWhenTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memresults.New(memresults.Config{TTL: time.Hour})
		const n = 3000 // more records than sweep removes in one chunk
		for i := range n {
			r := rec(i)
			if i%3 == 0 {
				r.TTL = 3 * time.Hour
			}
			save(t, s, r)
		}
		time.Sleep(time.Hour - time.Second)
		synctest.Wait()
		if s.Len() != n {
			t.Errorf("%d records a second before the first is over, want all %d", s.Len(), n)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if s.Len() != n/3 {
			t.Errorf("%d records when those of one hour are over, want %d: nobody asked for them, so the timer must", s.Len(), n/3)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if s.Len() != 0 {
			t.Errorf("%d records when all are over", s.Len())
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestAShorterTimeSetsTheTimerForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memresults.New(memresults.Config{})
		short := rec(2)
		short.TTL = time.Minute
		save(t, s, rec(1), short)
		time.Sleep(time.Minute + 2*time.Second)
		synctest.Wait()
		if s.Len() != 1 {
			t.Errorf("%d records are kept, want only the one of 24 hours", s.Len())
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestMaxRecordsForgetsWhatExpiresFirst(t *testing.T) {
	s := memresults.New(memresults.Config{MaxRecords: 10})
	for i := range 100 {
		r := rec(i)
		r.TTL = time.Hour + time.Duration(i)*time.Second
		save(t, s, r)
		if s.Len() > 10 {
			t.Fatalf("%d records are kept, want at most 10", s.Len())
		}
	}
	if _, err := s.Load(t.Context(), "t90"); err != nil {
		t.Errorf("one of the ten that expire last: %v", err)
	}
	if _, err := s.Load(t.Context(), "t89"); !errors.Is(err, resultstore.ErrNotFound) {
		t.Errorf("one of those that expire first: %v, want ErrNotFound", err)
	}
}

func TestSlowStreamKeepsTheNewest(t *testing.T) {
	s := memresults.New(memresults.Config{Buffer: 5})
	n, err := s.Notify(t.Context(), "node")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		save(t, s, rec(i))
	}
	for i := 15; i < 20; i++ {
		r, err := n.Receive(t.Context())
		if want := task.ID(fmt.Sprint("t", i)); err != nil || r.ID != want {
			t.Errorf("received %q, %v; want %q", r.ID, err, want)
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestViewOfAClosedStoreIsClosed(t *testing.T) {
	s := memresults.New(memresults.Config{})
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.View().Save(t.Context(), rec(1)); !errors.Is(err, resultstore.ErrClosed) {
		t.Errorf("Save returned %v, want ErrClosed", err)
	}
}
