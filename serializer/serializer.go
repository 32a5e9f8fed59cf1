// Package serializer is the port through which values and whole tasks become bytes. A [Serializer] turns arguments and
// results into bytes; a [Format] turns an envelope into a broker's message. Both are stateless and may be used from any
// goroutine. The package serializertest holds a case for every sentence of the port.
package serializer

import (
	"errors"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/task"
)

// Content types of the serializers and formats in this module.
const (
	ContentMsgpack = "application/msgpack"
	ContentJSON    = "application/json"
	ContentRaw     = "application/octet-stream"
	ContentCompact = "application/x-swarmiji" // a whole task in Compact
)

// The classes of errors of serializers and formats.
var (
	// ErrMalformed: the bytes are not what they claim to be, or break a limit of structure.
	ErrMalformed = errors.New("serializer: malformed data")
	// ErrTooLarge: larger than the configured size.
	ErrTooLarge = errors.New("serializer: too large")
	// ErrNotMine: a Format does not claim this message; another may.
	ErrNotMine = errors.New("serializer: message is of another format")
	// ErrUnknownType: no serializer for this content type, or an encoding that is not understood.
	ErrUnknownType = errors.New("serializer: unknown content type")
	// ErrValue: the value cannot be written, or does not fit the variable it is read into.
	ErrValue = errors.New("serializer: value does not fit")
)

// Serializer turns values into bytes and back.
type Serializer interface {
	// ContentType names the encoding in messages and records.
	ContentType() string
	// Marshal writes v into a new slice that belongs to the caller. The error wraps [ErrValue].
	Marshal(v any) ([]byte, error)
	// Unmarshal reads data into v, a non-nil pointer. It checks the structure of data before it allocates for it: memory
	// stays within a small multiple of len(data). Errors wrap [ErrMalformed] for the bytes and [ErrValue] for the types. It
	// keeps no reference to data.
	Unmarshal(data []byte, v any) error
}

// Format turns a whole task into a broker's message and back.
type Format interface {
	// ContentType is the content type of the messages that Encode makes.
	ContentType() string
	// Encode writes e into a new message with ID, ContentType, Body, Priority and Expires set; the caller sets Generation.
	// The body may share e.Args, which must not change from then on; e itself must not be kept.
	Encode(e *task.Envelope) (*broker.Message, error)
	// Decode reads a message. [ErrNotMine] when it is of another format, [ErrMalformed] when it claims to be of this one
	// and is not well formed. The envelope may share the message's body. Values out of range are clamped or refused; fields
	// it does not know are kept in Unknown. A message without a task id or name gives an envelope without them.
	Decode(m *broker.Message) (*task.Envelope, error)
}
