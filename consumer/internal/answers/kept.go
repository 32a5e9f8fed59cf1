package answers

import (
	"encoding/json"
	"fmt"

	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// Kept is the part of a run that its deferral stores as JSON. Consumers of other versions read it.
type Kept struct {
	Task task.ID `json:"task"`
	// with the generation of the message, the run's fencing token
	Deliveries int `json:"deliveries"`
	// milliseconds since 1970, as the times below
	Received int64 `json:"receivedMillis"`
	Started  int64 `json:"startedMillis"` // start of the handler
	// end of the handler; 0: it had not returned
	Ended int64 `json:"endedMillis,omitzero"`
	// acknowledged before its start, so the broker does not run it again
	AtMostOnce bool              `json:"atMostOnce,omitzero"`
	Onward     map[string]string `json:"onward,omitempty"`
	Message    wire.Kept         `json:"message"`
}

// Read reads the state of a deferral. A message without an id gets the id of its task. Returns an
// error if the state is not valid JSON, and [serializer.ErrMalformed] if it has no message.
func Read(state []byte) (*Kept, error) {
	var kept Kept
	if err := json.Unmarshal(state, &kept); err != nil {
		return nil, err
	}
	if kept.Message.Message == nil {
		return nil, fmt.Errorf("%w: a deferral without a message", serializer.ErrMalformed)
	}
	// the message of a foreign writer got its id when it was received
	if kept.Message.Message.ID == "" {
		kept.Message.Message.ID = string(kept.Task)
	}
	return &kept, nil
}
