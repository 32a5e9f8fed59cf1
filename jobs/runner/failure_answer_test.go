package runner_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/jobs/queue"
	"github.com/swarmiji/swarmiji/jobs/runner"
)

// TestAnswerBeforeFailure shows that a failed request whose answer has come does not fail the job.
// No failure is reported or counted.
func TestAnswerBeforeFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := memjobs.New(memjobs.Config{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := jobs.New(jobs.Config{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		r, err := runner.New(runner.Config{
			Service: s, Queue: &queue.Queue{Name: "q"}, OnReport: func(p runner.Report) { t.Errorf("%s: %v", p.Problem, p.Err) },
		})
		if err != nil {
			t.Fatal(err)
		}
		payment := runner.Type[Payment, int]{
			Name: "payment", Key: func(p Payment) string { return p.Order },
			Request: func(ctx context.Context, p Payment) error {
				_, err := s.Complete(ctx, "payment", p.Order, 7)
				return errors.Join(errors.New("the connection broke behind the request"), err)
			},
			Response: func(_ context.Context, p Payment, n int) (Payment, error) { p.Number = n; return p, nil },
		}
		if err := payment.Register(r); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		id, err := payment.Create(t.Context(), s, "q", Payment{Order: "A"})
		if err != nil {
			t.Fatal(err)
		}
		for {
			j, err := s.Query(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if j.State.Over() {
				if j.State != jobs.Finished || string(j.Data) != `{"order":"A","try":0,"number":7}` {
					t.Errorf("%s %s: %s", j.State, j.Data, j.Reason)
				}
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if got := r.Stats(); got.Failed != 0 || got.Deferred != 1 || got.Ran != 1 {
			t.Errorf("%+v", got)
		}
		if got := s.Stats(); got.Failed != 0 || got.Finished != 1 {
			t.Errorf("%+v", got)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
