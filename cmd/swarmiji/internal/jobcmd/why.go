package jobcmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/jobs"
)

// whyOutput is the output of job why.
type whyOutput struct {
	ID      jobs.ID        `json:"id"`
	State   jobs.State     `json:"state"`
	At      time.Time      `json:"at"` // by the store's clock
	Reasons []reasonOutput `json:"reasons"`
}

type reasonOutput struct {
	Kind jobs.WhyKind `json:"kind"`
	Text string       `json:"text"`
	At   time.Time    `json:"at,omitzero"`
	Job  jobs.ID      `json:"job,omitempty"`
	Key  string       `json:"key,omitempty"`
}

func (a *app) jobWhyCmd(store *cli.JobStore) *cobra.Command {
	return &cobra.Command{
		Use:   "why ID",
		Short: "Explain why a job does not run",
		Long: "Why prints in sentences why a job does not run, or what it is doing. For example, it is due later, outside its\n" +
			"window, or held back by its queue or by another job of its sequence. Or it waits for an answer or for\n" +
			"children, or it has ended. It changes nothing. What a throttler of the queue has refused may be known a little\n" +
			"late. Exit status: 3 if the job does not exist.",
		Example: "  swarmiji job why 17\n" +
			"  swarmiji job why 17 -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := jobIDs(args)
			if err != nil {
				return err
			}
			return a.withJobAPI(cmd.Context(), store, func(ctx context.Context, api inspect.API) error {
				e, err := api.WhyJob(ctx, int64(ids[0]))
				if err != nil {
					return err
				}
				o := whyOutput{ID: ids[0], State: jobs.State(e.State), At: e.At, Reasons: []reasonOutput{}}
				t := &cli.Table{}
				for _, r := range e.Reasons {
					o.Reasons = append(o.Reasons, reasonOutput{Kind: jobs.WhyKind(r.Kind), Text: r.Text, At: r.At, Job: jobs.ID(r.Job), Key: r.Key})
					t.Add(r.Text)
				}
				if len(t.Rows) > 0 {
					t.Head, t.Rows = t.Rows[0], t.Rows[1:]
				}
				return a.Show(o, t)
			})
		},
	}
}
