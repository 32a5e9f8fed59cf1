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

// Kept is a message as it is kept in a database while no broker has it. It is written as JSON, with its own version; what a newer version adds is left out by an
// older reader.
type Kept struct{ *broker.Message }

// keptVersion is that of the JSON.
const keptVersion = 1

// keptMessage is the JSON of a message.
type keptMessage struct {
	Version     int            `json:"v"`
	ID          text           `json:"id,omitzero"`
	Generation  int            `json:"generation,omitzero"`
	ContentType text           `json:"contentType,omitzero"`
	Headers     []keptHeader   `json:"headers,omitempty"`
	Properties  []keptProperty `json:"properties,omitempty"`
	Body        []byte         `json:"body,omitempty"`
	Priority    int            `json:"priority"`
	Expires     int64          `json:"expiresMillis,omitzero"`
}

// keptHeader has one of its values.
type keptHeader struct {
	Key   text    `json:"key"`
	Text  *text   `json:"text,omitempty"`
	Bytes *[]byte `json:"bytes,omitempty"`
	Bool  *bool   `json:"bool,omitempty"`
	Int   *int64  `json:"int,omitempty,string"`
	Float *string `json:"float,omitempty"`
}

type keptProperty struct {
	Key   text `json:"key"`
	Value text `json:"value"`
}

// text is a text of a foreign writer, which may be no UTF-8: then it is an object with its bytes.
type text string

type textBytes struct {
	Bytes []byte `json:"bytes"`
}

// MarshalJSON implements json.Marshaler.
func (t text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal(textBytes{[]byte(t)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *text) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '{' {
		var b textBytes
		err := json.Unmarshal(data, &b)
		*t = text(b.Bytes)
		return err
	}
	return json.Unmarshal(data, (*string)(t))
}

// MarshalJSON implements json.Marshaler. A header with a value that no broker carries is an error.
func (k Kept) MarshalJSON() ([]byte, error) {
	m := k.Message
	out := keptMessage{
		Version: keptVersion, ID: text(m.ID), Generation: m.Generation, ContentType: text(m.ContentType), Body: m.Body, Priority: m.Priority,
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

func keepHeader(key string, value any) (keptHeader, error) {
	h := keptHeader{Key: text(key)}
	switch v := value.(type) {
	case string:
		h.Text = new(text(v))
	case []byte:
		h.Bytes = new(append([]byte{}, v...)) // null would be none
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

// UnmarshalJSON implements json.Unmarshaler. The error wraps [serializer.ErrMalformed].
func (k *Kept) UnmarshalJSON(data []byte) error {
	var in keptMessage
	if err := json.Unmarshal(data, &in); err != nil {
		return fmt.Errorf("%w: a message that was kept: %w", serializer.ErrMalformed, err)
	}
	if in.Version < 1 {
		return fmt.Errorf("%w: a message that was kept in version %d", serializer.ErrMalformed, in.Version)
	}
	m := &broker.Message{ID: string(in.ID), Generation: in.Generation, ContentType: string(in.ContentType), Body: in.Body, Priority: in.Priority}
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
			return nil, fmt.Errorf("%w: header %q of a message that was kept: %w", serializer.ErrMalformed, clip(string(h.Key)), err)
		}
		return f, nil
	}
	return nil, fmt.Errorf("%w: header %q of a message that was kept has no value", serializer.ErrMalformed, clip(string(h.Key)))
}
