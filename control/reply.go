package control

import (
	"encoding/json"
	"time"

	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/task"
)

// Reply is the reply of one node. The command determines which fields are set.
type Reply struct {
	Node string    `json:"node"`
	At   time.Time `json:"at"` // on the node's clock, in whole milliseconds
	// Error is the reason why the command was not executed completely; "" if it was.
	Error string `json:"error,omitempty"`
	// Queues are the consumed queues to which the command applies, sorted.
	Queues []string `json:"queues,omitempty"`
	Stats  *Stats   `json:"stats,omitempty"` // of [DoStats]
	// of [DoActive] and [DoReserved], the oldest first; at most [MaxTasks]
	Tasks []Task   `json:"tasks,omitempty"`
	More  int      `json:"more,omitempty"`  // number of tasks that were left out
	Names []string `json:"names,omitempty"` // of [DoRegistered]
}

// Limits of a reply.
const (
	MaxTasks    = 1000
	maxNames    = 2000 // Names, Queues, Stats.Queues
	maxErrorLen = 1 << 10
)

// Stats holds the sizes and totals of a node.
type Stats struct {
	Queues []QueueStats `json:"queues"`
	// Stopping reports that the node takes no more tasks, and ends when its running tasks have ended.
	Stopping bool `json:"stopping,omitempty"`
	// since the node's start: "processed", "failed" and others
	Totals map[string]uint64 `json:"totals,omitempty"`
}

// QueueStats describes one consumed queue of a node.
type QueueStats struct {
	Name     string `json:"name"`
	Workers  int    `json:"workers"`
	Prefetch int    `json:"prefetch"` // negative: no limit
	Active   int    `json:"active"`   // running tasks
	Reserved int    `json:"reserved"` // received tasks that have not started
	Paused   bool   `json:"paused"`
	Stuck    int    `json:"stuck,omitempty"` // handlers that still run after their time limit
}

// Task is a task on a node. It never contains the arguments.
type Task struct {
	ID      task.ID   `json:"id"`
	Name    string    `json:"name"`
	Queue   string    `json:"queue"`
	Since   time.Time `json:"since"`   // when it started or was received; whole milliseconds
	Attempt int       `json:"attempt"` // from 1
}

// cut truncates r to the limits of a reply, in place. It adds the number of omitted tasks to
// r.More. It rounds all times down to milliseconds, in UTC.
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

// parseReply decodes a reply and truncates it to the limits. node is the node's id from the head of
// the message; it replaces the one in data. Returns errMalformed if data is not the JSON of a
// Reply.
func parseReply(data []byte, node string) (Reply, error) {
	var r Reply
	if err := json.Unmarshal(data, &r); err != nil {
		return Reply{}, errMalformed
	}
	r.Node = node
	r.cut()
	return r, nil
}
