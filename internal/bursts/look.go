package bursts

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// State says why a message of a burst waits.
type State struct {
	Due    time.Time // of a debounced burst that accepts submissions; zero for others
	Behind task.ID   // the task of the key that must end before; "": none
}

// Look returns the state of the burst with the mark m, for a message of the task id with this task
// name. It changes nothing. Returns errors of the store.
func (s *Store) Look(ctx context.Context, name string, m Mark, id task.ID) (st State, err error) {
	_, err = s.change(ctx, m.storeKey(name), nil, func(r *record, now time.Time) bool {
		st = State{}
		switch {
		case m.Latest && r.Run.active(now) && r.Run.ID != id:
			st.Behind = r.Run.ID
		case !m.Latest && r.Wait != nil && r.Wait.ID == id:
			st.Due = time.UnixMilli(r.Wait.Due)
		}
		return false
	})
	return st, err
}
