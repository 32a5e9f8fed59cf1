package jobcmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/internal/glob"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

const (
	// maxList limits the jobs in one output. jobPage limits the jobs in one read, because each may
	// have a megabyte of data.
	maxList = 10_000
	jobPage = 100
)

// listOptions holds the flags of job ls.
type listOptions struct {
	name, queue, phase, order string
	task                      string
	states                    []string
	limit                     int
	after                     int64
}

func (a *app) jobListCmd(store *cli.JobStore) *cobra.Command {
	var o listOptions
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List jobs",
		Long: "Ls prints the jobs that match all flags, in the order of their ids, without their data, which may hold\n" +
			"secrets. It prints at most --limit jobs. If there are more, a line on the standard error says with which\n" +
			"--after to continue. It changes nothing; no matching jobs are not an error.\n\n" +
			"DUE is when the job changes by itself: it may start, its lease ends (the time that its worker has), or the\n" +
			"wait for its answer ends. --order newest, due and priority read all jobs, which may take long.",
		Example: "  swarmiji job ls --state FAILED,CANCELLED --order newest\n" +
			"  swarmiji job ls --name 'mail/*' --queue mails --phase AWAITING -o json\n" +
			"  swarmiji job ls --name mail.send --task welcome-ada",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.jobList(cmd.Context(), store, &o) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.name, "name", "", "`pattern` of the names: * is any text, ? one character, [a-z] one of these characters; default: all")
	f.StringSliceVar(&o.states, "state", nil, "`state` of the jobs, such as QUEUED or FAILED; may be repeated; default: all")
	f.StringVar(&o.queue, "queue", "", "`name` of the queue of the jobs; default: all")
	f.StringVar(&o.phase, "phase", "", "`phase` of the current or last attempt: AWAITING or ANSWERED; default: any")
	f.StringVar(&o.task, "task", "", "`id` of a task with conditions: only its job, which swarmiji job why explains; together with the exact --name it is found fast; default: any")
	f.StringVar(&o.order, "order", "id", "what comes first: `id`, newest, due (the soonest; jobs without such a time last) or priority (the lowest number)")
	f.IntVarP(&o.limit, "limit", "n", 100, fmt.Sprintf("maximum number of jobs, 1 to %d", maxList))
	f.Int64Var(&o.after, "after", 0, "only jobs with a higher id than this `id`")
	return cmd
}

func (a *app) jobList(ctx context.Context, store *cli.JobStore, o *listOptions) error {
	l, err := o.lister()
	if err != nil {
		return err
	}
	return a.WithJobs(ctx, store, false, jobs.Config{}, func(ctx context.Context, s *jobs.Service) error {
		if err := l.read(ctx, s); err != nil {
			return err
		}
		t := &cli.Table{Head: []string{"ID", "NAME", "STATE", "QUEUE", "PRIORITY", "DUE", "CHANGED", "REASON"}}
		for i := range l.found {
			j := &l.found[i]
			t.Add(j.ID, j.Name, stands(string(j.State), string(j.Phase)), j.Queue, j.Priority, j.Due, j.Changed, cli.Cut(j.Reason))
		}
		if err := a.Show(l.found, t); err != nil {
			return err
		}
		if l.more && o.order == "id" {
			_, err = fmt.Fprintf(a.Stderr, "there are more: --after %d\n", l.found[len(l.found)-1].ID)
		} else if l.more {
			_, err = fmt.Fprintf(a.Stderr, "there are more than --limit %d\n", o.limit)
		}
		return err
	})
}

// lister reads jobs page by page and keeps only those to show.
type lister struct {
	q       jobs.Filter
	name    *glob.Pattern // nil: the query selects the name
	phase   jobs.Phase
	key     string                   // "": any key
	compare func(a, b jobOutput) int // nil: order by id
	limit   int

	found []jobOutput // never nil
	more  bool        // there are further jobs
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// lister checks the flags and returns a lister for them.
func (o *listOptions) lister() (*lister, error) {
	l := &lister{q: jobs.Filter{Limit: jobPage, Queue: o.queue, After: jobs.ID(o.after)}, phase: jobs.Phase(strings.ToUpper(o.phase)), limit: o.limit, found: []jobOutput{}}
	if o.limit < 1 || o.limit > maxList || o.after < 0 {
		return nil, fmt.Errorf("%w: --limit is %d, want 1 to %d; --after is %d", cli.ErrUsage, o.limit, maxList, o.after)
	}
	if l.phase != "" && l.phase != jobs.Awaiting && l.phase != jobs.Answered {
		return nil, fmt.Errorf("%w: --phase is %q, want AWAITING or ANSWERED", cli.ErrUsage, cli.Visible(o.phase))
	}
	for _, text := range o.states {
		state := jobs.State(strings.ToUpper(text))
		if !slices.Contains(jobstore.States(), state) {
			return nil, fmt.Errorf("%w: --state is %q, want some of %v", cli.ErrUsage, cli.Visible(text), jobstore.States())
		}
		l.q.States = append(l.q.States, state)
	}
	if o.name != "" {
		if p := glob.Compile(o.name); p.Never() {
			return nil, fmt.Errorf("%w: --name: a [ is not closed in %q", cli.ErrUsage, cli.Visible(o.name))
		} else if exact, ok := p.Exact(); ok && o.queue == "" {
			l.q.Name = exact
		} else {
			l.name = &p
		}
	}
	if o.task != "" {
		id := task.ID(o.task)
		if err := id.Check(); err != nil {
			return nil, fmt.Errorf("%w: --task: %w", cli.ErrUsage, err)
		}
		if l.key = jobs.KeyOfTask(id); l.q.Name != "" {
			l.q.Key = l.key
		}
	}
	switch o.order {
	case "id":
	case "newest":
		l.compare = func(a, b jobOutput) int { return cmp.Compare(b.ID, a.ID) }
	case "due":
		l.compare = func(a, b jobOutput) int {
			return cmp.Or(cmp.Compare(btoi(a.Due.IsZero()), btoi(b.Due.IsZero())), a.Due.Compare(b.Due), cmp.Compare(a.ID, b.ID))
		}
	case "priority":
		l.compare = func(a, b jobOutput) int { return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.ID, b.ID)) }
	default:
		return nil, fmt.Errorf("%w: --order is %q, want id, newest, due or priority", cli.ErrUsage, cli.Visible(o.order))
	}
	return l, nil
}

// read reads jobs until the limit is reached or all are read.
func (l *lister) read(ctx context.Context, s *jobs.Service) error {
	for {
		page, err := s.Rows(ctx, l.q)
		if err != nil {
			return err
		}
		for i := range page {
			if l.wants(&page[i]) && !l.take(jobRow(&page[i])) {
				return nil
			}
		}
		if len(page) < jobPage {
			l.cut(0)
			return nil
		}
		l.q.After = page[len(page)-1].ID
	}
}

// wants reports whether a job of the query matches the other flags.
func (l *lister) wants(j *jobs.Row) bool {
	return (l.name == nil || l.name.Match(j.Name)) && (l.phase == "" || l.phase == j.Phase) && (l.key == "" || l.key == j.Key)
}

// take adds a job. It reports whether further jobs are needed.
func (l *lister) take(j jobOutput) bool {
	if l.compare == nil && len(l.found) == l.limit {
		l.more = true
		return false
	}
	if l.found = append(l.found, j); l.compare != nil {
		l.cut(l.limit) // twice the limit is kept, so that sorting is rare
	}
	return true
}

// cut keeps the first limit jobs if there are more than limit+slack.
func (l *lister) cut(slack int) {
	if l.compare == nil || slack > 0 && len(l.found) < l.limit+slack {
		return
	}
	slices.SortFunc(l.found, l.compare)
	if len(l.found) > l.limit {
		l.found, l.more = slices.Clip(l.found[:l.limit:l.limit]), true
	}
}
