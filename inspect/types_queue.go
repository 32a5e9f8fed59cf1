package inspect

import (
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/task"
)

// QueueQuery selects queues.
type QueueQuery struct {
	// Names are the queues to return. Empty: all known ones. Names that do not exist are left out.
	Names  []string `json:"names,omitempty"`
	Limit  int      `json:"limit,omitempty"`
	Cursor string   `json:"cursor,omitempty"`
}

// QueuePage is a page of queues.
type QueuePage struct {
	Queues []Queue `json:"queues"`
	Next   string  `json:"next,omitempty"`
	// Notes are sentences about parts that may be missing.
	Notes []string `json:"notes,omitempty"`
}

// Queue is a queue of the broker. Counts that the broker cannot tell are -1.
type Queue struct {
	Name    string `json:"queue"`
	Ready   int    `json:"ready"`   // waiting for a consumer
	Held    int    `json:"held"`    // delivered to consumers and not settled
	Delayed int    `json:"delayed"` // waiting for their time
	Dead    int    `json:"dead"`    // dead letters
	// Oldest is the time since which the oldest waiting message waits. Zero: unknown, or the
	// queue is empty.
	Oldest time.Time `json:"oldest,omitzero"`
	// OldestGuess reports that Oldest is a guess: the wait of the message that was received last.
	OldestGuess bool `json:"oldest_guess,omitempty"`

	// Consumers is the number of consumers that serve the queue, as far as they answer or send
	// heartbeats. -1: no event bus is given.
	Consumers int `json:"consumers"`
	Workers   int `json:"workers"`  // of the consumers that answer
	Active    int `json:"active"`   // tasks that run in them
	Reserved  int `json:"reserved"` // tasks that wait in them for their start
	// Paused is the number of consumers that have paused the queue.
	Paused int `json:"paused"`
	// Pause is the stored pause of the queue, which later consumers obey too. nil: it is
	// not paused.
	Pause *StoredPause `json:"pause,omitempty"`
	// Rates are the counts of the last minutes. nil: no history is given.
	Rates *Rates `json:"rates,omitempty"`
}

// StoredPause describes a pause that the settings hold.
type StoredPause struct {
	Since  time.Time `json:"since,omitzero"`
	Until  time.Time `json:"until,omitzero"` // zero: until it is resumed
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// Rates are the numbers of tasks in a window of time.
type Rates struct {
	Since     time.Time `json:"since"`
	Sent      int64     `json:"sent"`
	Succeeded int64     `json:"succeeded"`
	Failed    int64     `json:"failed"`
	Retried   int64     `json:"retried"`
}

// RateQuery selects the minutes of [Tasks.ListRates].
type RateQuery struct {
	Queue   string `json:"queue,omitempty"`   // "": all queues
	Name    string `json:"name,omitempty"`    // of a task; "": all tasks
	Minutes int    `json:"minutes,omitempty"` // up to [MaxMinutes]; 0: 60
}

// RatePage has the counts of consecutive minutes; Since is the beginning of each.
type RatePage struct {
	Minutes []Rates `json:"minutes"`
}

// MessageQuery selects messages of a queue.
type MessageQuery struct {
	Queue string       `json:"queue"`
	Place broker.Place `json:"place"` // waiting, delayed, held or dead
	Limit int          `json:"limit,omitempty"`
	// Cursor is Next of the page before.
	Cursor string `json:"cursor,omitempty"`
}

// MessagePage is a page of messages. It may have fewer messages than the limit, even none, and a
// Next.
type MessagePage struct {
	Messages []Message `json:"messages"`
	Next     string    `json:"next,omitempty"`
}

// Message is a message of a queue.
type Message struct {
	ID    task.ID      `json:"id"`
	Name  string       `json:"name,omitempty"` // "": it cannot be read
	Place broker.Place `json:"place"`
	// At belongs to the place: since when it waits, when it is due, when its lease ends, or when it
	// was dead-lettered. Zero: not known.
	At         time.Time `json:"at,omitzero"`
	Sent       time.Time `json:"sent,omitzero"`
	Attempt    int       `json:"attempt,omitempty"`
	Generation int       `json:"generation"`
	Priority   int       `json:"priority,omitempty"`
	Key        string    `json:"key,omitempty"`    // the fairness key
	Weight     int       `json:"weight,omitempty"` // of the key; 0 means 1
	Size       int       `json:"size"`             // in bytes
	Root       task.ID   `json:"root,omitempty"`
	Reason     string    `json:"reason,omitempty"` // of a dead letter
	Unread     string    `json:"unread,omitempty"` // why it cannot be read
}

// Purge says which queue is purged.
type Purge struct {
	Queue  string `json:"queue"`
	DryRun bool   `json:"dry_run,omitempty"`
}

// Pause says which queue is paused, and for how long.
type Pause struct {
	Queue string `json:"queue"`
	// Until is the end of the pause. Zero: until it is resumed. It needs settings.
	Until  time.Time `json:"until,omitzero"`
	Reason string    `json:"reason,omitempty"`
}

// Change is the result of a change.
type Change struct {
	Do     Do     `json:"do"`
	Target string `json:"target,omitempty"` // the queue, the task, the entry
	DryRun bool   `json:"dry_run,omitempty"`
	// Done is the number of changed records. In a dry run it is the number of records that match.
	Done int `json:"done"`
	// More reports that the limit of the call was reached, so that there may be further records.
	More bool `json:"more,omitempty"`
	// Outcome is a word for what happened, where there is a choice.
	Outcome string `json:"outcome,omitempty"`
	// Copy is the id of the thing that the change has made, if it makes one.
	Copy string `json:"copy,omitempty"`
	// Repeated reports that an earlier call with the same key has made the copy.
	Repeated bool `json:"repeated,omitempty"`
	// At is the time at which the change takes effect, where it is not at once.
	At time.Time `json:"at,omitzero"`

	// Stored reports that the change is stored, so that consumers that start later obey it too.
	Stored bool `json:"stored,omitempty"`

	Already int `json:"already,omitempty"` // dead letters that were requeued before
	Refused int `json:"refused,omitempty"` // records that stay as they are
	// Unfenced counts requeued letters without a record that stops their old runs.
	Unfenced int       `json:"unfenced,omitempty"`
	Problems []Problem `json:"problems,omitempty"` // why records were refused
	// Nodes are the answers of consumers to a command.
	Nodes []NodeAnswer `json:"nodes,omitempty"`
	// Notes are sentences for people about limits of the change.
	Notes []string `json:"notes,omitempty"`
}

// KeyQuery selects a page of the fairness keys of a queue.
type KeyQuery struct {
	Queue  string `json:"queue"`
	Limit  int    `json:"limit,omitempty"`
	Cursor string `json:"cursor,omitempty"`
}

// KeyPage is a page of the fairness keys of a queue.
type KeyPage struct {
	Keys []QueueKey `json:"keys"`
	Next string     `json:"next,omitempty"`
}

// QueueKey counts the tasks of a fairness key.
type QueueKey struct {
	Key    string    `json:"key"`
	Ready  int       `json:"ready"`           // they wait for a consumer
	Held   int       `json:"held"`            // -1: unknown, because no consumer uses bounds
	Oldest time.Time `json:"oldest,omitzero"` // since when the oldest ready task waits
	Used   time.Time `json:"used,omitzero"`   // the rate of the key is used until then
}

// Problem names a refused record and the reason.
type Problem struct {
	ID     string `json:"id"`
	Reason string `json:"reason"`
}

// NodeAnswer is the answer of a consumer to a command.
type NodeAnswer struct {
	Node string    `json:"node"`
	At   time.Time `json:"at"` // on the consumer's clock
	// Error says why the command was not executed completely. "": it was.
	Error  string   `json:"error,omitempty"`
	Queues []string `json:"queues,omitempty"`
}
