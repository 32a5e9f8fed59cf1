package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/swarmiji/swarmiji/internal/taskio"
)

// ErrNoState is returned by State and SetState if ctx is not the context of a handler that a
// [Listener] runs in place.
var ErrNoState = errors.New("schedule: ctx is not of a run in place: State and SetState work only in handlers that a Listener runs itself")

// runState is the carried state of an entry during one run in place: the state that the last run
// left and the state for the next run. Safe for concurrent use.
type runState struct {
	mu     sync.Mutex
	before []byte // state stored by the last run
	after  []byte // set by this run; nil: not set
}

// runStateKey is the key of the *runState in the context of a handler.
type runStateKey struct{}

// State returns the state of the schedule entry for which the calling handler runs: the value that
// this run has set with [SetState], or else the one that the last run stored. The zero value means
// that no state is stored, or that SetState(ctx, nil) deleted it. It takes the lock of the run's
// state.
//
// Returns [ErrNoState] unless a [Listener] runs the handler itself (in place), and an error if the
// state is not valid JSON for S.
func State[S any](ctx context.Context) (S, error) {
	var state S
	c, ok := ctx.Value(runStateKey{}).(*runState)
	if !ok {
		return state, ErrNoState
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	text := c.before
	if c.after != nil {
		text = c.after
	}
	if len(text) == 0 {
		return state, nil
	}
	if err := taskio.Unmarshal(text, &state); err != nil {
		return state, fmt.Errorf("schedule: decoding the state of the last run: %w", err)
	}
	return state, nil
}

// SetState sets the state for the next run of the calling handler's entry, encoded as JSON. The
// last call counts. A nil state deletes the stored one. It takes the lock of the run's state.
//
// The state is stored in the same step that ends the run, if the handler returns nil. If the
// handler fails or another listener claims the tick, the stored state stays as it was.
//
// If runs of an entry overlap, the state of the run that ends last is kept. Returns [ErrNoState]
// outside a run in place, an error if state cannot be encoded, and [ErrBadEntry] if the JSON is
// longer than [MaxState].
func SetState(ctx context.Context, state any) error {
	c, ok := ctx.Value(runStateKey{}).(*runState)
	if !ok {
		return ErrNoState
	}
	text := json.RawMessage{}
	if state != nil {
		var err error
		if text, err = taskio.Marshal(state); err != nil {
			return fmt.Errorf("schedule: encoding the state: %w", err)
		}
		if len(text) > MaxState {
			return fmt.Errorf("%w: the state has %d bytes, more than %d", ErrBadEntry, len(text), MaxState)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.after = text
	return nil
}

// stateToStore returns the state set by this run: nil if the run did not set it, empty but not nil
// if the run deleted it. It takes c.mu.
func (c *runState) stateToStore() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.after
}
