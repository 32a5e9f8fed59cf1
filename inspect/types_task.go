package inspect

import (
	"encoding/json"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// State is the state of a task as an [API] shows it: one of task.State, or one of these.
type State string

// States beyond those of task.State.
const (
	StateWaiting State = "waiting" // in its queue, for a consumer
	StateDelayed State = "delayed" // in its queue, for its time
	StateHeld    State = "held"    // fetched by a consumer and not started
	StateRunning State = "running" // a worker runs it
	StateDead    State = "dead"    // it has failed for good and is a dead letter
	StateUnknown State = "unknown" // no part knows it
)

// TaskKey names a task.
type TaskKey struct {
	ID task.ID `json:"id"`
	// Queues are the queues in which its message is searched. Empty: those of the running consumers.
	Queues []string `json:"queues,omitempty"`
	// Name is the name of the task. It is needed only to find the job of a task with conditions that
	// has not run yet.
	Name string `json:"name,omitempty"`
	// Args makes GetTask return the original arguments too, which may hold secrets.
	Args bool `json:"args,omitempty"`
}

// TaskQuery selects tasks of the history.
type TaskQuery struct {
	// Query is a text such as "state:failed name:mail.* since:1h", see history.Parse. "": all.
	Query  string `json:"query,omitempty"`
	Limit  int    `json:"limit,omitempty"`
	Cursor string `json:"cursor,omitempty"`
}

// TaskPage is a page of tasks.
type TaskPage struct {
	Tasks []Task `json:"tasks"`
	Next  string `json:"next,omitempty"`
	// Complete is false if the page ends because it has examined many records before it found enough.
	// Next continues.
	Complete bool `json:"complete"`
	// Query is the query with the times for which it was answered.
	Query string `json:"query"`
	// Gaps are times of which events are missing.
	Gaps []Gap `json:"gaps,omitempty"`
}

// Gap is a time of which events are missing.
type Gap struct {
	Since   time.Time `json:"since"`
	Before  time.Time `json:"before"`
	Dropped int64     `json:"dropped,omitempty"` // 0: not known
}

// Task is a task in a list.
type Task struct {
	ID       task.ID   `json:"id"`
	Name     string    `json:"name,omitempty"`
	Queue    string    `json:"queue,omitempty"`
	State    State     `json:"state"`
	Attempt  int       `json:"attempt,omitempty"` // the current or last attempt, from 1
	Node     string    `json:"node,omitempty"`    // the consumer that ran it last
	Sent     time.Time `json:"sent,omitzero"`
	Started  time.Time `json:"started,omitzero"` // of the last attempt
	Ended    time.Time `json:"ended,omitzero"`   // of the last attempt
	Due      time.Time `json:"due,omitzero"`     // earliest start of a delayed task
	Changed  time.Time `json:"changed,omitzero"` // last change of the history's record
	Wait     Duration  `json:"wait_ms,omitempty"`
	Run      Duration  `json:"run_ms,omitempty"`
	Parent   task.ID   `json:"parent,omitempty"`
	Root     task.ID   `json:"root,omitempty"`
	Group    task.ID   `json:"group,omitempty"`
	Error    string    `json:"error,omitempty"`
	Class    string    `json:"class,omitempty"` // the type of the error
	Priority int       `json:"priority,omitempty"`
	Key      string    `json:"key,omitempty"`    // the fairness key
	Weight   int       `json:"weight,omitempty"` // of the key; 0 means 1
}

// TaskDetail is everything that is known of a task.
type TaskDetail struct {
	Task
	Headers     map[string]string `json:"headers,omitempty"`
	Correlation string            `json:"correlation,omitempty"`
	// Args and Result are previews with secrets hidden. "": unknown.
	Args   string `json:"args,omitempty"`
	Result string `json:"result,omitempty"`
	Stack  string `json:"stack,omitempty"`
	// NotAgain says why RunTask refuses the task. "": it does not.
	NotAgain string `json:"not_again,omitempty"`
	// Original are the arguments in its message as JSON, if TaskKey.Args asks for them. nil: it has
	// no arguments, or RunTask takes no edited arguments.
	Original json.RawMessage `json:"original,omitempty"`
	// Withheld says why this caller does not get Original. "": it may have them.
	Withheld string `json:"withheld,omitempty"`
	// Progress is the last progress that the task has reported. nil: unknown.
	Progress *Progress `json:"progress,omitempty"`
	// Timeline are the events of the task, the oldest first, if a history is given.
	Timeline []Step `json:"timeline,omitempty"`
	// Dead is its dead letter.
	Dead *DeadLetter `json:"dead_letter,omitempty"`
	// Found are the parts that know the task: record, history, consumer, queue, dead, job.
	Found []string `json:"found"`
	// Notes name the parts that could not be asked.
	Notes []string `json:"notes,omitempty"`
}

// Step is one event in the life of a task.
type Step struct {
	At      time.Time `json:"at"`
	Event   string    `json:"event"`
	Node    string    `json:"node,omitempty"`
	Attempt int       `json:"attempt,omitempty"`
	Life    int       `json:"life,omitempty"`
	Wait    Duration  `json:"wait_ms,omitempty"`
	Run     Duration  `json:"run_ms,omitempty"`
	Text    string    `json:"text,omitempty"` // the error, the progress
}

// Explanation explains where a task or job is and why it waits.
type Explanation struct {
	ID    string `json:"id"` // of the task or job
	Name  string `json:"name,omitempty"`
	Queue string `json:"queue,omitempty"`
	State string `json:"state"`
	// At is the time of the answer, of a job by the clock of its store.
	At time.Time `json:"at"`
	// Reasons holds at least one reason, the most important one first.
	Reasons []Reason `json:"reasons"`
	// Notes name the parts that could not be asked.
	Notes []string `json:"notes,omitempty"`
}

// Reason is one reason of an [Explanation].
type Reason struct {
	Kind Kind   `json:"kind"`
	Text string `json:"text"` // an English sentence
	// At is the time at which the reason ends or began, as Kind says. Zero: unknown.
	At time.Time `json:"at,omitzero"`

	Queue  string  `json:"queue,omitempty"`
	Node   string  `json:"node,omitempty"`
	Task   task.ID `json:"task,omitempty"` // another task that the reason names
	Job    int64   `json:"job,omitempty"`  // another job that the reason names
	Key    string  `json:"key,omitempty"`  // of a limit, sequence, answer or burst, or for fairness
	Holder string  `json:"holder,omitempty"`

	// Help is the one action that helps. nil: time helps, or nothing is needed.
	Help *Action `json:"help,omitempty"`
}

// Kind is the kind of a [Reason].
type Kind string

// The kinds. Jobs have the kinds of jobs.WhyKind.
const (
	KindRuns       Kind = "runs"        // a worker runs it since At
	KindHeld       Kind = "held"        // a consumer has fetched it at At, and it has not started
	KindLost       Kind = "lost"        // the consumer that ran it is gone
	KindReady      Kind = "ready"       // it waits for a free worker
	KindBusy       Kind = "busy"        // all workers of its queue are busy
	KindPaused     Kind = "paused"      // its queue, or the tasks of its name, are paused until At
	KindNoConsumer Kind = "no consumer" // no consumer of its queue runs
	KindNoHandler  Kind = "no handler"  // no consumer of its queue knows its name
	KindDelayed    Kind = "delayed"     // it is due at At, or when Task has ended
	KindRetry      Kind = "retry"       // its last attempt failed, and the next one begins at At
	KindLimit      Kind = "limit"       // limit Key is used up, for example by Holder
	KindAnswer     Kind = "answer"      // it waits for an answer from outside until At
	KindRequeued   Kind = "requeued"    // its dead letter was requeued
	KindDead       Kind = "dead"        // it has failed for good at At, and is a dead letter
	KindOver       Kind = "over"        // it is over since At
	KindUnknown    Kind = "unknown"     // no part knows it
)

// RunningQuery selects tasks that consumers have.
type RunningQuery struct {
	Nodes  []string `json:"nodes,omitempty"`  // empty: all consumers
	Queues []string `json:"queues,omitempty"` // empty: all queues
	// Held selects the tasks that were fetched and have not started, instead of those that run.
	Held bool `json:"held,omitempty"`
}

// RunningPage holds the tasks of consumers.
type RunningPage struct {
	Tasks []RunningTask `json:"tasks"`
	// Nodes are the consumers that answered.
	Nodes []string `json:"nodes"`
	// More counts the tasks that were left out.
	More int `json:"more,omitempty"`
}

// RunningTask is a task in a consumer.
type RunningTask struct {
	Node    string    `json:"node"`
	ID      task.ID   `json:"id"`
	Name    string    `json:"name"`
	Queue   string    `json:"queue"`
	Since   time.Time `json:"since,omitzero"` // when it started or was received
	Attempt int       `json:"attempt"`
}

// Cancel says which task is cancelled.
type Cancel struct {
	ID task.ID `json:"id"`
	// Queues are the queues in which its message is searched, to remove it. Empty: those of the
	// running consumers.
	Queues []string `json:"queues,omitempty"`
	// Until is the last moment at which the task may start. Default: as in revoke.Options.
	Until time.Time `json:"until,omitzero"`
	// Terminate also cancels the context of the running task.
	Terminate bool `json:"terminate,omitempty"`
}

// TaskRun says which task runs again.
type TaskRun struct {
	ID task.ID `json:"id"`
	// Queues are the queues in which its message is searched. Empty: those of the running consumers.
	Queues []string `json:"queues,omitempty"`
	// Args are edited arguments. Empty: those of the original, byte for byte.
	Args json.RawMessage `json:"args,omitempty"`
	// Key makes repeated calls one. Calls with the same key, ID and Args within 24 hours make one
	// copy, also at the same time, and all return its id. Change.Repeated marks all but the first. At
	// most 255 bytes. "": each call makes a copy.
	//
	// This holds for all processes that share a result store that is a resultstore.Claimer, and
	// otherwise for the calls of one [Local]. After an error the next call with the key tries again.
	Key string `json:"key,omitempty"`
	// Now runs the task itself at once instead of a copy, if it waits for its time in a queue: it is
	// delayed, or another attempt follows. Args and Key must be empty.
	Now bool `json:"now,omitempty"`
}
