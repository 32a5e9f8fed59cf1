package control

import (
	"encoding/json"
	"time"

	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/task"
)

// Reply is the answer of one node. Which fields are set depends on the command.
type Reply struct {
	Node string    `json:"node"`
	At   time.Time `json:"at"` // on the node's clock, whole milliseconds
	// Error is why the command was not, or not wholly, obeyed; "" when it was.
	Error string `json:"error,omitempty"`
	// Queues are those that the node consumes and the command is about, sorted.
	Queues []string `json:"queues,omitempty"`
	Stats  *Stats   `json:"stats,omitempty"` // of [DoStats]
	Tasks  []Task   `json:"tasks,omitempty"` // of [DoActive] and [DoReserved], the oldest first; at most [MaxTasks]
	More   int      `json:"more,omitempty"`  // how many tasks were left out
	Names  []string `json:"names,omitempty"` // of [DoRegistered]
}

// Limits of a reply.
const (
	MaxTasks    = 1000
	maxNames    = 2000 // Names, Queues, Stats.Queues
	maxErrorLen = 1 << 10
)

// Stats are the sizes and totals of a node.
type Stats struct {
	Queues []QueueStats      `json:"queues"`
	Totals map[string]uint64 `json:"totals,omitempty"` // since the node's start: "processed", "failed" and the like
}

// QueueStats is one queue as a node consumes it.
type QueueStats struct {
	Name     string `json:"name"`
	Workers  int    `json:"workers"`
	Prefetch int    `json:"prefetch"` // negative: no limit
	Active   int    `json:"active"`   // tasks that run
	Reserved int    `json:"reserved"` // fetched and not started
	Paused   bool   `json:"paused"`
	Stuck    int    `json:"stuck,omitempty"` // handlers that go on beyond their time limit
}

// Task is a task that a node holds. It never tells the arguments.
type Task struct {
	ID      task.ID   `json:"id"`
	Name    string    `json:"name"`
	Queue   string    `json:"queue"`
	Since   time.Time `json:"since"`   // it runs, or is held; whole milliseconds
	Attempt int       `json:"attempt"` // 1 is the first
}

// cut brings r within its limits.
func (r *Reply) cut() {
	r.Error = utf.Cut(r.Error, maxErrorLen)
	r.Queues = r.Queues[:min(len(r.Queues), maxNames)]
	r.Names = r.Names[:min(len(r.Names), maxNames)]
	if extra := len(r.Tasks) - MaxTasks; extra > 0 {
		r.Tasks, r.More = r.Tasks[:MaxTasks], r.More+extra
	}
	if r.Stats != nil {
		r.Stats.Queues = r.Stats.Queues[:min(len(r.Stats.Queues), maxNames)]
	}
	r.At = r.At.UTC().Truncate(time.Millisecond)
	for i := range r.Tasks {
		r.Tasks[i].Since = r.Tasks[i].Since.UTC().Truncate(time.Millisecond)
	}
}

// parseReply reads what a node sent; whose answer it is stands in the head of its message.
func parseReply(data []byte, node string) (Reply, error) {
	var r Reply
	if err := json.Unmarshal(data, &r); err != nil {
		return Reply{}, errMalformed
	}
	r.Node = node
	r.cut()
	return r, nil
}
