package servecmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/task"
)

type sampleRow struct {
	Row int `json:"row"`
}

type sampleOrder struct {
	Order int `json:"order"`
}

// sampleOrderKey is the key of the answer that the job about order 7 waits for.
const sampleOrderKey = "order 7"

// The sample jobs: one repeats with the data of its last run, the other waits for an answer.
var (
	sampleFeed    = task.New[sampleRow, sampleRow]("demo.feed")
	sampleApprove = task.New[sampleOrder, string]("demo.approve")
)

// startJobs creates the sample jobs in the store of url, and runs them. Jobs that exist stay as
// they are.
func startJobs(ctx context.Context, url string, logger *slog.Logger, g *together) error {
	store, err := open.Jobs(ctx, url, open.JobsOptions{Logger: logger})
	if err != nil {
		return err
	}
	g.ends = append(g.ends, store.Close)
	service, err := jobs.New(jobs.Config{Store: store, Logger: logger})
	if err != nil {
		return err
	}
	g.ends = append(g.ends, service.Close)
	r, err := runner.New(runner.Config{Service: service, ShutdownTimeout: time.Second, Logger: logger})
	if err != nil {
		return err
	}
	if err := handleSampleJobs(r); err != nil {
		return err
	}
	g.run(ctx, func(ctx context.Context) error {
		_, err := service.CreateAll(ctx, []jobs.Spec{
			{Name: sampleFeed.Name(), Data: []byte(`{"row": 0}`), Repeat: "FINISHED, +20 SECONDS", Unique: true, Keep: true},
			{Name: sampleApprove.Name(), Data: []byte(`{"order": 7}`), Unique: true, Keep: true},
		})
		if err != nil {
			return err
		}
		return r.Run(ctx)
	})
	return nil
}

// handleSampleJobs registers the handlers of the sample jobs.
func handleSampleJobs(r *runner.Runner) error {
	return errors.Join(
		sampleFeed.Handle(r, func(ctx context.Context, at sampleRow) (sampleRow, error) {
			for range 10 {
				if err := rest(ctx, 500*time.Millisecond); err != nil {
					return at, err
				}
				at.Row += 10
				if err := runner.Progress(ctx, at); err != nil {
					return at, err
				}
			}
			return at, nil
		}),
		sampleApprove.Handle(r, func(_ context.Context, o sampleOrder) (string, error) {
			return "", task.Defer(fmt.Sprintf("order %d", o.Order), task.AnswerWithin(24*time.Hour))
		}),
	)
}
