// Package demo defines the tasks that the examples submit and worker share: their names, argument
// and result types, and options. A program in another language can send such a task as JSON:
//
//	{"task": "demo.add", "args": {"A": 1, "B": 2}}
package demo

import (
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// Pair holds the two numbers that Add adds.
type Pair struct{ A, B int }

// Attempts is the argument of Flaky.
type Attempts struct {
	Failures int // number of attempts that fail before one succeeds
}

// Nap is the argument of Sleep.
type Nap struct{ Milliseconds int }

// The definitions that producers and workers share.
var (
	Add   = task.New[Pair, int]("demo.add", task.WithTimeLimit(10*time.Second))
	Flaky = task.New[Attempts, string]("demo.flaky", task.WithMaxRetries(3), task.WithRetryDelay(200*time.Millisecond))
	Sleep = task.New[Nap, int]("demo.sleep")
)
