package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/task"
)

// Limits of the texts of a value, in bytes.
const (
	MaxBy  = 128
	MaxWhy = 512
)

// MaxWorkers is the largest number of workers of a [Served] queue, and the largest Concurrency of
// a [Limit].
const MaxWorkers = 100_000

// MaxServed is the largest number of queues in a [Group].
const MaxServed = 100

// Pause is the pause of a queue or of the tasks with one name.
type Pause struct {
	// Until is the end of the pause, by the clocks of the consumers. Zero: until it is resumed.
	Until time.Time `json:"until,omitzero"`
	By    string    `json:"by,omitempty"`  // the operator or program
	Why   string    `json:"why,omitempty"` // the reason, for other operators
	At    time.Time `json:"at,omitzero"`   // when it was paused
}

// Active reports whether the pause lasts at the time now.
func (p *Pause) Active(now time.Time) bool { return p.Until.IsZero() || now.Before(p.Until) }

// Limit limits the tasks of a queue or with one name. It applies to all consumers together if they
// share a limiter (consumer.Config.Limiter), otherwise to each consumer.
type Limit struct {
	// Rate limits how often tasks start, such as "10/s", see task.ParseRate. "": no limit.
	Rate string `json:"rate,omitempty"`
	// Concurrency limits how many tasks run at once. 0: no limit.
	Concurrency int       `json:"concurrency,omitempty"`
	By          string    `json:"by,omitempty"`
	At          time.Time `json:"at,omitzero"`
}

// Breaker is the state of a circuit breaker of a queue or of the tasks with one name. A consumer
// stores it when too many tasks have failed. Without a value the breaker is closed.
type Breaker struct {
	// Until is the end of the pause. After it each consumer lets one task at a time start, until one
	// of them succeeds, which removes the value, or fails, which doubles Pause.
	Until time.Time     `json:"until"`
	Pause time.Duration `json:"pause"` // nanoseconds
	Trips int           `json:"trips"` // pauses without a success in between
	Node  string        `json:"node,omitempty"`
	Why   string        `json:"why,omitempty"` // the last error
	At    time.Time     `json:"at,omitzero"`
}

// Group holds the queues that a group of consumers (consumer.Config.Group) serves beside those of
// their configuration.
type Group struct {
	Queues map[string]Served `json:"queues,omitempty"`
}

// Served says how a group of consumers serves a queue.
type Served struct {
	// Workers is the number of handlers that run at once in each consumer. 0: as the consumer
	// configures the queue, or its default.
	Workers int `json:"workers,omitempty"`
	// Levels are the priority levels of the queue; all its producers and consumers need the same.
	Levels []int `json:"levels,omitempty"`
	// Fair declares the queue with turns over fairness keys.
	Fair bool `json:"fair,omitempty"`
	// Removed makes the consumers leave the queue, also if it is in their configuration.
	Removed bool      `json:"removed,omitempty"`
	By      string    `json:"by,omitempty"`
	At      time.Time `json:"at,omitzero"`
}

// Aside says that messages of a paused task were moved out of their queue, see [TaskPause].
// Consumers write and remove it.
type Aside struct {
	At time.Time `json:"at,omitzero"`
}

// The first names of the keys, and the last ones.
const (
	ofQueue, ofTask, ofGroup, ofAside = "queue", "task", "group", "aside"

	isPause, isLimit, isBreaker, isQueues, isBounds = "pause", "limit", "breaker", "queues", "bounds"
)

// QueuePause is the key of the pause of a queue.
func QueuePause(queue string) Key[Pause] { return Key[Pause]{ofQueue + "/" + queue + "/" + isPause} }

// TaskPause is the key of the pause of the tasks with a name. Consumers move their messages to
// queues of their own, and back when the pause ends. No attempt is used.
func TaskPause(task string) Key[Pause] { return Key[Pause]{ofTask + "/" + task + "/" + isPause} }

// QueueLimit is the key of the limit of a queue.
func QueueLimit(queue string) Key[Limit] { return Key[Limit]{ofQueue + "/" + queue + "/" + isLimit} }

// TaskLimit is the key of the limit of the tasks with a name.
func TaskLimit(task string) Key[Limit] { return Key[Limit]{ofTask + "/" + task + "/" + isLimit} }

// RateKey is the key under which a limit.Limiter counts the rate of the limit l with the key k. It
// contains the rate as numbers, so that a changed rate begins unused. The hour that a mistaken rate
// of 1/h has used ahead does not delay tasks after its correction.
func (l *Limit) RateKey(k Key[Limit]) string {
	n, per, _ := task.ParseRate(l.Rate) // CheckLimit refuses other rates
	return fmt.Sprintf("%s@%d/%v", k, n, per)
}

// QueueBreaker is the key of the breaker of a queue.
func QueueBreaker(queue string) Key[Breaker] {
	return Key[Breaker]{ofQueue + "/" + queue + "/" + isBreaker}
}

// TaskBreaker is the key of the breaker of the tasks with a name.
func TaskBreaker(task string) Key[Breaker] {
	return Key[Breaker]{ofTask + "/" + task + "/" + isBreaker}
}

// GroupQueues is the key of the queues of a group of consumers.
func GroupQueues(group string) Key[Group] { return Key[Group]{ofGroup + "/" + group + "/" + isQueues} }

// AsideOf is the key of the [Aside] of a paused task in a queue: it has a value while messages of
// the task may be in another queue.
func AsideOf(queue, task string) Key[Aside] { return Key[Aside]{ofAside + "/" + queue + "/" + task} }

// State holds the values of a store by their names. A missing entry means that nothing is set.
type State struct {
	QueuePauses, TaskPauses     map[string]Pause
	QueueLimits, TaskLimits     map[string]Limit
	QueueBounds                 map[string]Bounds
	QueueBreakers, TaskBreakers map[string]Breaker
	Groups                      map[string]Group
	// Aside has an entry "QUEUE/TASK" for each AsideOf, with its revision.
	Aside map[string]uint64
	// Bad are the keys whose values cannot be read. They count as not set.
	Bad []string
}

// Read returns the state that values, the result of [Store].List, describe. Unknown keys are
// ignored: newer versions may have written them.
func Read(values []Value) State {
	s := State{
		QueuePauses: make(map[string]Pause), TaskPauses: make(map[string]Pause),
		QueueLimits: make(map[string]Limit), TaskLimits: make(map[string]Limit),
		QueueBreakers: make(map[string]Breaker), TaskBreakers: make(map[string]Breaker),
		QueueBounds: make(map[string]Bounds), Groups: make(map[string]Group), Aside: make(map[string]uint64),
	}
	for i := range values {
		v := &values[i]
		parts := strings.Split(v.Key, "/")
		if len(parts) != 3 {
			continue
		}
		name, ok := parts[1], true
		switch kind := [2]string{parts[0], parts[2]}; kind {
		case [2]string{ofQueue, isPause}:
			ok = read(s.QueuePauses, name, v.Data)
		case [2]string{ofTask, isPause}:
			ok = read(s.TaskPauses, name, v.Data)
		case [2]string{ofQueue, isLimit}:
			ok = read(s.QueueLimits, name, v.Data)
		case [2]string{ofQueue, isBounds}:
			ok = read(s.QueueBounds, name, v.Data)
		case [2]string{ofTask, isLimit}:
			ok = read(s.TaskLimits, name, v.Data)
		case [2]string{ofQueue, isBreaker}:
			ok = read(s.QueueBreakers, name, v.Data)
		case [2]string{ofTask, isBreaker}:
			ok = read(s.TaskBreakers, name, v.Data)
		case [2]string{ofGroup, isQueues}:
			ok = read(s.Groups, name, v.Data)
		default:
			if parts[0] == ofAside {
				s.Aside[parts[1]+"/"+parts[2]] = v.Revision
			}
		}
		if !ok {
			s.Bad = append(s.Bad, v.Key)
		}
	}
	return s
}

// read decodes data, a JSON object, into m[name] and reports whether it could. If not, m does not
// change.
func read[T any](m map[string]T, name string, data []byte) bool {
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		return false
	}
	m[name] = v
	return true
}

// checkTexts returns an error that wraps [ErrBad] if by or why is too long or not UTF-8.
func checkTexts(by, why string) error {
	if len(by) > MaxBy || len(why) > MaxWhy || !utf8.ValidString(by+why) {
		return fmt.Errorf("%w: By has at most %d bytes and Why at most %d, in UTF-8", ErrBad, MaxBy, MaxWhy)
	}
	return nil
}

// Check returns all problems of p, joined; each wraps [ErrBad].
func (p *Pause) Check() error {
	err := checkTexts(p.By, p.Why)
	if !p.Until.IsZero() && !p.At.IsZero() && !p.Until.After(p.At) {
		err = errors.Join(err, fmt.Errorf("%w: the pause would end before its begin", ErrBad))
	}
	return err
}
