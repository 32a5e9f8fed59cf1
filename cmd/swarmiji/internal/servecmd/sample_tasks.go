package servecmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// sampleQueue is the queue of the sample tasks.
const sampleQueue = "demo"

type samplePair struct {
	A int `json:"a"`
	B int `json:"b"`
}

// The sample tasks. Each shows one thing on the dashboard.
var (
	sampleAdd    = task.New[samplePair, int]("demo.add", task.WithQueue(sampleQueue))
	sampleImport = task.New[int, int]("demo.import", task.WithQueue(sampleQueue))
	sampleFlaky  = task.New[int, string]("demo.flaky", task.WithQueue(sampleQueue), task.WithMaxRetries(3))
	sampleCard   = task.New[int, string]("demo.charge", task.WithQueue(sampleQueue))
	samplePanic  = task.New[int, string]("demo.panic", task.WithQueue(sampleQueue), task.WithMaxRetries(0))
	sampleSlow   = task.New[int, string]("demo.slow", task.WithQueue(sampleQueue), task.WithTimeLimit(time.Second), task.WithMaxRetries(0))
	samplePages  = task.New[string, []string]("demo.pages", task.WithQueue(sampleQueue))
	sampleCount  = task.New[string, int]("demo.count", task.WithQueue(sampleQueue))
	sampleSum    = task.New[[]int, int]("demo.sum", task.WithQueue(sampleQueue))
)

var errDeclined = errors.New("the card was declined")

// rest waits, or returns the error of ctx.
func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// handleSamples registers the handlers of the sample tasks.
func handleSamples(c *consumer.Consumer) error {
	return errors.Join(
		sampleAdd.Handle(c, func(_ context.Context, p samplePair) (int, error) { return p.A + p.B, nil }),
		sampleImport.Handle(c, func(ctx context.Context, rows int) (int, error) {
			for i := range rows {
				task.Progress(ctx, i, rows, fmt.Sprintf("row %d", i))
				if err := rest(ctx, 200*time.Millisecond); err != nil {
					return 0, err
				}
			}
			return rows, nil
		}),
		sampleFlaky.Handle(c, func(ctx context.Context, n int) (string, error) {
			if r, ok := task.FromContext(ctx); ok && r.RetriesLeft() > 1 {
				return "", task.Retry(fmt.Errorf("the service answered 503 to request %d", n), task.After(2*time.Second))
			}
			return "at last", nil
		}),
		sampleCard.Handle(c, func(_ context.Context, order int) (string, error) {
			return "", task.Fail(fmt.Errorf("order %d: %w", order, errDeclined))
		}),
		samplePanic.Handle(c, func(_ context.Context, n int) (string, error) {
			names := []string{"a", "b", "c"}
			return names[n], nil // out of range: the dead letter has the stack
		}),
		sampleSlow.Handle(c, func(ctx context.Context, _ int) (string, error) { return "", rest(ctx, time.Minute) }),
		samplePages.Handle(c, func(_ context.Context, site string) ([]string, error) {
			return []string{site + "/a", site + "/b", site + "/c", site + "/d"}, nil
		}),
		sampleCount.Handle(c, func(ctx context.Context, page string) (int, error) {
			return len(page), rest(ctx, 300*time.Millisecond)
		}),
		sampleSum.Handle(c, func(_ context.Context, counts []int) (total int, err error) {
			for _, n := range counts {
				total += n
			}
			return total, nil
		}),
	)
}

// submitSamples submits a sample task every second, the failing ones less often, until ctx ends.
func submitSamples(ctx context.Context, p *producer.Producer) error {
	for n := 1; ; n++ {
		calls := []task.Call{sampleAdd.Call(samplePair{n, n})}
		switch {
		case n%30 == 3:
			calls = append(calls, sampleImport.Call(50))
		case n%10 == 5:
			calls = append(calls, sampleFlaky.Call(n))
		case n%15 == 7:
			calls = append(calls, sampleCard.Call(1000+n))
		case n%40 == 11:
			calls = append(calls, samplePanic.Call(7))
		case n%40 == 31:
			calls = append(calls, sampleSlow.Call(n))
		}
		_, err := p.SubmitAll(ctx, calls)
		if err == nil && n%20 == 2 {
			_, err = task.Chain(samplePages, task.Chord(task.Map(sampleCount), sampleSum)).Submit(ctx, p, "example.org")
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if rest(ctx, time.Second) != nil {
			return nil
		}
	}
}
