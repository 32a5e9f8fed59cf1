package wire

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/serializer"
)

// Kept is a message in the form in which a database stores it while no broker has it. The form is
// JSON with its own version. An older reader ignores fields that a newer version adds.
type Kept struct{ *broker.Message }

// keptVersion is the version of the JSON form.
const keptVersion = 1

// keptMessage is the JSON form of a message.
type keptMessage struct {
	Version     int            `json:"v"`
	ID          text           `json:"id,omitzero"`
	Generation  int            `json:"generation,omitzero"`
	ContentType text           `json:"contentType,omitzero"`
	Headers     []keptHeader   `json:"headers,omitempty"`
	Properties  []keptProperty `json:"properties,omitempty"`
	Body        []byte         `json:"body,omitempty"`
	Priority    int            `json:"priority"`
	Key         text           `json:"key,omitzero"`
	Weight      int            `json:"weight,omitzero"`
	Expires     int64          `json:"expiresMillis,omitzero"`
}

// keptHeader is one header. Exactly one of its value fields is set.
type keptHeader struct {
	Key   text    `json:"key"`
	Text  *text   `json:"text,omitempty"`
	Bytes *[]byte `json:"bytes,omitempty"`
	Bool  *bool   `json:"bool,omitempty"`
	Int   *int64  `json:"int,omitempty,string"`
	Float *string `json:"float,omitempty"`
}

// keptProperty is one property of a message.
type keptProperty struct {
	Key   text `json:"key"`
	Value text `json:"value"`
}

// text is a text that may come from a foreign writer. Invalid UTF-8 is written as an object with
// its bytes.
type text string

// textBytes is the JSON form of a text that is not UTF-8.
type textBytes struct {
	Bytes []byte `json:"bytes"`
}

// MarshalJSON implements json.Marshaler: it writes a JSON string, or an object with the bytes.
func (t text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal(textBytes{[]byte(t)})
}

// UnmarshalJSON implements json.Unmarshaler: it reads both forms of MarshalJSON.
func (t *text) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '{' {
		var b textBytes
		err := json.Unmarshal(data, &b)
		*t = text(b.Bytes)
		return err
	}
	return json.Unmarshal(data, (*string)(t))
}

// MarshalJSON implements json.Marshaler: it writes the message in the current version, with headers
// and properties in the order of their keys. Returns [broker.ErrMalformed] for a header value of a
// type that no broker carries.
func (k Kept) MarshalJSON() ([]byte, error) {
	m := k.Message
	out := keptMessage{
		Version: keptVersion, ID: text(m.ID), Generation: m.Generation, ContentType: text(m.ContentType), Body: m.Body, Priority: m.Priority,
		Key: text(m.Key), Weight: m.Weight,
	}
	if !m.Expires.IsZero() {
		out.Expires = m.Expires.UnixMilli()
	}
	for _, key := range slices.Sorted(maps.Keys(m.Headers)) {
		h, err := keepHeader(key, m.Headers[key])
		if err != nil {
			return nil, err
		}
		out.Headers = append(out.Headers, h)
	}
	for _, key := range slices.Sorted(maps.Keys(m.Properties)) {
		out.Properties = append(out.Properties, keptProperty{text(key), text(m.Properties[key])})
	}
	return json.Marshal(out)
}

// keepHeader returns the JSON form of a header. Returns broker.ErrMalformed for a value of another
// type than those of headers.
func keepHeader(key string, value any) (keptHeader, error) {
	h := keptHeader{Key: text(key)}
	switch v := value.(type) {
	case string:
		h.Text = new(text(v))
	case []byte:
		h.Bytes = new(append([]byte{}, v...)) // nil bytes would be written as null, which means no value
	case bool:
		h.Bool = &v
	case int64:
		h.Int = &v
	case float64:
		h.Float = new(strconv.FormatFloat(v, 'g', -1, 64))
	default:
		return h, fmt.Errorf("%w: header %q has a value of type %T", broker.ErrMalformed, clip(key), value)
	}
	return h, nil
}

// UnmarshalJSON implements json.Unmarshaler: it sets k.Message to the message that MarshalJSON
// wrote, in this or a newer version. Returns [serializer.ErrMalformed] for any other input.
func (k *Kept) UnmarshalJSON(data []byte) error {
	var in keptMessage
	if err := json.Unmarshal(data, &in); err != nil {
		return fmt.Errorf("%w: a stored message: %w", serializer.ErrMalformed, err)
	}
	if in.Version < 1 {
		return fmt.Errorf("%w: a stored message of version %d", serializer.ErrMalformed, in.Version)
	}
	m := &broker.Message{ID: string(in.ID), Generation: in.Generation, ContentType: string(in.ContentType), Body: in.Body, Priority: in.Priority, Key: string(in.Key), Weight: in.Weight}
	if in.Expires != 0 {
		m.Expires = time.UnixMilli(in.Expires).UTC()
	}
	for i := range in.Headers {
		value, err := in.Headers[i].value()
		if err != nil {
			return err
		}
		if m.Headers == nil {
			m.Headers = make(map[string]any, len(in.Headers))
		}
		m.Headers[string(in.Headers[i].Key)] = value
	}
	for _, p := range in.Properties {
		if m.Properties == nil {
			m.Properties = make(map[string]string, len(in.Properties))
		}
		m.Properties[string(p.Key)] = string(p.Value)
	}
	k.Message = m
	return nil
}

// value returns the value of the header. Returns serializer.ErrMalformed if no value is set or it
// cannot be read.
func (h *keptHeader) value() (any, error) {
	switch {
	case h.Text != nil:
		return string(*h.Text), nil
	case h.Bytes != nil:
		return *h.Bytes, nil
	case h.Bool != nil:
		return *h.Bool, nil
	case h.Int != nil:
		return *h.Int, nil
	case h.Float != nil:
		f, err := strconv.ParseFloat(*h.Float, 64)
		if err != nil {
			return nil, fmt.Errorf("%w: header %q of a stored message: %w", serializer.ErrMalformed, clip(string(h.Key)), err)
		}
		return f, nil
	}
	return nil, fmt.Errorf("%w: header %q of a stored message has no value", serializer.ErrMalformed, clip(string(h.Key)))
}
