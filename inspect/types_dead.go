package inspect

import (
	"encoding/json"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// DeadFilter selects dead letters of a queue. A letter must match each field that is set.
type DeadFilter struct {
	Queue string    `json:"queue"`           // required
	IDs   []task.ID `json:"ids,omitempty"`   // of tasks; empty: all
	Name  string    `json:"name,omitempty"`  // of tasks; * is any text and ? one character
	Root  task.ID   `json:"root,omitempty"`  // of their workflow
	Error string    `json:"error,omitempty"` // a part of the reason
	// Headers are headers with their values. All must be equal.
	Headers map[string]string `json:"headers,omitempty"`
	// OlderThan and YoungerThan limit the time since the task was dead-lettered. 0: no limit.
	OlderThan   Duration `json:"older_than_ms,omitempty"`
	YoungerThan Duration `json:"younger_than_ms,omitempty"`
}

// DeadQuery selects a page of dead letters.
type DeadQuery struct {
	DeadFilter
	Limit  int    `json:"limit,omitempty"`
	Cursor string `json:"cursor,omitempty"`
}

// DeadCount selects dead letters that are counted.
type DeadCount struct {
	DeadFilter
	// Limit ends the count. Default and maximum: [MaxCount].
	Limit int `json:"limit,omitempty"`
}

// DeadPage is a page of dead letters, without their arguments and stacks.
type DeadPage struct {
	Letters []DeadLetter `json:"letters"`
	Next    string       `json:"next,omitempty"`
}

// DeadSummary counts dead letters.
type DeadSummary struct {
	Count
	Bytes  int64     `json:"bytes"`           // of the messages
	Oldest time.Time `json:"oldest,omitzero"` // letter
	Newest time.Time `json:"newest,omitzero"` // letter
	// Names and Reasons count the letters of each task's name and of each reason, which is cut to its
	// beginning. Each has at most deadletter.MaxKinds entries and "other".
	Names   map[string]int `json:"names"`
	Reasons map[string]int `json:"reasons"`
}

// DeadKey names the dead letters of a task.
type DeadKey struct {
	Queue string  `json:"queue"`
	ID    task.ID `json:"id"`
	// Args also returns the arguments, which may hold secrets.
	Args bool `json:"args,omitempty"`
}

// DeadLetter is a dead letter. Lists leave out the fields from Stack on.
type DeadLetter struct {
	ID         string    `json:"id"`
	Name       string    `json:"name,omitempty"` // "": the message cannot be read
	Queue      string    `json:"queue"`
	Reason     string    `json:"reason"`
	Attempts   int       `json:"attempts,omitempty"` // 0: unknown
	At         time.Time `json:"at"`
	Life       int       `json:"life,omitempty"` // how often it was requeued
	Generation int       `json:"generation"`
	Size       int       `json:"size"` // of the message, in bytes

	Stack       string            `json:"stack,omitempty"`
	ContentType string            `json:"content_type,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Parent      task.ID           `json:"parent,omitempty"`
	Root        task.ID           `json:"root,omitempty"`
	Group       task.ID           `json:"group,omitempty"`
	GroupIndex  int               `json:"group_index,omitempty"`
	AtMostOnce  bool              `json:"at_most_once,omitempty"` // as the producer stated
	Letters     int               `json:"letters,omitempty"`      // letters of this task
	Retries     int               `json:"retries,omitempty"`
	Args        json.RawMessage   `json:"args,omitempty"` // any JSON value
	// Preview are the arguments as the events of the task had them, with secrets hidden. "": the
	// history has no arguments.
	Preview string `json:"preview,omitempty"`
	// Withheld says why this caller does not get Args. "": it may have them.
	Withheld string `json:"withheld,omitempty"`
	// Unread says why the message or its arguments cannot be read. "": they can.
	Unread string `json:"unread,omitempty"`
}

// DeadChange says which dead letters are changed.
type DeadChange struct {
	DeadFilter
	// Limit is the largest number of changed letters, the oldest first. Default and maximum:
	// [MaxBulk]. A dry run ignores it.
	Limit  int  `json:"limit,omitempty"`
	DryRun bool `json:"dry_run,omitempty"`
	// Confirm is the name of the queue. DropDead needs it if IDs is empty. RequeueDead and a dry run
	// ignore it.
	Confirm string `json:"confirm,omitempty"`
}

// DeadExport is a page of exported dead letters.
type DeadExport struct {
	// Lines are the lines of an export, which deadletter.Letters.Import reads.
	Lines []json.RawMessage `json:"lines"`
	Next  string            `json:"next,omitempty"`
}
