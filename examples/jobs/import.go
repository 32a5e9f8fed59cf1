package main

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/task"
)

// Import is the data of an import job: the number of rows, and the number of rows already imported.
type Import struct {
	Rows int `json:"rows"`
	Done int `json:"done"`
}

// doImport imports the remaining rows, and stores its progress in the job after every ten rows. It
// returns the cause of ctx when ctx ends, and the error of a failed progress update.
func doImport(ctx context.Context, at Import) (task.None, error) {
	for ; at.Done < at.Rows; at.Done++ {
		select {
		case <-time.After(5 * time.Millisecond): // one row
		case <-ctx.Done():
			return task.None{}, context.Cause(ctx)
		}
		if at.Done%10 == 0 {
			if err := runner.Progress(ctx, at); err != nil {
				return task.None{}, err
			}
		}
	}
	return task.None{}, nil
}
