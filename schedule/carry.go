package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/swarmiji/swarmiji/internal/errand"
)

// ErrNoState is what State and SetState return outside of a run that a [Listener] makes in place.
var ErrNoState = errors.New("schedule: not in a run of a schedule: state is carried where a Listener runs handlers in place")

// carried is the state of one run.
type carried struct {
	mu     sync.Mutex
	before []byte // what the last run left
	after  []byte // what this one leaves; nil: as it was
}

type carriedKey struct{}

// State returns what the last run of the calling handler's entry left with [SetState], or what this one has set already. The zero value:
// nothing was left.
func State[S any](ctx context.Context) (S, error) {
	var state S
	c, ok := ctx.Value(carriedKey{}).(*carried)
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
	if err := errand.Unmarshal(text, &state); err != nil {
		return state, fmt.Errorf("schedule: the state of the last run: %w", err)
	}
	return state, nil
}

// SetState leaves state, as JSON, for the next run of the calling handler's entry. It is kept when the handler returns nil, in the same step that
// ends the run, and dropped when it fails. nil leaves nothing. Of runs that overlap the one that ends last counts.
func SetState(ctx context.Context, state any) error {
	c, ok := ctx.Value(carriedKey{}).(*carried)
	if !ok {
		return ErrNoState
	}
	text := json.RawMessage{}
	if state != nil {
		var err error
		if text, err = errand.Marshal(state); err != nil {
			return fmt.Errorf("schedule: state: %w", err)
		}
		if len(text) > MaxState {
			return fmt.Errorf("%w: a state of %d bytes, more than %d", ErrBadEntry, len(text), MaxState)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.after = text
	return nil
}

// left returns what the run leaves; nil: what there was stays.
func (c *carried) left() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.after
}
