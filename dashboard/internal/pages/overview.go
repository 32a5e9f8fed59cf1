package pages

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/internal/cmdline"
)

// overviewData holds the data of the overview. Each part has its error.
type overviewData struct {
	Groups    []failure
	More      bool // there are further groups
	GroupsErr error

	Stuck    []trouble
	Checked  int // checks that were fine
	StuckErr error

	Workers     []busyWorker // the first consumers
	MoreWorkers int          // consumers that are not shown
	Producers   int
	WorkersErr  error
	RunningErr  error

	Queues     []inspect.Queue
	MoreQueues int  // queues that are not shown
	Beyond     bool // there are further queues, which were not read
	Notes      []string
	Rates      bool // a history is given
	QueuesErr  error

	Hour    inspect.RatePage
	HourErr error
}

// AllWorkers returns the number of consumers.
func (d *overviewData) AllWorkers() int { return len(d.Workers) + d.MoreWorkers }

// AllQueues returns the number of queues that were read.
func (d *overviewData) AllQueues() int { return len(d.Queues) + d.MoreQueues }

// trouble is something that is stuck. At most one help is set.
type trouble struct {
	Outcome inspect.Outcome
	Check   string
	Text    string
	Resume  string // a paused queue
	Dead    string // a queue with dead letters
	Queue   string // to look at
}

// busyWorker is a worker with the tasks that it runs.
type busyWorker struct {
	inspect.Worker
	Runs []inspect.RunningTask
	More int // tasks that are not shown
}

// maxRuns limits the tasks of a worker on the overview.
const maxRuns = 5

func (p *Pages) overview(r *request) (any, string, error) {
	var (
		d       overviewData
		queues  inspect.QueuePage
		report  inspect.Report
		workers inspect.WorkerPage
		running inspect.RunningPage
		reads   sync.WaitGroup
	)
	ctx := r.Context()
	reads.Go(func() { d.Groups, d.More, d.GroupsErr = p.api.groups(ctx) })
	reads.Go(func() { queues, d.QueuesErr = p.api.ListQueues(ctx, inspect.QueueQuery{Limit: inspect.MaxLimit}) })
	reads.Go(func() { report, d.StuckErr = p.api.Check(ctx, inspect.CheckQuery{}) })
	reads.Go(func() {
		workers, d.WorkersErr = p.api.ListWorkers(ctx, inspect.WorkerQuery{Limit: inspect.MaxLimit})
		if nodes := busyNodes(workers.Workers); len(nodes) > 0 {
			if running, d.RunningErr = p.api.ListRunning(ctx, inspect.RunningQuery{Nodes: nodes}); missing(d.RunningErr) {
				d.RunningErr = nil // consumers report their numbers, and no commands are sent
			}
		}
	})
	reads.Go(func() { d.Hour, d.HourErr = p.hour(ctx, "") })
	reads.Wait()
	d.Queues, d.MoreQueues = fullest(queues.Queues)
	d.Notes, d.Beyond = queues.Notes, queues.Next != ""
	d.Rates = slices.ContainsFunc(d.Queues, func(q inspect.Queue) bool { return q.Rates != nil })
	d.Stuck, d.Checked = troubles(report.Findings, queues.Queues)
	d.Workers, d.Producers = busy(workers.Workers, running.Tasks)
	d.MoreWorkers = max(0, len(d.Workers)-pageSize)
	d.Workers = d.Workers[:len(d.Workers)-d.MoreWorkers]
	return &d, cmdline.Swarmiji("doctor"), nil
}

// hour returns the rates of the last hour, of a queue or of all. Without a history it returns none.
func (p *Pages) hour(ctx context.Context, queue string) (inspect.RatePage, error) {
	page, err := p.api.ListRates(ctx, inspect.RateQuery{Queue: queue})
	if missing(err) {
		return inspect.RatePage{}, nil
	}
	return page, err
}

// troubles returns the problems, failed checks first, and the number of checks that were fine.
func troubles(findings []inspect.Finding, queues []inspect.Queue) (all []trouble, fine int) {
	resumes := make(map[string]bool)
	for _, f := range findings {
		if f.Outcome == inspect.Fine {
			fine++
			continue
		}
		t := trouble{Outcome: f.Outcome, Check: f.Check, Text: f.Detail}
		if name, ok := strings.CutPrefix(f.Check, "queue "); ok {
			i := slices.IndexFunc(queues, func(q inspect.Queue) bool { return q.Name == name })
			switch {
			case i < 0:
			case strings.Contains(f.Detail, "is paused") && queues[i].Paused > 0:
				t.Resume, resumes[name] = name, true
			case strings.Contains(f.Detail, "dead letters") && queues[i].Dead > 0:
				t.Dead = name
			default:
				t.Queue = name
			}
		}
		all = append(all, t)
	}
	for i := range queues {
		if q := &queues[i]; q.Pause != nil && !resumes[q.Name] {
			all = append(all, trouble{Outcome: inspect.Warn, Check: "queue " + q.Name, Text: paused(q), Resume: q.Name})
		}
	}
	slices.SortStableFunc(all, func(a, b trouble) int { return rank(a.Outcome) - rank(b.Outcome) })
	return all, fine
}

// paused returns the sentence about a stored pause, after the name of the queue.
func paused(q *inspect.Queue) string {
	text := "is paused, and no consumer takes its tasks"
	if q.Pause.By != "" {
		text += "; by " + q.Pause.By
	}
	if q.Pause.Reason != "" {
		text += ": " + q.Pause.Reason
	}
	return text
}

func rank(o inspect.Outcome) int {
	if o == inspect.Failed {
		return 0
	}
	return 1
}

// busy returns the consumers with their tasks, those that run most first, and the number of
// producers.
func busy(workers []inspect.Worker, running []inspect.RunningTask) (all []busyWorker, producers int) {
	for _, w := range workers {
		if w.Role == "producer" {
			producers++
			continue
		}
		b := busyWorker{Worker: w}
		for _, t := range running {
			switch {
			case t.Node != w.Node:
			case len(b.Runs) < maxRuns:
				b.Runs = append(b.Runs, t)
			default:
				b.More++
			}
		}
		all = append(all, b)
	}
	slices.SortStableFunc(all, func(a, b busyWorker) int { return b.Active - a.Active })
	return all, producers
}

// fullest returns all queues, or of more than pageSize those with the most waiting tasks, then
// those with the most dead letters. more is the number of the others.
func fullest(all []inspect.Queue) (shown []inspect.Queue, more int) {
	if len(all) <= pageSize {
		return all, 0
	}
	shown = slices.Clone(all) // other pages have the same answer
	slices.SortStableFunc(shown, func(a, b inspect.Queue) int {
		return cmp.Or(cmp.Compare(b.Ready, a.Ready), cmp.Compare(b.Dead, a.Dead))
	})
	return shown[:pageSize], len(all) - pageSize
}

// maxBusy limits the consumers that the overview asks for their tasks.
const maxBusy = 50

// busyNodes returns the nodes of the consumers that run most tasks. The others are not asked for
// their tasks: each answer costs its consumer some time.
func busyNodes(workers []inspect.Worker) (nodes []string) {
	workers = slices.Clone(workers) // other pages have the same answer
	slices.SortStableFunc(workers, func(a, b inspect.Worker) int { return b.Active - a.Active })
	for i := range workers {
		if w := &workers[i]; w.Active > 0 && w.Answers && len(nodes) < maxBusy {
			nodes = append(nodes, w.Node)
		}
	}
	return nodes
}
