package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
)

// watch draws a progress bar for the import job id until the service no longer stores the job. It
// polls the service every 20ms. It returns an error if the job failed, a query failed or ctx ended.
func watch(ctx context.Context, out io.Writer, service *jobs.Service, id jobs.ID) error {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	shown := -1
	for {
		j, err := service.Query(ctx, id)
		if errors.Is(err, jobs.ErrNotFound) {
			draw(out, 1, 1)
			say(out, "\nimport: done\n")
			return nil
		}
		var at Import
		if err == nil {
			err = json.Unmarshal(j.Data, &at)
		}
		switch {
		case err != nil:
			return err
		case j.State == jobs.Failed:
			return errors.New(j.Reason)
		case at.Done != shown:
			draw(out, at.Done, at.Rows)
			shown = at.Done
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

const barWidth = 40

func draw(out io.Writer, done, total int) {
	full := barWidth * done / max(total, 1)
	say(out, "\rimport: [%s%s] %3d%%", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), 100*done/max(total, 1))
}

// say writes formatted text to w. It ignores write errors, because the output is only for display.
func say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }
