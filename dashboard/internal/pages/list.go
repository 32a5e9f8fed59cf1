package pages

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/internal/cmdline"
	"github.com/swarmiji/swarmiji/task"
)

// pages returns all pages, those of the menu in its order.
func pages() []page {
	return []page{
		{"overview", "Overview", "overview", (*Pages).overview},
		{"queues", "Queues", "queues", (*Pages).queues},
		{"tasks", "Tasks", "tasks", (*Pages).tasks},
		{"workflows", "Workflows", "workflows", (*Pages).workflows},
		{"dead", "Dead letters", "dead", (*Pages).dead},
		{"schedules", "Schedules", "schedules", (*Pages).schedules},
		{"jobs", "Jobs", "jobs", (*Pages).jobs},
		{"workers", "Workers", "workers", (*Pages).workers},
		{"events", "Events", "events", (*Pages).events},
		{"settings", "Limits and pauses", "settings", (*Pages).settings},
		{"audit", "Audit log", "audit", (*Pages).audit},
		{"queue", "Queue", "queues", (*Pages).queue},
		{"task", "Task", "tasks", (*Pages).task},
		{"letter", "Dead letter", "dead", (*Pages).letter},
		{"workflow", "Workflow", "workflows", (*Pages).workflow},
		{"schedule", "Schedule", "schedules", (*Pages).schedule},
		{"job", "Job", "jobs", (*Pages).job},
		{"worker", "Worker", "workers", (*Pages).worker},
	}
}

// pageSize is the number of records of a list.
const pageSize = 50

func (p *Pages) queues(r *request) (any, string, error) {
	page, err := p.api.ListQueues(r.Context(), inspect.QueueQuery{Limit: 200, Cursor: r.value("cursor")})
	return of(&page, err), cmdline.Swarmiji("queue", "ls"), err
}

// of returns the data of a page, or nil with an error.
func of[T any](data *T, err error) any {
	if err != nil {
		return nil
	}
	return data
}

type queueData struct {
	inspect.Queue
	Place       broker.Place
	Places      []broker.Place
	Messages    inspect.MessagePage
	MessagesErr error
	Running     inspect.RunningPage
	RunningErr  error
	Limit       *inspect.StoredLimit
	LimitErr    error
	Hour        inspect.RatePage
	HourErr     error
}

func (p *Pages) queue(r *request) (any, string, error) {
	name := r.value("name")
	r.title = "Queue " + name
	q, err := p.api.GetQueue(r.Context(), name)
	if err != nil {
		return nil, cmdline.Swarmiji("queue", "show", name), err
	}
	d := queueData{Queue: q, Place: broker.Place(r.value("place")), Places: broker.Places()}
	if d.Place == "" {
		d.Place = broker.PlaceWaiting
	}
	var reads sync.WaitGroup
	ctx := r.Context()
	reads.Go(func() {
		d.Messages, d.MessagesErr = p.api.ListMessages(ctx, inspect.MessageQuery{Queue: name, Place: d.Place, Limit: pageSize, Cursor: r.value("cursor")})
	})
	reads.Go(func() { d.Running, d.RunningErr = p.api.ListRunning(ctx, inspect.RunningQuery{Queues: []string{name}}) })
	reads.Go(func() { d.Hour, d.HourErr = p.hour(ctx, name) })
	reads.Go(func() {
		var s inspect.Setting
		s, d.LimitErr = p.setting(ctx, name)
		d.Limit = s.Limit
	})
	reads.Wait()
	return &d, cmdline.Swarmiji("queue", "show", name), nil
}

// setting returns the stored operations of a queue.
func (p *Pages) setting(ctx context.Context, queue string) (inspect.Setting, error) {
	q := inspect.SettingsQuery{Limit: inspect.MaxLimit}
	for range maxReads {
		page, err := p.api.ListSettings(ctx, q)
		if err != nil {
			return inspect.Setting{}, err
		}
		for _, s := range page.Settings {
			if s.Queue == queue {
				return s, nil
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return inspect.Setting{}, nil
		}
	}
	return inspect.Setting{}, &inspect.Error{Code: inspect.CodeUnavailable, Text: "There are too many limits and pauses to find those of the queue"}
}

type tasksData struct {
	inspect.TaskPage
	Input   string // the text of the search
	ID      task.ID
	Running *inspect.RunningPage // without a history
}

func (p *Pages) tasks(r *request) (any, string, error) {
	text := strings.TrimSpace(r.value("query"))
	d := tasksData{Input: text}
	query := text
	if text != "" && !strings.ContainsAny(text, ":=~<> ") {
		d.ID, query = task.ID(text), "id:"+quote(text) // an id alone
	}
	page, err := p.api.ListTasks(r.Context(), inspect.TaskQuery{Query: query, Limit: pageSize, Cursor: r.value("cursor")})
	if d.ID != "" && len(page.Tasks) == 1 {
		r.better = link("task", "id", page.Tasks[0].ID)
	}
	d.TaskPage = page
	command := cmdline.Swarmiji("task", "ls")
	if query != "" {
		command = cmdline.Swarmiji("task", "ls", "--", query)
	}
	if missing(err) {
		if running, rerr := p.api.ListRunning(r.Context(), inspect.RunningQuery{}); rerr == nil {
			d.Running, command = &running, cmdline.Swarmiji("tasks", "active")
		}
	}
	return &d, command, err
}

type taskData struct {
	inspect.TaskDetail
	Why    inspect.Explanation
	WhyErr error
	Over   bool // it has ended
}

func (p *Pages) task(r *request) (any, string, error) {
	key := inspect.TaskKey{ID: task.ID(r.value("id")), Name: r.value("name"), Args: true}
	args := []string{"task", "show", string(key.ID)}
	if q := r.value("queue"); q != "" {
		key.Queues = []string{q}
		args = append(args, "--queue", q)
	}
	r.title = "Task " + short(60, string(key.ID))
	var (
		d     taskData
		err   error
		reads sync.WaitGroup
	)
	reads.Go(func() { d.TaskDetail, err = p.api.GetTask(r.Context(), key) })
	reads.Go(func() { d.Why, d.WhyErr = p.api.Why(r.Context(), key) })
	reads.Wait()
	switch d.State {
	case "succeeded", "failed", "revoked", "expired", inspect.StateDead:
		d.Over = true
	}
	return of(&d, err), cmdline.Swarmiji(args...), err
}

type deadData struct {
	Queue   string
	Filter  inspect.DeadFilter
	Queues  []inspect.Queue // with dead letters, if no queue is selected
	More    bool            // there are queues that were not read
	Summary inspect.DeadSummary
	Reasons []failure // the reasons of the summary without their particular parts
	Page    inspect.DeadPage
}

func (p *Pages) dead(r *request) (any, string, error) {
	f := fields{Values: r.values}
	d := deadData{Queue: f.text("queue"), Filter: f.dead()}
	if d.Queue == "" {
		page, err := p.api.ListQueues(r.Context(), inspect.QueueQuery{Limit: inspect.MaxLimit})
		d.More = page.Next != ""
		for _, q := range page.Queues {
			if q.Dead > 0 {
				d.Queues = append(d.Queues, q)
			}
		}
		return of(&d, err), cmdline.Swarmiji("queue", "ls"), err
	}
	r.title = "Dead letters of " + d.Queue
	args := []string{"dead", "list", d.Queue}
	for _, flag := range [][2]string{{"--task", d.Filter.Name}, {"--error", d.Filter.Error}, {"--root", string(d.Filter.Root)}, {"--id", f.text("id")}} {
		if flag[1] != "" {
			args = append(args, flag[0], flag[1])
		}
	}
	var err error
	if d.Summary, err = p.api.SummarizeDead(r.Context(), inspect.DeadCount{DeadFilter: d.Filter}); err == nil {
		d.Reasons = causes(d.Summary.Reasons)
		d.Page, err = p.api.ListDead(r.Context(), inspect.DeadQuery{DeadFilter: d.Filter, Limit: pageSize, Cursor: r.value("cursor")})
	}
	return of(&d, err), cmdline.Swarmiji(args...), err
}

func (p *Pages) letter(r *request) (any, string, error) {
	queue, id := r.value("queue"), r.value("id")
	r.title = "Dead letter " + short(60, id)
	l, err := p.api.GetDead(r.Context(), inspect.DeadKey{Queue: queue, ID: task.ID(id), Args: true})
	return of(&l, err), cmdline.Swarmiji("dead", "show", queue, id, "--args"), err
}

func (p *Pages) schedules(r *request) (any, string, error) {
	page, err := p.api.ListSchedules(r.Context(), inspect.ScheduleQuery{Limit: pageSize, Cursor: r.value("cursor")})
	return of(&page, err), cmdline.Swarmiji("schedule", "ls"), err
}

// nextRuns is the number of next runs of an entry.
const nextRuns = 10

func (p *Pages) schedule(r *request) (any, string, error) {
	id := r.value("id")
	s, err := p.api.GetSchedule(r.Context(), inspect.ScheduleKey{ID: id, Runs: nextRuns, Args: true})
	r.title = "Schedule " + short(60, id)
	if s.Name != "" {
		r.title = "Schedule " + s.Name
	}
	return of(&s, err), cmdline.Swarmiji("schedule", "show", id, "--args"), err
}

type jobsData struct {
	inspect.JobPage
	States []string // that may be selected
}

func (p *Pages) jobs(r *request) (any, string, error) {
	q := inspect.JobQuery{Name: r.value("name"), Queue: r.value("queue"), Limit: pageSize, Cursor: r.value("cursor")}
	args := []string{"job", "ls"}
	if s := r.value("state"); s != "" {
		q.States = []string{s}
		args = append(args, "--state", s)
	}
	for _, flag := range [][2]string{{"--name", q.Name}, {"--queue", q.Queue}} {
		if flag[1] != "" {
			args = append(args, flag[0], flag[1])
		}
	}
	page, err := p.api.ListJobs(r.Context(), q)
	return of(&jobsData{page, jobStates()}, err), cmdline.Swarmiji(args...), err
}

type jobData struct {
	inspect.JobDetail
	Why    inspect.Explanation
	WhyErr error
}

func (p *Pages) job(r *request) (any, string, error) {
	text := r.value("id")
	r.title = "Job " + short(60, text)
	command := cmdline.Swarmiji("job", "show", text)
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, command, &inspect.Error{Code: inspect.CodeInvalid, Text: "The id of a job is a number"}
	}
	var d jobData
	if d.JobDetail, err = p.api.GetJob(r.Context(), id); err != nil {
		return nil, command, err
	}
	d.Why, d.WhyErr = p.api.WhyJob(r.Context(), id)
	return &d, command, nil
}

func (p *Pages) workers(r *request) (any, string, error) {
	page, err := p.api.ListWorkers(r.Context(), inspect.WorkerQuery{Limit: 200, Cursor: r.value("cursor")})
	return of(&page, err), cmdline.Swarmiji("workers"), err
}

type workerData struct {
	inspect.Worker
	Running    inspect.RunningPage
	RunningErr error
	Held       inspect.RunningPage
	HeldErr    error
}

func (p *Pages) worker(r *request) (any, string, error) {
	node := r.value("node")
	r.title = "Worker " + short(80, node)
	command := cmdline.Swarmiji("tasks", "active", "--node", node)
	w, err := p.api.GetWorker(r.Context(), node)
	if err != nil {
		return nil, command, err
	}
	d := workerData{Worker: w}
	if w.Answers {
		d.Running, d.RunningErr = p.api.ListRunning(r.Context(), inspect.RunningQuery{Nodes: []string{node}})
		d.Held, d.HeldErr = p.api.ListRunning(r.Context(), inspect.RunningQuery{Nodes: []string{node}, Held: true})
	}
	return &d, command, nil
}

type eventsData struct {
	Type, Task, Name, Queue, Node string
	Types                         []string
}

func (p *Pages) events(r *request) (any, string, error) {
	d := eventsData{r.value("type"), r.value("task"), r.value("name"), r.value("queue"), r.value("node"), eventTypes()}
	args := []string{"events"}
	for _, flag := range [][2]string{{"--type", d.Type}, {"--task", d.Task}} {
		if flag[1] != "" {
			args = append(args, flag[0], flag[1])
		}
	}
	_, err := p.api.ListEvents(r.Context(), inspect.EventQuery{})
	return of(&d, err), cmdline.Swarmiji(args...), err
}

// eventTypes returns the types of events that the page of events offers.
func eventTypes() []string {
	return []string{
		"task-sent", "task-received", "task-started", "task-succeeded", "task-failed", "task-revoked", "task-awaiting", "task-progress",
		"group-progress", "worker-online", "worker-heartbeat", "worker-offline", inspect.AuditEvent,
	}
}

func (p *Pages) settings(r *request) (any, string, error) {
	page, err := p.api.ListSettings(r.Context(), inspect.SettingsQuery{Limit: pageSize, Cursor: r.value("cursor")})
	return of(&page, err), cmdline.Swarmiji("settings"), err
}

func (p *Pages) audit(r *request) (any, string, error) {
	page, err := p.api.ListAudit(r.Context(), inspect.AuditQuery{Limit: 200})
	return of(&page, err), cmdline.Swarmiji("audit"), err
}
