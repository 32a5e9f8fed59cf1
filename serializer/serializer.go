// Package serializer is the port for encoding values and tasks. A [Serializer] encodes arguments
// and results as bytes. A [Format] encodes a task's envelope as a broker's message. Both are
// stateless and safe for concurrent use. The package serializertest has a test case for each
// sentence of the port.
package serializer

import (
	"errors"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/task"
)

// Content types of the serializers and formats of this module.
const (
	ContentMsgpack = "application/msgpack"
	ContentJSON    = "application/json"
	ContentRaw     = "application/octet-stream"
	ContentCompact = "application/x-swarmiji" // a whole task in Compact
)

// Errors of serializers and formats.
var (
	// ErrMalformed: the bytes are not valid for their content type, or exceed a limit.
	ErrMalformed = errors.New("serializer: malformed data")
	// ErrTooLarge: the data exceeds the configured size.
	ErrTooLarge = errors.New("serializer: too large")
	// ErrNotMine: the message is of another Format.
	ErrNotMine = errors.New("serializer: message is of another format")
	// ErrUnknownType: the content type has no serializer, or the content encoding is not supported.
	ErrUnknownType = errors.New("serializer: unknown content type")
	// ErrValue: the value cannot be encoded, or does not fit the variable.
	ErrValue = errors.New("serializer: value does not fit")
)

// Serializer encodes and decodes values.
type Serializer interface {
	// ContentType returns the name of the encoding in messages and records.
	ContentType() string
	// Marshal encodes v into a new slice that belongs to the caller. The error wraps [ErrValue].
	Marshal(v any) ([]byte, error)
	// Unmarshal decodes data into v, a non-nil pointer. It keeps no reference to data. It checks the
	// structure of data before it allocates memory, so it needs at most a small multiple of len(data).
	//
	// Errors wrap [ErrMalformed] if data is invalid, and [ErrValue] if it does not fit the type of v.
	Unmarshal(data []byte, v any) error
}

// Format encodes and decodes whole tasks as a broker's messages.
type Format interface {
	// ContentType returns the content type of the messages from Encode.
	ContentType() string
	// Encode returns a new message for e with ID, ContentType, Body, Priority, Key, Weight and Expires
	// set. The caller sets Generation. The body may share memory with e.Args, which must not change
	// afterwards. Encode must not keep e.
	Encode(e *task.Envelope) (*broker.Message, error)
	// Decode returns the envelope of a message. The envelope may share memory with the message's body.
	//
	//   - Returns [ErrNotMine] if the message is of another format.
	//   - Returns [ErrMalformed] if it is of this format and invalid.
	//   - Values out of range are clamped or refused; unknown fields are kept in Unknown.
	//   - If the message has no task id or name, those fields of the envelope are empty.
	Decode(m *broker.Message) (*task.Envelope, error)
}
