package redisschedule_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/schedule/redisschedule"
	"github.com/swarmiji/swarmiji/task"
)

var work = task.New[int, task.None]("work")

// TestFiveListeners shows that five listeners run each of 10,000 due entries once, and leave no
// data behind. With the race detector there are fewer entries.
// Promises: W2.
func TestFiveListeners(t *testing.T) {
	const entries = many
	s := newServer(t)
	store := s.store(redisschedule.Config{})
	sched, err := schedule.New(schedule.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	calls := make([]task.Call, entries)
	for i := range calls {
		calls[i] = work.Call(i)
	}
	added, err := sched.AddAll(t.Context(), schedule.Now(), calls)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	runs := map[task.ID]int{}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var running sync.WaitGroup
	for range 5 {
		l, err := schedule.NewListener(schedule.ListenerConfig{Store: s.store(redisschedule.Config{}), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := work.Handle(l, func(ctx context.Context, _ int) (task.None, error) {
			q, _ := task.FromContext(ctx)
			mu.Lock()
			defer mu.Unlock()
			runs[q.ID]++
			return task.None{}, nil
		}); err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			if err := l.Run(ctx); err != nil {
				t.Error(err)
			}
			// a listener on a busy machine may release ticks that wait for its workers (Again)
			if st := l.Stats(); st.Lost > 0 || st.Failed > 0 {
				t.Errorf("%+v", st)
			}
		})
	}
	for deadline := time.After(2 * time.Minute); ; {
		if s.do("HLEN", s.name+":jobs") == int64(0) {
			break
		}
		select {
		case <-deadline:
			t.Fatalf("%v entries are left", s.do("HLEN", s.name+":jobs"))
		case <-time.After(20 * time.Millisecond):
		}
	}
	cancel()
	running.Wait()
	for _, a := range added {
		if n := runs[schedule.TickID(s.name, a.ID, a.Next)]; n != 1 {
			t.Errorf("entry %s was run %d times", a.ID, n)
		}
	}
	if len(runs) != entries || s.do("ZCARD", s.name+":next") != int64(0) {
		t.Errorf("%d ids ran; %v members are left", len(runs), s.do("ZCARD", s.name+":next"))
	}
}
