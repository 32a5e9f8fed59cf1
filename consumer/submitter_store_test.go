package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/task"
)

// TestNoStoreForTheResult shows that the consumer's log and the error of the future name the
// cause, if the consumer lacks the store where the submitter waits.
func TestNoStoreForTheResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b := newTable(t, func(c *consumer.Config) {
			c.Results, c.Logger = nil, slog.New(slog.NewTextHandler(&log, nil))
		})
		b.run()
		f, err := echo.Submit(t.Context(), b.p, 1, task.WithID("x"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := f.Get(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no consumer has recorded the task") {
			t.Errorf("the wait ended with: %v", err)
		}
		b.end()
		if text := log.String(); b.runs.Load() != 1 || strings.Count(text, "Config.Results is not set") != 1 {
			t.Errorf("%d runs; the consumer's log: %s", b.runs.Load(), text)
		}
	})
}
