package serializer

import (
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/task"
)

// EnvelopeHeader is the message header in which [RawFormat] carries all of an envelope but its arguments: a []byte with the
// JSON object of [JSONFormat]. It has not the prefix that adapters keep for headers of their own.
const EnvelopeHeader = "swarmiji-envelope"

// RawFormat carries the arguments as the message's body, byte for byte, so that programs which know nothing of Swarmiji can
// read the messages and write them. The rest of the envelope travels in one header. A message without that header is raw
// work for the task its queue is configured for: an envelope without a name. The zero value is ready.
//
// It needs a broker that carries headers, and claims nearly everything: in a list of formats it comes last.
type RawFormat struct{}

// ContentType returns [ContentRaw].
func (RawFormat) ContentType() string { return ContentRaw }

// Encode implements [Format]. The body is e.Args itself.
func (RawFormat) Encode(e *task.Envelope) (*broker.Message, error) {
	header, err := encodeJSON(e, false)
	if err != nil {
		return nil, err
	}
	m := NewMessage(e, ContentRaw, e.Args)
	m.Headers = map[string]any{EnvelopeHeader: header}
	return m, nil
}

// Decode implements [Format]. It claims every message but those of [ContentCompact]. Without the header the envelope has
// the broker's message id, the message's content type (or [ContentRaw]) and the native correlation id; a reply-to from
// outside is not taken over. An id or correlation that an envelope cannot hold is [ErrMalformed].
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
			f.fail(name, "no arguments in the header, they are the body")
		}
	}
	e.ContentType, e.Args = f.text("content_type"), m.Body
	return finishJSON(f, e, m)
}

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
