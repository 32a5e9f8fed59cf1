package inspect

import (
	"encoding/json"
	"time"

	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/task"
)

// WorkflowQuery selects a page of workflows.
type WorkflowQuery struct {
	State  State  `json:"state,omitempty"`  // that of WorkflowSummary; "": any
	Limit  int    `json:"limit,omitempty"`  // up to 100; 0: 20
	Cursor string `json:"cursor,omitempty"` // Next of the page before
}

// WorkflowPage is a page of workflows. It may have fewer workflows than the limit, even none, and a
// Next.
type WorkflowPage struct {
	Workflows []WorkflowSummary `json:"workflows"`
	Next      string            `json:"next,omitempty"`
}

// WorkflowSummary describes a workflow by the tasks of it that the history knows.
type WorkflowSummary struct {
	Root task.ID `json:"root"`
	Name string  `json:"name"` // of its last step; if that is not known, of the task that changed last
	// State describes the last step if it has ended. Otherwise it is running or waiting if a task is,
	// and else failed, revoked or waiting.
	State State `json:"state"`
	// Tasks is the number of tasks; the other numbers are parts of it.
	Tasks     int       `json:"tasks"`
	Succeeded int       `json:"succeeded"`
	Failed    int       `json:"failed"`
	Skipped   int       `json:"skipped"` // revoked or expired
	Running   int       `json:"running"`
	Waiting   int       `json:"waiting"`
	More      bool      `json:"more,omitempty"` // there are more tasks than 200, which are counted
	Began     time.Time `json:"began"`
	Changed   time.Time `json:"changed"`
}

// Workflow is the state of a workflow, as package workflow shows it.
type Workflow struct {
	Root task.ID `json:"root"`
	// State is the state of the last step: pending if it has not begun.
	State task.State `json:"state"`
	// Failed is the step that ended the workflow. nil: unknown.
	Failed *WorkflowStep `json:"failed,omitempty"`
	// Steps are the known tasks and groups in the order of their composition. The tasks below a step
	// follow it, with a higher Depth.
	Steps []WorkflowStep `json:"steps"`
	// More reports that there are further steps.
	More bool `json:"more,omitempty"`
}

// WorkflowStep is a task or a group of a workflow.
type WorkflowStep struct {
	ID    task.ID `json:"id"`
	Depth int     `json:"depth"` // 0 for a step, 1 for a member of its group
	// Members counts the members of a group. The fields from Name on are then empty. nil: a task.
	Members *Members `json:"members,omitempty"`

	Name     string     `json:"name,omitempty"`
	State    task.State `json:"state,omitempty"`
	Attempt  int        `json:"attempt,omitempty"`
	Life     int        `json:"life,omitempty"` // how often it was requeued
	Started  time.Time  `json:"started,omitzero"`
	Ended    time.Time  `json:"ended,omitzero"`
	Node     string     `json:"node,omitempty"`
	Error    string     `json:"error,omitempty"`
	Progress *Progress  `json:"progress,omitempty"`
}

// Members counts the members of a group.
type Members struct {
	Done   int `json:"done"`
	Failed int `json:"failed"`
	Total  int `json:"total"` // 0: not known yet
}

// Progress is the last progress that a task has reported.
type Progress struct {
	Done  int64     `json:"done"`
	Total int64     `json:"total,omitempty"` // 0: not known
	Note  string    `json:"note,omitempty"`
	At    time.Time `json:"at,omitzero"`
}

// WorkflowCancel says which workflow is cancelled.
type WorkflowCancel struct {
	Root task.ID `json:"root"`
	// Until is the last moment at which its tasks could start. Default: as in revoke.Revoker.Cancel.
	Until time.Time `json:"until,omitzero"`
}

// WorkflowRetry says which workflow is retried.
type WorkflowRetry struct {
	Root task.ID `json:"root"`
	// Queues are the queues of its steps. Empty: those of the running consumers.
	Queues []string `json:"queues,omitempty"`
}

// ScheduleQuery selects a page of entries.
type ScheduleQuery struct {
	Limit  int    `json:"limit,omitempty"`
	Cursor string `json:"cursor,omitempty"`
}

// SchedulePage is a page of entries.
type SchedulePage struct {
	Schedules []Schedule `json:"schedules"`
	Next      string     `json:"next,omitempty"`
}

// ScheduleKey names an entry.
type ScheduleKey struct {
	// ID is the id, the name, or the beginning of the id, of at least 4 characters, if one entry alone
	// begins with it.
	ID string `json:"id"`
	// Runs is the number of next runs to return. At most [MaxLimit].
	Runs int `json:"runs,omitempty"`
	// Args also returns the arguments, which may hold secrets.
	Args bool `json:"args,omitempty"`
}

// EntryRun says which entry runs now.
type EntryRun struct {
	// ID names the entry as ScheduleKey.ID does.
	ID string `json:"id"`
	// Key makes repeated calls one, as TaskRun.Key does.
	Key string `json:"key,omitempty"`
}

// Schedule is an entry of a schedule.
type Schedule struct {
	ID      string            `json:"id"`
	Name    string            `json:"name,omitempty"`  // "": it has no name
	Group   string            `json:"group,omitempty"` // of entries that are synchronized together
	Task    string            `json:"job,omitempty"`   // the name of the task
	When    string            `json:"when,omitempty"`
	Means   string            `json:"means,omitempty"` // When in English
	Next    time.Time         `json:"next,omitzero"`
	Last    time.Time         `json:"last,omitzero"`
	Paused  bool              `json:"paused"`
	Args    json.RawMessage   `json:"args,omitempty"`
	Misfire string            `json:"misfire,omitempty"`
	Overlap string            `json:"overlap,omitempty"`
	Nonce   string            `json:"nonce,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	// Carries reports that the last run has left state for the next one.
	Carries bool `json:"state,omitempty"`
	// Problem says why the entry cannot be read and does not run. "": it can.
	Problem string `json:"problem,omitempty"`
	// Withheld says why this caller does not get Args. "": it may have them.
	Withheld string `json:"withheld,omitempty"`
	// LastRun is the last run. nil: unknown.
	LastRun *ScheduleRun `json:"last_run,omitempty"`
	// Runs are the next runs, and Ran the last ones, the newest first. GetSchedule alone returns them.
	Runs []time.Time   `json:"runs,omitempty"`
	Ran  []ScheduleRun `json:"ran,omitempty"`
}

// ScheduleRun is one of the last runs of an entry.
type ScheduleRun struct {
	Due  time.Time `json:"due"`
	Task task.ID   `json:"task"`
	// State is the state of the task in the result store of the schedule. "": it is not known.
	State task.State `json:"state,omitempty"`
	Error string     `json:"error,omitempty"`
}

// JobQuery selects jobs. A job must match each field that is set.
type JobQuery struct {
	Name   string   `json:"name,omitempty"` // a pattern: * ? [a-z]
	Queue  string   `json:"queue,omitempty"`
	States []string `json:"states,omitempty"`
	Phase  string   `json:"phase,omitempty"`
	// Task is the id of a task with conditions: its job alone matches.
	Task   task.ID `json:"task,omitempty"`
	Limit  int     `json:"limit,omitempty"`
	Cursor string  `json:"cursor,omitempty"`
}

// JobPage is a page of jobs. A page may be empty although Next is set: a call reads a bounded
// number of records.
type JobPage struct {
	Jobs []Job  `json:"jobs"`
	Next string `json:"next,omitempty"`
}

// Job is a job in a list.
type Job struct {
	ID       int64     `json:"id"`
	Name     string    `json:"name"`
	State    string    `json:"state"`
	Phase    string    `json:"phase,omitempty"`
	Queue    string    `json:"queue,omitempty"`
	Priority int       `json:"priority"`
	Due      time.Time `json:"due,omitzero"` // when it changes by itself
	Changed  time.Time `json:"changed,omitzero"`
	Reason   string    `json:"reason,omitempty"`
}

// JobDetail is everything about a job.
type JobDetail struct {
	Job
	Created     time.Time       `json:"created,omitzero"`
	NextRun     time.Time       `json:"nextRun,omitzero"`
	Scheduled   time.Time       `json:"scheduled,omitzero"`
	LastRun     time.Time       `json:"lastRun,omitzero"`
	Runs        int64           `json:"runs"`
	Token       int64           `json:"token"`
	Attempt     int64           `json:"attempt,omitempty"`
	Repeat      string          `json:"repeat,omitempty"`
	RetryAfter  string          `json:"retryAfter,omitempty"`
	Parent      int64           `json:"parent,omitempty"`
	Children    []Job           `json:"children,omitempty"` // at most [DefaultLimit]
	SequenceKey string          `json:"sequenceKey,omitempty"`
	UniqueKey   string          `json:"uniqueKey,omitempty"`
	Key         string          `json:"key,omitempty"`
	Mock        bool            `json:"mock,omitempty"`
	Weight      *float64        `json:"weight,omitempty"` // of jobs of a queue
	Windows     string          `json:"windows,omitempty"`
	Timeout     Duration        `json:"timeout_ms,omitempty"`
	Deadline    time.Time       `json:"deadline,omitzero"`
	Expires     time.Time       `json:"expires,omitzero"`
	Data        json.RawMessage `json:"data"`
	Answer      json.RawMessage `json:"answer,omitempty"`
	// Withheld says why this caller gets neither Data nor Answer. "": it may have them.
	Withheld string `json:"withheld,omitempty"`
}

// JobChange says which jobs are changed.
type JobChange struct {
	IDs []int64 `json:"ids"` // at most [MaxBulk]
	// Force changes jobs that are refused otherwise, see RetryJobs and RemoveJobs.
	Force bool `json:"force,omitempty"`
}

// WorkerQuery selects consumers and producers.
type WorkerQuery struct {
	Limit  int    `json:"limit,omitempty"`
	Cursor string `json:"cursor,omitempty"`
}

// WorkerPage is a page of consumers and producers.
type WorkerPage struct {
	Workers []Worker `json:"workers"`
	Next    string   `json:"next,omitempty"`
}

// Worker is a consumer or a producer.
type Worker struct {
	Node   string   `json:"node"`
	Role   string   `json:"role,omitempty"`
	Host   string   `json:"host,omitempty"`
	Queues []string `json:"queues,omitempty"`
	// Offline reports that it has ended, or been silent for two minutes. If other nodes are heard, a
	// consumer that neither answers nor sends heartbeats is offline after three heartbeats and at
	// least ten seconds.
	Offline bool `json:"offline,omitempty"`
	// Answers reports that it answers commands, and Stopping that it takes no more tasks and ends when
	// its running tasks have ended.
	Answers   bool      `json:"answers"`
	Stopping  bool      `json:"stopping,omitempty"`
	Active    int       `json:"active"`             // tasks that run
	Reserved  int       `json:"reserved,omitempty"` // tasks that have not started
	Stuck     int       `json:"stuck,omitempty"`    // tasks beyond their time limit
	Processed int64     `json:"processed"`
	Load      *float64  `json:"load,omitempty"` // 0 to 1; nil: unknown
	Memory    *float64  `json:"mem,omitempty"`
	Version   string    `json:"version,omitempty"`
	Heartbeat time.Time `json:"heartbeat,omitzero"`
	// Serves describes its queues, and Totals counts its attempts since its start. Only consumers that
	// answer have them.
	Serves []ServedQueue     `json:"serves,omitempty"`
	Totals map[string]uint64 `json:"totals,omitempty"`
}

// ServedQueue is a queue as one consumer serves it.
type ServedQueue struct {
	Name     string `json:"name"`
	Workers  int    `json:"workers"`
	Prefetch int    `json:"prefetch"` // negative: no limit
	Active   int    `json:"active"`
	Reserved int    `json:"reserved"`
	Paused   bool   `json:"paused"`
	Stuck    int    `json:"stuck,omitempty"`
}

// Target selects consumers. A consumer must match both fields.
type Target struct {
	Nodes  []string `json:"nodes,omitempty"`  // empty: all consumers
	Queues []string `json:"queues,omitempty"` // empty: all their queues
}

// Scale sets the number of workers of a queue.
type Scale struct {
	Queue   string   `json:"queue"`
	Workers int      `json:"workers"`
	Nodes   []string `json:"nodes,omitempty"`
}

// RateLimit sets how often tasks of a name start. Rate is such as 10/s, "" for no limit or
// control.RateDefault.
type RateLimit struct {
	Target
	Name string `json:"name"`
	Rate string `json:"rate"`
}

// Stop says which consumers are stopped. One of Nodes, Queues and All must be set.
type Stop struct {
	Target
	All  bool `json:"all,omitempty"`
	Kill bool `json:"kill,omitempty"` // cancel running tasks instead of waiting for them
}

// EventQuery selects events.
type EventQuery struct {
	Cursor string   `json:"cursor,omitempty"`
	Limit  int      `json:"limit,omitempty"`
	Wait   Duration `json:"wait_ms,omitempty"` // at most [MaxWait]
	Types  []string `json:"types,omitempty"`   // empty: all
	Task   task.ID  `json:"task,omitempty"`
	Name   string   `json:"name,omitempty"`
	Queue  string   `json:"queue,omitempty"`
	Node   string   `json:"node,omitempty"`
}

// MaxWait is the longest wait of a query for events.
const MaxWait = Duration(30 * time.Second)

// EventPage is a page of events.
type EventPage struct {
	Events []Event `json:"events"`
	// Next is the cursor of the events after these. It is always set.
	Next string `json:"next"`
	// Lost reports that events after the query's cursor are no longer known.
	Lost bool `json:"lost,omitempty"`
}

// Event is an event in a list.
type Event struct {
	Seq  uint64    `json:"seq"` // grows with each event
	At   time.Time `json:"at"`
	Type string    `json:"type"`
	Node string    `json:"node,omitempty"`
	Task task.ID   `json:"task,omitempty"`
	// Name and Queue are those of the task. Only the events of its submission and its receipt tell
	// them. Later events have them if fewer than 10,000 others were between two events of the task.
	Name   string   `json:"name,omitempty"`
	Queue  string   `json:"queue,omitempty"`
	Args   string   `json:"args,omitempty"`
	Result string   `json:"result,omitempty"`
	Error  string   `json:"error,omitempty"`
	Retry  bool     `json:"retry,omitempty"`
	Run    Duration `json:"run_ms,omitempty"`
	// Fields are the further fields of the event.
	Fields map[string]any `json:"fields,omitempty"`
}

// SettingsQuery selects settings.
type SettingsQuery struct {
	Limit  int    `json:"limit,omitempty"`
	Cursor string `json:"cursor,omitempty"`
}

// SettingsPage is a page of settings, those of queues first.
type SettingsPage struct {
	Settings []Setting `json:"settings"`
	Next     string    `json:"next,omitempty"`
}

// Setting holds the stored operations of a queue or of the tasks of a name. One of Queue and Name
// is set, and at least one of the others.
type Setting struct {
	Queue   string       `json:"queue,omitempty"`
	Name    string       `json:"name,omitempty"`
	Pause   *StoredPause `json:"pause,omitempty"`
	Limit   *StoredLimit `json:"limit,omitempty"`
	Breaker *Breaker     `json:"breaker,omitempty"`
	// Bounds are those of a fair queue, see settings.BoundQueue.
	Bounds *settings.Bounds `json:"bounds,omitempty"`
}

// StoredLimit describes a stored limit.
type StoredLimit struct {
	Rate        string    `json:"rate,omitempty"`        // such as 10/s; "": no limit
	Concurrency int       `json:"concurrency,omitempty"` // 0: no limit
	By          string    `json:"by,omitempty"`
	Since       time.Time `json:"since,omitzero"`
}

// Breaker describes a breaker that has tripped: too many tasks have failed.
type Breaker struct {
	Until  time.Time `json:"until"` // then one task at a time is let through
	Trips  int       `json:"trips"`
	Node   string    `json:"node,omitempty"` // the consumer that has seen the failures
	Reason string    `json:"reason,omitempty"`
}

// TaskPause says which tasks are paused, and for how long.
type TaskPause struct {
	Name   string    `json:"name"`
	Until  time.Time `json:"until,omitzero"` // zero: until they are resumed
	Reason string    `json:"reason,omitempty"`
}

// Limit limits the tasks of a queue or of a name. One of Queue and Name must be set.
type Limit struct {
	Queue       string `json:"queue,omitempty"`
	Name        string `json:"name,omitempty"`
	Rate        string `json:"rate,omitempty"`
	Concurrency int    `json:"concurrency,omitempty"`
	// Bounds change the stored bounds of a fair queue in place of its limit. Without any part they
	// remove the stored bounds, see settings.BoundQueue.
	Bounds *settings.Bounds `json:"bounds,omitempty"`
}

// Serve says which consumers serve a queue.
type Serve struct {
	// Group is the group of the consumers, see consumer.Config.Group.
	Group string `json:"group"`
	Queue string `json:"queue"`
	// Workers is the number of tasks that run at once in each consumer. 0: its own default.
	Workers int `json:"workers,omitempty"`
	// Leave makes the consumers leave the queue. Running tasks continue.
	Leave bool `json:"leave,omitempty"`
}

// AuditQuery selects a page of the audit log.
type AuditQuery struct {
	Limit int `json:"limit,omitempty"`
}

// AuditPage holds the newest entries of the audit log, the newest first.
type AuditPage struct {
	Entries []AuditEntry `json:"entries"`
}

// AuditEntry is a change that was tried.
type AuditEntry struct {
	At     time.Time `json:"at"`
	Who    string    `json:"who"`
	Node   string    `json:"node,omitempty"` // the process through which it was made
	Do     Do        `json:"do"`
	Target string    `json:"target,omitempty"`
	Detail string    `json:"detail,omitempty"` // the parameters
	Done   int       `json:"done"`             // the number of changed records
	Error  string    `json:"error,omitempty"`
}

// CheckQuery selects the queues to check.
type CheckQuery struct {
	// Queues are checked beside those of the consumers and "default". They must exist.
	Queues []string `json:"queues,omitempty"`
}

// Report is the result of a check of a set-up.
type Report struct {
	Findings []Finding `json:"findings"`
}

// Finding is the result of one check.
type Finding struct {
	Check   string  `json:"check"`
	Outcome Outcome `json:"outcome"`
	Detail  string  `json:"detail"`
	// Code is the class of the error of a failed check.
	Code Code `json:"code,omitempty"`
}

// Outcome is the outcome of a check.
type Outcome string

// The outcomes.
const (
	Fine   Outcome = "ok"
	Warn   Outcome = "warning"
	Failed Outcome = "FAILED"
)
