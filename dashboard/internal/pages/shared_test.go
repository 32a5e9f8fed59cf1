package pages

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/inspect"
)

// slowAPI takes a time for its list of workers. The list is as long as the number of its reads. A
// test with a time runs it in a bubble of synctest.
type slowAPI struct {
	inspect.API
	takes time.Duration
	reads int
}

func (a *slowAPI) ListWorkers(context.Context, inspect.WorkerQuery) (inspect.WorkerPage, error) {
	a.reads++
	read := a.reads
	time.Sleep(a.takes)
	return inspect.WorkerPage{Workers: make([]inspect.Worker, read)}, nil
}

// TestSlowAnswersAreKept loads a page once a second for a minute. An answer that is read quickly is
// new each time. A slow one is read in a tenth of the time, or each 2.5 seconds, and no load waits
// for the second one. A load after a pause, or after a change, is given no old answer.
func TestSlowAnswersAreKept(t *testing.T) {
	for takes, most := range map[time.Duration]int{time.Millisecond: 60, 300 * time.Millisecond: 20, 2 * time.Second: 20} {
		synctest.Test(t, func(t *testing.T) {
			api := &slowAPI{takes: takes}
			s := newShared(api, slog.Default())
			load := func() (read int, waited time.Duration) {
				began := time.Now()
				page, err := s.ListWorkers(t.Context(), inspect.WorkerQuery{})
				if err != nil {
					t.Fatal(err)
				}
				return len(page.Workers), time.Since(began)
			}
			load()
			for range 60 {
				time.Sleep(time.Second)
				if _, waited := load(); takes > keep && waited > 0 {
					t.Errorf("a load waited %v for an answer that takes %v", waited, takes)
				}
			}
			synctest.Wait()
			if takes < keep/keepTimes && api.reads != 61 || api.reads > most+1 {
				t.Errorf("an answer that takes %v was read %d times", takes, api.reads)
			}
			time.Sleep(time.Minute)
			if read, _ := load(); read != api.reads {
				t.Errorf("takes %v: after a pause the answer is of read %d of %d", takes, read, api.reads)
			}
			s.forget()
			if read, waited := load(); read != api.reads || waited != takes {
				t.Errorf("takes %v: after a change the answer is of read %d of %d, after %v", takes, read, api.reads, waited)
			}
			if err := s.close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// panicAPI panics in a read. Its events are one change.
type panicAPI struct {
	inspect.API
	told bool
}

func (*panicAPI) ListQueues(context.Context, inspect.QueueQuery) (inspect.QueuePage, error) {
	panic("out of order")
}

func (a *panicAPI) ListEvents(ctx context.Context, _ inspect.EventQuery) (inspect.EventPage, error) {
	if a.told {
		<-ctx.Done()
		return inspect.EventPage{}, ctx.Err()
	}
	a.told = true
	return inspect.EventPage{Events: []inspect.Event{{Type: inspect.AuditEvent}}}, nil
}

// TestPanicInARead shows that a panic in a shared read is an error for its callers.
func TestPanicInARead(t *testing.T) {
	s := newShared(&panicAPI{}, slog.New(slog.DiscardHandler))
	if _, err := s.ListQueues(t.Context(), inspect.QueueQuery{}); inspect.CodeOf(err) != inspect.CodeInternal {
		t.Errorf("a panic: %v", err)
	}
	if err := s.close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestAnswersAreLimited asks more different questions than answers are kept. Each is answered.
func TestAnswersAreLimited(t *testing.T) {
	s := newShared(&slowAPI{}, slog.Default())
	for i := range 3 * maxAnswers {
		page, err := s.ListWorkers(t.Context(), inspect.WorkerQuery{Limit: i + 1})
		if err != nil || len(page.Workers) != i+1 {
			t.Fatalf("question %d: %d, %v", i, len(page.Workers), err)
		}
	}
	if n := len(s.workers.answers); n > maxAnswers {
		t.Errorf("%d answers are kept", n)
	}
	if err := s.close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestChangesDropAnswers shows that the event of a change, by whatever process, drops the shared
// answers.
func TestChangesDropAnswers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	l := newLive(&panicAPI{}, cancel, slog.Default())
	l.read(ctx, "")
	if !errors.Is(ctx.Err(), context.Canceled) {
		t.Error("the change was not told")
	}
}

// stoppingAPI answers slowly until its servers hang.
type stoppingAPI struct {
	inspect.API
	hang atomic.Bool
}

func (a *stoppingAPI) ListWorkers(ctx context.Context, _ inspect.WorkerQuery) (inspect.WorkerPage, error) {
	if a.hang.Load() {
		<-ctx.Done()
		return inspect.WorkerPage{}, ctx.Err()
	}
	time.Sleep(300 * time.Millisecond)
	return inspect.WorkerPage{Workers: make([]inspect.Worker, 1)}, nil
}

// TestOlderAnswersEnd shows that an older answer is not given for as long as a new one takes.
func TestOlderAnswersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &stoppingAPI{}
		s := newShared(api, slog.New(slog.DiscardHandler))
		asked := time.Now()
		if _, err := s.ListWorkers(t.Context(), inspect.WorkerQuery{}); err != nil {
			t.Fatal(err)
		}
		api.hang.Store(true)
		given, oldest := 0, time.Duration(0)
		for range 28 {
			time.Sleep(time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			if _, err := s.ListWorkers(ctx, inspect.WorkerQuery{}); err == nil {
				given, oldest = given+1, time.Since(asked)
			}
			cancel()
		}
		if given == 0 || oldest > 2*keepMost {
			t.Errorf("the older answer was given %d times, at last after %v; want at most %v", given, oldest, 2*keepMost)
		}
		if err := s.close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
