// Package wire converts tasks and records to bytes for producers, consumers and result stores. It
// applies the configured formats and serializers and one size limit, so that both ends refuse the
// same messages.
package wire

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/reach"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/serializer/msgpack"
	"github.com/swarmiji/swarmiji/task"
)

// DefaultMaxBody is the default of serializer.Wire.MaxBody, the largest message body in bytes.
const DefaultMaxBody = 1 << 20

// Codec encodes and decodes messages with one configuration. Safe for concurrent use.
type Codec struct {
	set      *serializer.Set
	formats  []serializer.Format
	perQueue map[string]serializer.Format
	maxBody  int
	protect  *protection
}

// New makes a Codec. It returns all problems of c joined in one error.
func New(c serializer.Wire) (*Codec, error) {
	if len(c.Serializers) == 0 {
		c.Serializers = []serializer.Serializer{msgpack.Serializer{}, serializer.JSON{}, serializer.Raw{}}
	}
	if len(c.Formats) == 0 {
		c.Formats = []serializer.Format{msgpack.Compact{}, serializer.JSONFormat{}, serializer.RawFormat{}}
	}
	if c.MaxBody == 0 {
		c.MaxBody = DefaultMaxBody
	}
	var errs []error
	if c.MaxBody < 0 {
		errs = append(errs, fmt.Errorf("MaxBody is negative (%d)", c.MaxBody))
	}
	for queue, f := range c.QueueFormats {
		if err := task.CheckName(queue); err != nil {
			errs = append(errs, fmt.Errorf("QueueFormats: %w", err))
		}
		if f == nil {
			errs = append(errs, fmt.Errorf("QueueFormats: no format for queue %q", queue))
		}
	}
	set, err := serializer.NewSet(c.Serializers...)
	errs = append(errs, err)
	protect, err := newProtection(&c)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	return &Codec{set: set, formats: c.Formats, perQueue: c.QueueFormats, maxBody: c.MaxBody, protect: protect}, nil
}

// MaxBody returns the size limit of a message body in bytes.
func (c *Codec) MaxBody() int { return c.maxBody }

// Encode returns e as a message for queue, compressed and sealed as configured. It does not change
// e. Returns [serializer.ErrTooLarge] and [broker.ErrTooLarge] for a body over the limit.
func (c *Codec) Encode(queue string, e *task.Envelope) (*broker.Message, error) {
	f := c.formats[0]
	if len(c.perQueue) > 0 {
		if own, ok := c.perQueue[queue]; ok {
			f = own
		}
	}
	return c.encode(f, queue, e, nil, c.maxBody)
}

// EncodeAs encodes a later generation of a task in format f, in which it arrived, so that fields of
// a foreign writer are kept. The body may exceed the limit by broker.RetryRoom. queue is the name
// by which tasks know the queue, not that of a side queue.
//
// arrived is the result of [Codec.OpenArrived] for e. If it is not nil, its compressed arguments
// are sent again as they are.
func (c *Codec) EncodeAs(f serializer.Format, queue string, e *task.Envelope, arrived *Value) (*broker.Message, error) {
	return c.encode(f, queue, e, arrived, broker.BodyLimit(c.maxBody, 1))
}

// encode writes e in format f, compressed and sealed as configured, and stamps the task's life. If
// arrived is not nil, it replaces the arguments. Returns ErrTooLarge for a body above limit.
func (c *Codec) encode(f serializer.Format, queue string, e *task.Envelope, arrived *Value, limit int) (*broker.Message, error) {
	awaited := Awaited(e)
	if arrived != nil || !c.protect.unused(e) {
		var err error
		if e, err = c.protect.wrap(queue, e, arrived); err != nil {
			return nil, err
		}
	}
	m, err := f.Encode(e)
	if err != nil {
		return nil, err
	}
	if len(m.Body) > limit {
		return nil, tooLarge(len(m.Body), limit)
	}
	stampLife(m, e.Life)
	// If the broker dropped it on expiry, its successors would wait forever. The consumer checks the
	// expiry in the envelope.
	if awaited {
		m.Expires = time.Time{}
	}
	return m, nil
}

// Followed reports whether the task has links that run after it: successors, or the callback of its
// group.
func Followed(e *task.Envelope) bool {
	return e.Chord != nil || len(e.Then) > 0 || len(e.Else) > 0
}

// Awaited reports whether the end of the task has other waiters than its submitter: its successors,
// its group, or a job that ends with it.
func Awaited(e *task.Envelope) bool {
	return Followed(e) || len(e.Headers) > 0 && e.Headers[task.HeaderConditions] == string(e.ID)
}

// tooLarge returns the error for a body of n bytes where most are allowed. It wraps ErrTooLarge of
// packages serializer and broker.
func tooLarge(n, most int) error {
	return fmt.Errorf("the body has %d bytes, at most %d are allowed: %w: %w", n, most, serializer.ErrTooLarge, broker.ErrTooLarge)
}

// Decode reads a message in the first format that accepts it, and returns that format. It checks
// the size before decoding. Sealed or compressed content stays so until [Codec.Open]. After an
// error no process can read this message, and it belongs in the dead-letter queue.
func (c *Codec) Decode(m *broker.Message) (*task.Envelope, serializer.Format, error) {
	if most := broker.BodyLimit(c.maxBody, m.Generation); len(m.Body) > most {
		return nil, nil, tooLarge(len(m.Body), most)
	}
	if m.Properties[contentEncoding] != "" {
		var err error
		if m, err = c.inflateBody(m); err != nil {
			return nil, nil, err
		}
	}
	for _, f := range c.formats {
		e, err := f.Decode(m)
		if err == nil {
			return e, f, nil
		}
		if !errors.Is(err, serializer.ErrNotMine) {
			return nil, nil, err
		}
	}
	return nil, nil, fmt.Errorf("content type %q: %w", clip(m.ContentType), serializer.ErrUnknownType)
}

// Marshal serializes a value and returns its content type. contentType "" selects the default
// serializer. A nil value gives no data and no content type.
func (c *Codec) Marshal(contentType string, v any) (data []byte, ct string, err error) {
	if v == nil {
		return nil, "", nil
	}
	s, err := c.set.For(contentType)
	if err != nil {
		return nil, "", err
	}
	data, err = s.Marshal(v)
	return data, s.ContentType(), err
}

// Knows reports whether a serializer for contentType is configured.
func (c *Codec) Knows(contentType string) bool {
	_, err := c.set.For(contentType)
	return err == nil
}

// Unmarshal decodes data of a content type into v. Without data and content type it leaves v
// unchanged.
func (c *Codec) Unmarshal(contentType string, data []byte, v any) error {
	if len(data) == 0 && contentType == "" {
		return nil
	}
	s, err := c.set.For(contentType)
	if err != nil {
		return err
	}
	return s.Unmarshal(data, v)
}

// BindArgs decodes a task's arguments like Unmarshal. Returns [task.ErrBadArgs].
func (c *Codec) BindArgs(contentType string, data []byte, v any) error {
	err := c.Unmarshal(contentType, data, v)
	switch many, ok := err.(interface{ Unwrap() []error }); {
	case err == nil:
		return nil
	case ok && errors.Is(err, serializer.ErrValue): // its text says the same as that of ErrBadArgs
		causes := many.Unwrap()
		return reach.Also(fmt.Errorf("%w: %w", task.ErrBadArgs, causes[len(causes)-1]), serializer.ErrValue)
	}
	return fmt.Errorf("%w: %w", task.ErrBadArgs, err)
}

// Preview describes serialized data for an event. Without payload it returns media type and size.
// With payload it returns JSON unchanged, and other data as fmt prints the decoded value. The event
// cuts the text to its limit.
func (c *Codec) Preview(contentType string, data []byte, payload bool) string {
	if len(data) == 0 {
		return ""
	}
	if !payload {
		return size(contentType, data)
	}
	if contentType == serializer.ContentJSON {
		return string(data[:min(len(data), maxPreview)])
	}
	var v any
	if err := c.Unmarshal(contentType, data, &v); err != nil {
		return size(contentType, data)
	}
	return fmt.Sprint(v)
}

// size returns the media type and the size of data as one text, such as "application/json, 12
// bytes".
func size(contentType string, data []byte) string {
	var room [96]byte
	text := append(append(room[:0], clip(contentType)...), ", "...)
	return string(append(strconv.AppendInt(text, int64(len(data)), 10), " bytes"...))
}

// maxPreview is more than the limit of a text in an event, so that the event can cut it between
// characters.
const maxPreview = 2 << 10

// clip returns the first 64 bytes of s, as valid UTF-8, for an error text or a preview.
func clip(s string) string { return utf.Cut(s, 64) }
