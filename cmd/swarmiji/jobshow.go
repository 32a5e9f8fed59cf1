package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/jobs"
)

// maxChildren limits the children in the output.
const maxChildren = 100

func (a *app) jobShowCmd(store *jobStore) *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show a job",
		Long: "Show prints all fields of a job, with its data and its answer, which may hold secrets, and the first " + strconv.Itoa(maxChildren) + "\n" +
			"of its children. It changes nothing. Exit status: 3 if the job does not exist.",
		Example: "  swarmiji job show 17\n" +
			"  swarmiji job show 17 -o json | jq .data",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := jobIDs(args)
			if err != nil {
				return err
			}
			return a.withJobs(cmd.Context(), store, false, jobs.Config{}, func(ctx context.Context, s *jobs.Service) error {
				all, err := those(ctx, s, ids)
				if err != nil {
					return err
				}
				o := jobWhole(&all[0])
				if all[0].HasChildren {
					children, err := s.Rows(ctx, jobs.Filter{Parent: ids[0], Limit: maxChildren})
					if err != nil {
						return err
					}
					for i := range children {
						o.Children = append(o.Children, jobRow(&children[i]))
					}
				}
				return a.showJob(&o)
			})
		},
	}
}

// wholeOutput is the output of job show.
type wholeOutput struct {
	jobOutput

	Created     time.Time       `json:"created,omitzero"`
	NextRun     time.Time       `json:"nextRun,omitzero"`
	Scheduled   time.Time       `json:"scheduled,omitzero"`
	LastRun     time.Time       `json:"lastRun,omitzero"`
	Runs        int64           `json:"runs"`
	Token       int64           `json:"token"`
	Attempt     int64           `json:"attempt,omitempty"`
	Repeat      string          `json:"repeat,omitempty"`
	RetryAfter  string          `json:"retryAfter,omitempty"`
	Parent      jobs.ID         `json:"parent,omitempty"`
	Children    []jobOutput     `json:"children,omitempty"`
	SequenceKey string          `json:"sequenceKey,omitempty"`
	UniqueKey   string          `json:"uniqueKey,omitempty"`
	Key         string          `json:"key,omitempty"`
	Mock        bool            `json:"mock,omitempty"`
	Weight      *float64        `json:"weight,omitempty"` // of jobs of a queue; 0 is a weight too
	Windows     string          `json:"windows,omitempty"`
	Timeout     string          `json:"timeout,omitempty"` // such as 24h0m0s
	Deadline    time.Time       `json:"deadline,omitzero"`
	Expires     time.Time       `json:"expires,omitzero"`
	Data        json.RawMessage `json:"data"`
	Answer      json.RawMessage `json:"answer,omitempty"`
}

// jobWhole returns the output for a job.
func jobWhole(j *jobs.Row) wholeOutput {
	o := wholeOutput{
		jobOutput: jobRow(j),
		Created:   utc(j.Created), NextRun: utc(j.NextRun), Scheduled: utc(j.Scheduled), LastRun: utc(j.LastRun), Runs: j.Run, Token: j.Token, Attempt: j.Attempt,
		Repeat: j.Repeat, RetryAfter: j.RetryAfter, Parent: j.Parent, SequenceKey: j.SequenceKey, UniqueKey: j.UniqueKey, Key: j.Key, Mock: j.Mock,
		Windows: strings.TrimPrefix(j.Window, "WINDOWS "), Deadline: utc(j.Deadline), Expires: utc(j.Expires), Data: j.Data, Answer: j.Answer,
	}
	if j.Queue != "" {
		weight := float64(j.Weight) / 1000
		o.Weight = &weight
	}
	if j.Timeout > 0 {
		o.Timeout = j.Timeout.String()
	}
	return o
}

// showJob prints a job: its set fields, then its children, answer and data.
func (a *app) showJob(o *wholeOutput) error {
	t := &table{head: []string{"ID", strconv.FormatInt(int64(o.ID), 10)}}
	t.add("NAME", o.Name)
	t.add("STATE", o.stands())
	t.add("PRIORITY", o.Priority)
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
		if text := cell(f.value); text != "-" {
			t.add(f.name, text)
		}
	}
	if o.Weight != nil {
		t.add("WEIGHT", strconv.FormatFloat(*o.Weight, 'f', -1, 64))
	}
	t.add("RUNS", o.Runs)
	if o.Attempt > 0 {
		t.add("ATTEMPT", o.Attempt)
	}
	if o.Mock {
		t.add("MOCK", "yes")
	}
	if o.Parent != 0 {
		t.add("PARENT", int64(o.Parent))
	}
	for i := range o.Children {
		c := &o.Children[i]
		t.add("CHILD", fmt.Sprintf("%d %s %s", c.ID, c.stands(), c.Name))
	}
	if err := a.show(o, t); err != nil || a.output == "json" {
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
		if _, err := fmt.Fprintln(a.stdout, part.name); err != nil {
			return err
		}
		for line := range strings.Lines(b.String()) {
			if _, err := fmt.Fprintln(a.stdout, visible(strings.TrimSuffix(line, "\n"))); err != nil {
				return err
			}
		}
	}
	return nil
}
