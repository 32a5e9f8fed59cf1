package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
)

// watch prints the reason why a job is not done whenever the reason changes, until all jobs except
// one have ended.
func watch(ctx context.Context, out io.Writer, service *jobs.Service, ids []jobs.ID, but jobs.ID) error {
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	said := map[jobs.ID]string{}
	for {
		left := 0
		for _, id := range ids {
			why, err := service.Explain(ctx, id)
			if err != nil {
				return err
			}
			if id != but && !why.Job.State.Over() {
				left++
			}
			if text := strings.ReplaceAll(why.String(), "\n", " "); text != said[id] {
				said[id] = text
				say(out, "%-9s %s\n", why.Job.Key, text)
			}
		}
		if left == 0 {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// total says how all of it has ended.
func total(ctx context.Context, out io.Writer, service *jobs.Service, ids []jobs.ID) error {
	for _, id := range ids {
		j, err := service.Query(ctx, id)
		if err != nil {
			return err
		}
		var o Order
		if err := json.Unmarshal(j.Data, &o); err != nil {
			return err
		}
		say(out, "%-9s %s after %d attempts, %d sheets\n", o.Order, j.State, j.Attempt, o.Sheets)
	}
	return nil
}

// say writes formatted text to w. It ignores write errors, because the output is only for display.
func say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }
