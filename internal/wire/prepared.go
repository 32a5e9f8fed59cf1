package wire

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/task"
)

// ErrPrepared reports that a prepared task cannot be read.
var ErrPrepared = fmt.Errorf("%w: not a task that was prepared for a broker", task.ErrBadArgs)

// preparedVersion is the version of the form that [Prepare] writes. A reader refuses a newer one,
// because it could lose parts of the message.
const preparedVersion = 1

// prepared is the JSON form of a message that will be published later.
type prepared struct {
	Version int    `json:"swarmiji"`
	Queue   string `json:"queue"`
	Message Kept   `json:"message"`
}

// Prepare returns the serialized form of m for a queue, which any process may publish later. It
// publishes nothing. Returns the error of a message that cannot be kept.
func Prepare(queue string, m *broker.Message) ([]byte, error) {
	return json.Marshal(&prepared{Version: preparedVersion, Queue: queue, Message: Kept{m}})
}

// ReadPrepared reads the output of [Prepare]. Returns [ErrPrepared] for any other input.
func ReadPrepared(data []byte) (queue string, m *broker.Message, err error) {
	var p prepared
	if err := json.Unmarshal(data, &p); err != nil {
		return "", nil, fmt.Errorf("%w: %w", ErrPrepared, err)
	}
	if p.Version != preparedVersion || p.Message.Message == nil {
		return "", nil, fmt.Errorf("%w: its version is %d, only %d is supported", ErrPrepared, p.Version, preparedVersion)
	}
	if err := errors.Join(task.ID(p.Message.ID).Check(), task.CheckName(p.Queue)); err != nil {
		return "", nil, fmt.Errorf("%w: %w", ErrPrepared, err)
	}
	return p.Queue, p.Message.Message, nil
}
