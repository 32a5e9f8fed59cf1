// Package deferral is the port to stores of tasks that wait for an answer from outside, while the
// broker no longer has their messages.
//
// A consumer reserves the key of the answer while the handler runs. It defers the task when the
// handler returns task.Defer. When the answer has come, or has not come in time, a consumer of the
// task's queue receives the deferral and settles the task.
//
// The package jobs/deferrals implements the port over a store of jobs. The package deferraltest has
// a case for every sentence here.
package deferral

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/task"
)

// Classes of errors. A store adds its own error to the chain. No error holds a secret.
var (
	// ErrStale is returned for an attempt that is over or already deferred, and if a later attempt of
	// the task has begun.
	ErrStale = errors.New("deferral: the attempt is over, deferred or followed by a later one")
	// ErrRefused is returned if a deferral can never be stored. The key is missing, malformed or
	// reserved by another task, or the state is too large.
	ErrRefused = errors.New("deferral: refused")
	// ErrUnavailable is returned if the store gave no answer. The call may have had its effect;
	// repeating it is safe.
	ErrUnavailable = errors.New("deferral: store unavailable")
	// ErrClosed is returned after the subscription or the store was closed.
	ErrClosed = errors.New("deferral: closed")
)

// Attempt describes an attempt of a task.
type Attempt struct {
	Queue      string // queue of the broker from which the task came
	Name       string // name of the task
	Task       task.ID
	Generation int // generation of its message
	// AtMostOnce reports that the broker no longer has the message and does not repeat the attempt.
	AtMostOnce bool
	// State is a JSON object with which a consumer continues the task. The store does not read it, but
	// for Resumes. At most 1 MiB.
	State []byte
}

// Resumes reports whether the answer continues the task, as that of task.Await does. Otherwise the
// answer is the result. It reads the member "resumed" of State.
func (a *Attempt) Resumes() bool {
	var state struct {
		Resumed *struct{} `json:"resumed"`
	}
	return json.Unmarshal(a.State, &state) == nil && state.Resumed != nil
}

// Store stores deferrals for any number of processes. A task has at most one deferral, which passes
// from an attempt to the next. Safe for concurrent use; ctx limits every wait.
type Store interface {
	// Reserve reserves key for a running attempt. Call it before sending the request: when it has
	// returned, an answer for key is kept for this attempt.
	//
	// A second call with another key replaces the reservation, and an answer for the earlier key is
	// deleted. If an earlier attempt got an answer for the same key and did not use it, the answer is
	// kept for this attempt.
	Reserve(ctx context.Context, a Attempt, key string) error
	// Defer ends an attempt that waits for its answer. A consumer settles it when the answer comes, or
	// after the time within. key "" means the reserved key. If the attempt is already deferred, Defer
	// changes nothing and Status.Before is true.
	Defer(ctx context.Context, a Attempt, key string, within time.Duration) (Status, error)
	// Drop ends an attempt that needs no answer, and the waits of earlier attempts. It does not change
	// a deferred attempt. It returns nil if the task has no deferral.
	Drop(ctx context.Context, a Attempt) error
	// DropUnanswered is Drop, unless an answer or a refusal was accepted for the attempt or an earlier
	// one. Then it defers the attempt instead, so that the answer settles it, and returns true. An
	// answer to an attempt that resumes (see Attempt.Resumes) does not settle one that does not. It
	// may be repeated.
	DropUnanswered(ctx context.Context, a Attempt) (answered bool, err error)
	// Overtaken reports whether an attempt is deferred or over, or a later attempt of the task has
	// begun. If so, acknowledge a redelivered message of the attempt and do nothing else.
	Overtaken(ctx context.Context, a Attempt) (bool, error)
	// Subscribe returns a subscription to the due deferrals of these queues of the broker. Prefetch
	// limits the unsettled deferrals that it holds. Default: 256. Lease is the time without a sign of
	// life after which another consumer gets them. Default: 30s.
	Subscribe(ctx context.Context, queues []string, o broker.SubscribeOptions) (Subscription, error)
}

// Status is the result of [Store].Defer.
type Status struct {
	// Answered reports that the answer has come already.
	Answered bool
	// Before reports that another delivery of the attempt's message has deferred it.
	Before bool
}

// Waker is a [Store] that can deliver deferrals before their answers come. Revocations use it.
type Waker interface {
	// Wake makes the deferrals of these tasks due at once, if they wait for their answers. It ignores
	// all other tasks.
	Wake(ctx context.Context, ids ...task.ID) error
	// Scan calls yield with each task of a queue that waits for its answer, and its state, until yield
	// returns false. A task that changes meanwhile may be left out or repeated.
	Scan(ctx context.Context, queue string, yield func(id task.ID, state []byte) bool) error
}

// Subscription delivers due deferrals. It renews their leases until they are settled, and deletes
// deferrals after their retention. Safe for concurrent use.
type Subscription interface {
	// Receive waits for the next due deferral. Returns ctx's error, [ErrClosed], or an error of the
	// store, after which it may be called again. A deferral that the subscription holds already is
	// returned even if ctx has ended.
	Receive(ctx context.Context) (Delivery, error)
	// SetQueues limits further deliveries to these queues.
	SetQueues(queues []string)
	// Close ends the subscription. Delivered deferrals can still be settled until their lease ends,
	// which is no longer renewed. It may be called repeatedly.
	Close(ctx context.Context) error
}

// Delivery is a deferral that one consumer has claimed. Like a [broker.Delivery] it is settled
// once, by Ack, Release or Next, which may be repeated after an error. [broker.ErrLeaseLost]
// reports that another consumer has claimed it.
type Delivery interface {
	// Attempt returns the stored attempt. Its State is empty if the attempt stored none.
	Attempt() Attempt
	// Outcome returns why the deferral was delivered.
	Outcome() Outcome
	// Lost returns a channel that is closed when another consumer has claimed the deferral.
	Lost() <-chan struct{}
	// Ack ends the deferral of a settled task. The store remembers for a day that it was answered. An
	// [Abandoned] attempt is not over: when its message comes again, it may reserve a key or be
	// deferred.
	Ack(ctx context.Context) error
	// Release returns the deferral to the store, to be delivered again after a time. A [Woken] one is
	// delivered at its Deadline at the latest. Its lease is no longer renewed, even after an error.
	Release(ctx context.Context, after time.Duration) error
	// Next records that the task's next attempt is published and not due before at; zero: due now. An
	// answer that comes until then is kept for that attempt, if it reserves the same key.
	Next(ctx context.Context, at time.Time) error
}

// Outcome says why a deferral is delivered.
type Outcome struct {
	Kind Kind
	// Answer is the answer, any JSON value, if Kind is Answered.
	Answer []byte
	// Refusal is the reason, if Kind is Refused.
	Refusal string
	// Deadline is the end of the wait for the answer.
	Deadline time.Time
	// Again reports that the deferral was delivered before, so a part of its settlement may be done.
	Again bool
}

// Kind is a kind of [Outcome].
type Kind int

// The kinds of outcomes.
const (
	Answered  Kind = iota // the answer has come
	Refused               // a refusal has come
	TimedOut              // no answer came in time
	Woken                 // [Waker].Wake was called; it still waits for its answer
	Abandoned             // its attempt was neither deferred nor dropped for a day
)
