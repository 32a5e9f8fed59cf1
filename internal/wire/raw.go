package wire

import (
	"bytes"
	"errors"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// HeaderBare marks the copy of a message that had no envelope: its arguments are the bytes of a
// foreign writer.
const HeaderBare = "swarmiji-bare" // string "1"

// DecodeRaw decodes a message of a queue of raw work. It is an envelope only if one of these says
// so:
//   - the content type of its format
//   - the header of [serializer.RawFormat]
//   - as JSON, the id of the message, which the object has, too
//
// Any other body becomes the arguments, whatever its content and content type; bare is true then.
// Returns the errors of [Codec.Decode].
func (c *Codec) DecodeRaw(m *broker.Message) (e *task.Envelope, f serializer.Format, bare bool, err error) {
	if most := broker.BodyLimit(c.maxBody, m.Generation); len(m.Body) > most {
		return nil, nil, false, tooLarge(len(m.Body), most)
	}
	media := serializer.MediaType(m.ContentType)
	for _, format := range c.formats {
		byType := media == format.ContentType() && media != serializer.ContentJSON && media != serializer.ContentRaw
		_, isJSON := format.(serializer.JSONFormat)
		byID := isJSON && m.ID != "" && bytes.Contains(m.Body, []byte(`"`+m.ID+`"`))
		if !byType && !byID {
			continue
		}
		e, f, err = c.Decode(m)
		if err == nil && f.ContentType() == serializer.ContentRaw { // not an envelope after all
			break
		}
		if byType || !errors.Is(err, serializer.ErrMalformed) && !errors.Is(err, serializer.ErrUnknownType) {
			return e, f, false, err
		}
	}
	if m.Properties[contentEncoding] != "" {
		if m, err = c.inflateBody(m); err != nil {
			return nil, nil, false, err
		}
	}
	if m.Headers[serializer.EnvelopeHeader] != nil {
		e, err = serializer.RawFormat{}.Decode(m)
		return e, serializer.RawFormat{}, m.Headers[HeaderBare] != nil, err
	}
	if err := serializer.CheckEncoding(m); err != nil {
		return nil, nil, false, err
	}
	e = &task.Envelope{Version: task.EnvelopeVersion, ContentType: media, Args: m.Body}
	if !c.Knows(media) {
		e.ContentType = serializer.ContentRaw
	}
	if id := task.ID(m.ID); id.Check() == nil {
		e.ID = id
	}
	e.Correlation = m.Properties["correlation-id"]
	if serializer.CheckEnvelope(e) != nil {
		e.Correlation = ""
	}
	return e, serializer.RawFormat{}, true, nil
}

// BindBare decodes arguments of a foreign writer like [Codec.BindArgs], except that a *[]byte
// receives the bytes unchanged.
func (c *Codec) BindBare(contentType string, data []byte, v any) error {
	if _, ok := v.(*[]byte); ok {
		return serializer.Raw{}.Unmarshal(data, v)
	}
	return c.BindArgs(contentType, data, v)
}
