// Package settings stores how a system is operated: which queues and tasks are paused, how fast
// they may run, and which queues a group of consumers serves. Settings do not expire. Consumers
// that start later know them before they fetch their first task.
//
//   - [Store] is the port. Packages below this one implement it for Redis, NATS, SQL databases,
//     RabbitMQ and memory.
//   - A [Key] reads and writes one typed value, for example [QueuePause].
//   - [PauseQueue], [ResumeQueue] and the like are the calls of operators.
//   - [Follow] calls a function with all values at each change. A consumer with a Store in
//     consumer.Config.Settings does so.
package settings

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/swarmiji/swarmiji/internal/naming"
)

// Errors of a [Store]. Compare them with [errors.Is].
var (
	// ErrNotFound: the key has no value.
	ErrNotFound = errors.New("swarmiji: settings: not found")
	// ErrConflict: the revision of the value is another one. Read the value again.
	ErrConflict = errors.New("swarmiji: settings: changed by another process")
	// ErrFull: the store has MaxKeys values.
	ErrFull = errors.New("swarmiji: settings: the store is full")
	// ErrBad: a key or a value is invalid.
	ErrBad = errors.New("swarmiji: settings: invalid")
	// ErrUnavailable: the store did not answer, or is closed. After Put and Delete the value may have
	// changed.
	ErrUnavailable = errors.New("swarmiji: settings: unavailable")
)

// Limits of a [Store].
const (
	MaxKey  = 300     // bytes of a key
	MaxData = 8 << 10 // bytes of a value
	MaxKeys = 10_000  // values; a store on an event bus holds fewer
)

// maxParts is the largest number of names in a key.
const maxParts = 4

// Value is a stored value.
type Value struct {
	Key  string
	Data []byte // belongs to the caller
	// Revision identifies this state of the value. It is at least 1, and grows with each change.
	Revision uint64
}

// Readable reports whether v has a revision and a valid key, for authors of stores: another program
// may have written something else.
func (v *Value) Readable() bool { return v.Revision > 0 && CheckKey(v.Key) == nil }

// Store keeps values by key, without expiry. All methods wait for the server until ctx ends. Safe
// for concurrent use. Package settingstest has a case for each sentence about its behaviour.
//
// A key is a list of names as task.CheckName allows them, separated by '/'. A value is any bytes.
// All methods return [ErrBad] for a key or a value that is invalid or too large, and
// [ErrUnavailable] if the server does not answer.
type Store interface {
	// Get returns the value of a key. Returns [ErrNotFound] if the key has no value.
	Get(ctx context.Context, key string) (Value, error)
	// Put stores data as the value of a key and returns the new revision. revision is that of the
	// value to replace, or 0 if the key must have no value.
	//
	// Returns [ErrConflict], and changes nothing, if the present revision is another one. Returns
	// [ErrFull] if the key is new and the store has MaxKeys values.
	Put(ctx context.Context, key string, data []byte, revision uint64) (uint64, error)
	// Delete removes the value of a key if its present revision is revision. Returns [ErrConflict],
	// and changes nothing, if the present revision is another one or the key has no value.
	Delete(ctx context.Context, key string, revision uint64) error
	// List returns the values whose keys begin with prefix, sorted by key; "": all. It leaves out
	// entries that another program has written and that a Store would not write.
	List(ctx context.Context, prefix string) ([]Value, error)
	// Watch calls changed soon after each change of any process, until stop is called. One call may
	// stand for several changes, and a call may come without a change. After a lost connection it
	// calls changed again, so that a List then finds the missed changes.
	//
	// changed is called on another goroutine and must return at once. stop does not wait for a running
	// call. It may be called twice.
	Watch(changed func()) (stop func())
	// Close ends all calls and watches, and releases the connection. Further calls do nothing.
	Close(ctx context.Context) error
}

// CheckKey returns nil for a key that a [Store] accepts, and otherwise an error that wraps
// [ErrBad].
func CheckKey(key string) error {
	parts := strings.Split(key, "/")
	if len(key) > MaxKey || len(parts) > maxParts {
		return fmt.Errorf("%w: a key has at most %d bytes and %d names", ErrBad, MaxKey, maxParts)
	}
	for _, p := range parts {
		if !naming.ValidName(p) {
			return fmt.Errorf("%w: key %q: a name has 1 to %d letters, digits, '.', '_' and '-'", ErrBad, key, naming.MaxName)
		}
	}
	return nil
}

// CheckPut returns nil for a key and a value that a [Store] accepts. Otherwise, for an invalid key
// or a value above [MaxData], it returns an error that wraps [ErrBad].
func CheckPut(key string, data []byte) error {
	if len(data) > MaxData {
		return fmt.Errorf("%w: the value of %q has %d bytes, at most %d are allowed", ErrBad, key, len(data), MaxData)
	}
	return CheckKey(key)
}

// SettlePut completes a Put to s whose outcome may be unknown, for authors of stores. It calls try,
// which makes one attempt, and repeats it while again returns true for its error. again must do so
// only if the attempt may or may not have stored the value, and waits before the next one.
//
// A repeated attempt may return [ErrConflict] because an earlier one succeeded. SettlePut then
// reads the value. A newer value with the same data counts as stored: SettlePut returns its
// revision. Otherwise it returns the last result of try.
func SettlePut(ctx context.Context, s Store, key string, data []byte, revision uint64, try func() (uint64, error), again func(err error, attempt int) bool) (uint64, error) {
	return settle(try, again, func() (uint64, bool) {
		v, err := s.Get(ctx, key)
		return v.Revision, err == nil && v.Revision > revision && string(v.Data) == string(data)
	})
}

// SettleDelete completes a Delete from s whose outcome may be unknown, as [SettlePut] completes a
// Put. If a repeated attempt returns [ErrConflict] and the key has no value, the value counts as
// deleted: SettleDelete returns nil.
func SettleDelete(ctx context.Context, s Store, key string, try func() error, again func(err error, attempt int) bool) error {
	_, err := settle(func() (uint64, error) { return 0, try() }, again, func() (uint64, bool) {
		_, err := s.Get(ctx, key)
		return 0, errors.Is(err, ErrNotFound)
	})
	return err
}

// settle calls try, and repeats it while again returns true for its error. It returns the last
// result of try. If a repeated try returns [ErrConflict], it calls own, which reports whether an
// earlier try made the change, and the new revision. If so, settle returns that revision and nil.
func settle(try func() (uint64, error), again func(err error, attempt int) bool, own func() (uint64, bool)) (uint64, error) {
	for attempt := 0; ; attempt++ {
		revision, err := try()
		switch {
		case err == nil:
			return revision, nil
		case attempt > 0 && errors.Is(err, ErrConflict):
			if revision, ok := own(); ok {
				return revision, nil
			}
			return 0, err
		case !again(err, attempt):
			return 0, err
		}
	}
}

// Ended returns [ErrUnavailable] with the cause of ctx if ctx has ended, else nil, for authors of
// stores.
func Ended(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
}
