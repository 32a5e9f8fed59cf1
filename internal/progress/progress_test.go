package progress_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/internal/progress"
	"github.com/swarmiji/swarmiji/task"
)

// TestReporter shows that many reports become one value a second, the last one, and that Close
// returns a value that was not sent.
func TestReporter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []task.ProgressValue
		var times []time.Time
		r := progress.New(func(_ context.Context, p task.ProgressValue) {
			sent, times = append(sent, p), append(times, time.Now())
		})
		for i := range 100 {
			r.Report(task.ProgressValue{Done: i})
			<-time.After(50 * time.Millisecond)
		}
		synctest.Wait()
		if len(sent) > 6 || len(sent) < 5 || sent[0].Done != 0 { // the ends of both waits fall together
			t.Errorf("in 5 s %d values were sent: %v", len(sent), sent)
		}
		for i := range times[1:] {
			if d := times[i+1].Sub(times[i]); d < time.Second {
				t.Errorf("two values within %v", d)
			}
		}
		<-time.After(5 * time.Second)
		if last := sent[len(sent)-1]; last.Done != 99 {
			t.Errorf("the last value that was sent is %d, want 99", last.Done)
		}
		n := len(sent)
		r.Report(task.ProgressValue{Done: 200}) // after a rest
		synctest.Wait()
		r.Report(task.ProgressValue{Done: 201})
		if last := r.Close(); last.Done != 201 || len(sent) != n+1 {
			t.Errorf("Close returned %+v after %d values", last, len(sent)-n)
		}
		r.Report(task.ProgressValue{Done: 202})
		if last := r.Close(); last.Done != 201 {
			t.Errorf("a report after Close: %+v", last)
		}
	})
}

// TestCloseEndsSending shows that Close ends the context of a send and waits for it.
func TestCloseEndsSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := false
		r := progress.New(func(ctx context.Context, _ task.ProgressValue) {
			<-ctx.Done()
			ended = true
		})
		r.Report(task.ProgressValue{Done: 1})
		synctest.Wait()
		if r.Close(); !ended {
			t.Error("Close did not wait for the send")
		}
	})
}
