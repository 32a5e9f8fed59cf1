// Package wire is how producer, consumer and result stores turn tasks and records into bytes: the configured formats and
// serializers behind one size limit, so that both ends refuse the same messages.
package wire

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/serializer/msgpack"
	"github.com/swarmiji/swarmiji/task"
)

// DefaultMaxBody is the largest message body, in bytes, that producers send and consumers decode unless told otherwise.
const DefaultMaxBody = 1 << 20

// Codec is safe for concurrent use.
type Codec struct {
	set      *serializer.Set
	formats  []serializer.Format
	perQueue map[string]serializer.Format
	maxBody  int
	protect  *protection
}

// New makes a Codec, or says what in c cannot be.
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
		errs = append(errs, fmt.Errorf("MaxBody is %d", c.MaxBody))
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

// MaxBody returns the size limit in bytes.
func (c *Codec) MaxBody() int { return c.maxBody }

// Encode writes e as a message for queue, compressed and sealed where that is configured; e stays as it is. A body over the limit is [serializer.ErrTooLarge] and [broker.ErrTooLarge].
func (c *Codec) Encode(queue string, e *task.Envelope) (*broker.Message, error) {
	f := c.formats[0]
	if len(c.perQueue) > 0 {
		if own, ok := c.perQueue[queue]; ok {
			f = own
		}
	}
	return c.encode(f, queue, e, c.maxBody)
}

// EncodeAs is Encode of a later generation in a given format, the one that e came in, so that a
// foreign writer's fields are kept. It may be larger by broker.RetryRoom. queue is the name under
// which tasks know the queue, which is not that of a side queue.
func (c *Codec) EncodeAs(f serializer.Format, queue string, e *task.Envelope) (*broker.Message, error) {
	return c.encode(f, queue, e, broker.BodyLimit(c.maxBody, 1))
}

func (c *Codec) encode(f serializer.Format, queue string, e *task.Envelope, limit int) (*broker.Message, error) {
	awaited := Awaited(e)
	if !c.protect.idle(e) {
		var err error
		if e, err = c.protect.wrap(queue, e); err != nil {
			return nil, err
		}
	}
	m, err := f.Encode(e)
	if err != nil {
		return nil, err
	}
	if len(m.Body) > limit {
		return nil, c.tooLarge(len(m.Body))
	}
	stampLife(m, e.Life)
	if awaited { // a broker that drops it would let those wait for ever who follow: the consumer looks at the envelope's own
		m.Expires = time.Time{}
	}
	return m, nil
}

// Followed reports whether something waits for the task's end besides its result: successors, or a group.
func Followed(e *task.Envelope) bool {
	return e.Chord != nil || len(e.Then) > 0 || len(e.Else) > 0
}

// Awaited reports whether something waits for the task's end besides whoever submitted it: what follows it, or a job that is over with it.
func Awaited(e *task.Envelope) bool {
	return Followed(e) || len(e.Headers) > 0 && e.Headers[task.HeaderConditions] == string(e.ID)
}

func (c *Codec) tooLarge(n int) error {
	return fmt.Errorf("body of %d bytes, limit %d: %w: %w", n, c.maxBody, serializer.ErrTooLarge, broker.ErrTooLarge)
}

// Decode reads a message in the first format that claims it, and returns that format. The size is checked before any
// decoding. What is sealed or compressed inside of it stays so until [Codec.Open]. An error means that no one can read this message: it belongs to the dead letters.
func (c *Codec) Decode(m *broker.Message) (*task.Envelope, serializer.Format, error) {
	if len(m.Body) > broker.BodyLimit(c.maxBody, m.Generation) {
		return nil, nil, c.tooLarge(len(m.Body))
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

// Marshal writes a value and returns its content type. contentType "" means the default serializer. A nil value is no
// bytes and no content type.
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

// Unmarshal reads data of a content type into v. No data leaves v as it is.
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

// BindArgs is Unmarshal of a task's arguments: the error wraps [task.ErrBadArgs].
func (c *Codec) BindArgs(contentType string, data []byte, v any) error {
	if err := c.Unmarshal(contentType, data, v); err != nil {
		return fmt.Errorf("%w: %w", task.ErrBadArgs, err)
	}
	return nil
}

// Preview describes serialized data for an event: its media type and size, or with payload its text: JSON as it is, other
// encodings as fmt prints their decoded value. The event cuts it to its limit.
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

// size tells what data are without telling what is in them, in one allocation.
func size(contentType string, data []byte) string {
	var room [96]byte
	text := append(append(room[:0], clip(contentType)...), ", "...)
	return string(append(strconv.AppendInt(text, int64(len(data)), 10), " bytes"...))
}

// maxPreview is more than an event takes of a text, so that it can end at a character's border.
const maxPreview = 2 << 10

func clip(s string) string { return utf.Cut(s, 64) }
