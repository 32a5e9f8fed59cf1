package serializer

import (
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/task"
)

// EnvelopeHeader is the message header in which [RawFormat] stores the envelope without its
// arguments: a []byte with the JSON object of [JSONFormat]. It does not begin with the prefix that
// adapters reserve for their own headers.
const EnvelopeHeader = "swarmiji-envelope"

// RawFormat is a [Format] that writes the arguments as the message's body, byte for byte. Programs
// that do not know Swarmiji can read and write such messages. The rest of the envelope is in one
// header. The zero value is ready to use.
//
// A message without that header is a task for the queue's configured task: its envelope has no
// name.
//
// The broker must support headers. RawFormat reads nearly every message, so it must be the last in
// a list of formats.
type RawFormat struct{}

// ContentType returns [ContentRaw].
func (RawFormat) ContentType() string { return ContentRaw }

// Encode implements [Format]: it returns a message whose body is e.Args itself, not a copy, with
// the rest of e in the header [EnvelopeHeader]. Returns [ErrValue] for envelopes that Decode would
// refuse.
func (RawFormat) Encode(e *task.Envelope) (*broker.Message, error) {
	header, err := encodeJSON(e, false)
	if err != nil {
		return nil, err
	}
	m := NewMessage(e, ContentRaw, e.Args)
	m.Headers = map[string]any{EnvelopeHeader: header}
	return m, nil
}

// Decode implements [Format]: it returns the envelope in the header [EnvelopeHeader], with the body
// as its arguments. For a message of [ContentCompact] it returns [ErrNotMine].
//
// Without the header, the envelope has the broker's message id, the content type (or [ContentRaw])
// and the native correlation id of the message. The message's reply-to is ignored, because it comes
// from outside.
//
// Returns [ErrMalformed] for a header that is not an envelope, and for an id or a correlation that
// is not valid in an envelope. Returns [ErrUnknownType] if the body is encoded.
func (RawFormat) Decode(m *broker.Message) (*task.Envelope, error) {
	if MediaType(m.ContentType) == ContentCompact {
		return nil, ErrNotMine
	}
	if err := CheckEncoding(m); err != nil {
		return nil, err
	}
	var header []byte
	switch v := m.Headers[EnvelopeHeader].(type) {
	case nil:
		return decodeBare(m)
	case []byte:
		header = v
	case string:
		header = []byte(v)
	default:
		return nil, fmt.Errorf("%w: header %s is a %T", ErrMalformed, EnvelopeHeader, v)
	}
	if err := ScanJSON(header); err != nil {
		return nil, fmt.Errorf("header %s: %w", EnvelopeHeader, err)
	}
	f := readFields(header)
	e := f.envelope()
	for _, name := range [...]string{"args", "args_base64"} {
		if _, given := f.members[name]; given {
			f.fail(name, "no arguments in the header; the body has them")
		}
	}
	e.ContentType, e.Args = f.text("content_type"), m.Body
	return finishJSON(f, e, m)
}

// decodeBare returns the envelope of a message without the header: the id, content type, body and
// correlation id of the message, without a name. Returns ErrMalformed if CheckEnvelope refuses it.
func decodeBare(m *broker.Message) (*task.Envelope, error) {
	e := &task.Envelope{
		Version: task.EnvelopeVersion, ID: task.ID(m.ID),
		ContentType: m.ContentType, Args: m.Body,
		Correlation: m.Properties["correlation-id"],
	}
	if e.ContentType == "" {
		e.ContentType = ContentRaw
	}
	if err := CheckEnvelope(e); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return e, nil
}
