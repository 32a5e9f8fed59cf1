// Package deferral is the port for tasks that wait for an answer from outside while no broker has
// them. A consumer reserves the key of the answer while the handler runs. It defers the task when
// the handler returns task.Defer. After the answer, or without one in time, a consumer of the
// task's queue receives the deferral and settles the task.
//
// The package jobs/deferrals implements the port over a store of jobs. The package deferraltest has
// a case for every sentence here.
package deferral

import (
	"context"
	"errors"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/task"
)

// The classes of errors. A store adds its own error to the chain. None holds a secret.
var (
	// ErrStale: the attempt was overtaken. It is over, or it is deferred already, or a later one
	// has begun.
	ErrStale = errors.New("deferral: the attempt was overtaken")
	// ErrRefused: what was asked for cannot be kept, however often it is asked for. The key is
	// missing, malformed or another's, or the state is too large.
	ErrRefused = errors.New("deferral: refused")
	// ErrUnavailable: the store gave no answer. What was asked for may have been done; to ask again
	// is harmless.
	ErrUnavailable = errors.New("deferral: store unavailable")
	// ErrClosed: the subscription or the store was closed.
	ErrClosed = errors.New("deferral: closed")
)

// Attempt is an attempt of a task.
type Attempt struct {
	Queue      string // of the broker, from which the task came
	Name       string // of the task
	Task       task.ID
	Generation int // of its message
	// AtMostOnce: the broker no longer has the message and does not repeat the attempt.
	AtMostOnce bool
	// State is a JSON object that says how a consumer goes on with the task. The store does not
	// read it. At most 1 MiB.
	State []byte
}

// Store keeps deferrals, for any number of processes. A task has at most one, which passes from an
// attempt to the next. All methods may be called from any goroutine; a ctx bounds every wait.
type Store interface {
	// Reserve keeps key for an attempt that runs. Call it before the request is sent: from its
	// return on an answer for key is kept for this attempt. A second call replaces the key, and an
	// answer for the one before is forgotten. An answer for the same key that an attempt before was
	// given, and has not been settled by, stays.
	Reserve(ctx context.Context, a Attempt, key string) error
	// Defer ends an attempt: it is settled when its answer comes, or when none has come within a
	// time. key "" is the reserved one. A deferred attempt is left as it is, and Status.Before is
	// true.
	Defer(ctx context.Context, a Attempt, key string, within time.Duration) (Status, error)
	// Drop says that an attempt has ended without Defer, and needs no answer: neither this one nor
	// one before it waits any more. A deferred attempt is left as it is. It returns nil if there is
	// nothing to drop.
	Drop(ctx context.Context, a Attempt) error
	// DropUnanswered is Drop unless an answer, or a refusal, was accepted for the attempt or for
	// one before it. Then the attempt is deferred and settled by that. answered says so; to repeat
	// the call is harmless.
	DropUnanswered(ctx context.Context, a Attempt) (answered bool, err error)
	// Overtaken reports whether an attempt is deferred, or over, or a later one has begun. A
	// message of it that comes again is to be acknowledged, and nothing else.
	Overtaken(ctx context.Context, a Attempt) (bool, error)
	// Subscribe receives the deferrals of queues of the broker that are to be settled. Prefetch is
	// how many the subscription holds unsettled, 0: 256. Lease is how long another consumer waits
	// for a sign of life of this one, 0: 30 s.
	Subscribe(ctx context.Context, queues []string, o broker.SubscribeOptions) (Subscription, error)
}

// Status is what [Store].Defer has found.
type Status struct {
	// Answered: the answer is there already.
	Answered bool
	// Before: another delivery of the attempt's message has deferred it.
	Before bool
}

// Waker is a [Store] that can have deferrals looked at before their answers come. It is for
// revocations.
type Waker interface {
	// Wake hands out the deferrals of these tasks at once, if they await their answers. Others are
	// ignored.
	Wake(ctx context.Context, ids ...task.ID) error
	// Scan calls yield with the tasks of a broker's queue that await their answers, and their
	// states, until it returns false. It may leave out, or repeat, one that is changed meanwhile.
	Scan(ctx context.Context, queue string, yield func(id task.ID, state []byte) bool) error
}

// Subscription hands out the deferrals that are to be settled. It renews their leases until they
// are settled, and deletes what was kept long enough. All methods may be called from any goroutine.
type Subscription interface {
	// Receive returns the next deferral. It waits until there is one, and returns ctx's error,
	// [ErrClosed], or what the store has said: then call it again later. What the subscription
	// holds is returned even if ctx is done.
	Receive(ctx context.Context) (Delivery, error)
	// SetQueues limits what is taken to some of the queues, from now on.
	SetQueues(queues []string)
	// Close ends the subscription. What was handed out can still be settled until its lease ends,
	// which is renewed no more. It is idempotent.
	Close(ctx context.Context) error
}

// Delivery is a deferral in the hands of one consumer. It is settled as a [broker.Delivery] is:
// once, by Ack, Release or Next, which may be repeated after an error; [broker.ErrLeaseLost] says
// that another consumer has it.
type Delivery interface {
	// Attempt returns what the attempt has left. Its State is empty if the attempt left none.
	Attempt() Attempt
	// Outcome says why it was handed out.
	Outcome() Outcome
	// Lost is closed when another consumer has it.
	Lost() <-chan struct{}
	// Ack ends the deferral: its task is settled. It is remembered for a day that it was answered.
	// An attempt that was [Abandoned] is not over with it: whenever its message comes, it may
	// reserve a key, or be deferred.
	Ack(ctx context.Context) error
	// Release gives it back, to be handed out again after a time; one that was [Woken] at its
	// Deadline at the latest. Its lease is renewed no more, whether Release returns an error or
	// not.
	Release(ctx context.Context, after time.Duration) error
	// Next says that the task's next attempt is published, and not due before a time; zero: now. An
	// answer that comes until then is kept for that attempt, if it reserves the same key.
	Next(ctx context.Context, at time.Time) error
}

// Outcome is why a deferral is handed out.
type Outcome struct {
	Kind Kind
	// Answer is the answer of one that is Answered, any JSON value.
	Answer []byte
	// Refusal is why one is Refused.
	Refusal string
	// Deadline is until when the answer is awaited.
	Deadline time.Time
	// Again: it was handed out before, so that some of what settles it may be done.
	Again bool
}

// Kind is a kind of [Outcome].
type Kind int

// The kinds.
const (
	Answered  Kind = iota // the answer has come
	Refused               // a refusal has come
	TimedOut              // no answer came in time
	Woken                 // [Waker].Wake has asked for a look at it: it awaits its answer still
	Abandoned             // for a day its attempt was not deferred nor dropped; no answer
)
