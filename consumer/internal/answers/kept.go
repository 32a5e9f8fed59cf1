package answers

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/deferral"
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
	Message    wire.Kept         `json:"message,omitzero"` // without Resumed
	// The task continues after the answer. Versions that do not know this find no message and leave
	// the deferral to others: they would take the answer for the result.
	Resumed *Resumed `json:"resumed,omitempty"`
}

// Resumed is a task that runs again after its answer.
type Resumed struct {
	Checkpoint string    `json:"checkpoint"` // the name under which the answer is stored
	Message    wire.Kept `json:"message"`
}

// AttemptOf returns the description of an attempt that its deferral stores: its names, generation,
// message and times. ended is the end of the handler, zero if it runs. With the name of a
// checkpoint the task runs again after its answer. Returns an error if the message cannot be
// encoded.
func AttemptOf(r *task.Request, m *broker.Message, ended time.Time, atMostOnce bool, checkpoint string) (deferral.Attempt, error) {
	kept := Kept{
		Task: r.ID, Deliveries: r.Deliveries, Received: r.Received.UnixMilli(), Started: r.StartedAt.UnixMilli(), AtMostOnce: atMostOnce,
		Onward: r.Onward, Message: wire.Kept{Message: m},
	}
	if !ended.IsZero() {
		kept.Ended = ended.UnixMilli()
	}
	if checkpoint != "" {
		kept.Resumed, kept.Message = &Resumed{Checkpoint: checkpoint, Message: kept.Message}, wire.Kept{}
	}
	a := deferral.Attempt{Queue: r.Queue, Name: r.Name, Task: r.ID, Generation: r.Generation, AtMostOnce: atMostOnce}
	var err error
	a.State, err = json.Marshal(kept)
	return a, err
}

// Restore sets the fields of r that the message of k does not have.
func (k *Kept) Restore(r *task.Request) {
	if r.ID != k.Task {
		e := *r.Envelope
		e.ID = k.Task
		r.Envelope = &e
	}
	r.Onward, r.Received, r.StartedAt = k.Onward, time.UnixMilli(k.Received), time.UnixMilli(k.Started)
}

// Read reads the state of a deferral. A message without an id gets the id of its task. Returns an
// error if the state is not valid JSON, and [serializer.ErrMalformed] if it has no message.
func Read(state []byte) (*Kept, error) {
	var kept Kept
	if err := json.Unmarshal(state, &kept); err != nil {
		return nil, err
	}
	if kept.Resumed != nil {
		kept.Message = kept.Resumed.Message
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
