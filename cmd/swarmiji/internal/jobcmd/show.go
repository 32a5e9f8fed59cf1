package jobcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
)

func (a *app) jobShowCmd(store *cli.JobStore) *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show a job",
		Long: "Show prints all fields of a job, with its data and its answer, which may hold secrets, and the first " + strconv.Itoa(inspect.DefaultLimit) + "\n" +
			"of its children. It changes nothing. Exit status: 3 if the job does not exist.",
		Example: "  swarmiji job show 17\n" +
			"  swarmiji job show 17 -o json | jq .data",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := jobIDs(args)
			if err != nil {
				return err
			}
			return a.withJobAPI(cmd.Context(), store, func(ctx context.Context, api inspect.API) error {
				j, err := api.GetJob(ctx, int64(ids[0]))
				if err != nil {
					return err
				}
				o := wholeOutput{JobDetail: j}
				if j.Timeout > 0 {
					o.Timeout = j.Timeout.String()
				}
				return a.showJob(&o)
			})
		},
	}
}

// wholeOutput is the output of job show.
type wholeOutput struct {
	inspect.JobDetail
	Timeout string `json:"timeout,omitempty"` // such as 24h0m0s
}

// showJob prints a job: its set fields, then its children, answer and data.
func (a *app) showJob(o *wholeOutput) error {
	t := &cli.Table{Head: []string{"ID", strconv.FormatInt(o.ID, 10)}}
	t.Add("NAME", o.Name)
	t.Add("STATE", stands(o.State, o.Phase))
	t.Add("PRIORITY", o.Priority)
	for _, f := range []struct {
		name  string
		value any
	}{
		{"QUEUE", o.Queue},
		{"WINDOWS", o.Windows},
		{"TIMEOUT", o.Timeout},
		{"KEY", o.Key},
		{"UNIQUE KEY", o.UniqueKey},
		{"SEQUENCE KEY", o.SequenceKey},
		{"REPEAT", o.Repeat},
		{"RETRY AFTER", o.RetryAfter},
		{"CREATED", o.Created},
		{"CHANGED", o.Changed},
		{"NEXT RUN", o.NextRun},
		{"SCHEDULED", o.Scheduled},
		{"LAST RUN", o.LastRun},
		{"DUE", o.Due},
		{"DEADLINE", o.Deadline},
		{"EXPIRES", o.Expires},
		{"REASON", o.Reason},
	} {
		if text := cli.Cell(f.value); text != "-" {
			t.Add(f.name, text)
		}
	}
	if o.Weight != nil {
		t.Add("WEIGHT", strconv.FormatFloat(*o.Weight, 'f', -1, 64))
	}
	t.Add("RUNS", o.Runs)
	if o.Attempt > 0 {
		t.Add("ATTEMPT", o.Attempt)
	}
	if o.Mock {
		t.Add("MOCK", "yes")
	}
	if o.Parent != 0 {
		t.Add("PARENT", o.Parent)
	}
	for i := range o.Children {
		c := &o.Children[i]
		t.Add("CHILD", fmt.Sprintf("%d %s %s", c.ID, stands(c.State, c.Phase), c.Name))
	}
	if err := a.Show(o, t); err != nil || a.Output != "table" {
		return err
	}
	return a.pretty(o)
}

// pretty prints the data and the answer of a job as indented JSON.
func (a *app) pretty(o *wholeOutput) error {
	for _, part := range []struct {
		name string
		text json.RawMessage
	}{{"ANSWER", o.Answer}, {"DATA", o.Data}} {
		if part.text == nil {
			continue
		}
		var b bytes.Buffer
		if err := json.Indent(&b, part.text, "", "  "); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(a.Stdout, part.name); err != nil {
			return err
		}
		for line := range strings.Lines(b.String()) {
			if _, err := fmt.Fprintln(a.Stdout, cli.Visible(strings.TrimSuffix(line, "\n"))); err != nil {
				return err
			}
		}
	}
	return nil
}
