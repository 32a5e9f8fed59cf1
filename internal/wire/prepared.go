package wire

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/task"
)

// ErrPrepared is what a task that was prepared, and cannot be read, is refused with.
var ErrPrepared = fmt.Errorf("%w: it is no task that was prepared for a broker", task.ErrBadArgs)

// preparedVersion is the version of the form that [Prepare] writes. A reader refuses a newer one: its message may say what this one would lose.
const preparedVersion = 1

// prepared is a message that is to be published later, as a JSON object.
type prepared struct {
	Version int    `json:"swarmiji"`
	Queue   string `json:"queue"`
	Message Kept   `json:"message"`
}

// Prepare writes a message for a queue, to be published later and elsewhere.
func Prepare(queue string, m *broker.Message) ([]byte, error) {
	return json.Marshal(&prepared{Version: preparedVersion, Queue: queue, Message: Kept{m}})
}

// ReadPrepared reads what [Prepare] wrote. An error wraps [ErrPrepared].
func ReadPrepared(data []byte) (queue string, m *broker.Message, err error) {
	var p prepared
	if err := json.Unmarshal(data, &p); err != nil {
		return "", nil, fmt.Errorf("%w: %w", ErrPrepared, err)
	}
	if p.Version != preparedVersion || p.Message.Message == nil {
		return "", nil, fmt.Errorf("%w: its version is %d, and %d is known", ErrPrepared, p.Version, preparedVersion)
	}
	if err := errors.Join(task.ID(p.Message.ID).Check(), task.CheckName(p.Queue)); err != nil {
		return "", nil, fmt.Errorf("%w: %w", ErrPrepared, err)
	}
	return p.Queue, p.Message.Message, nil
}
