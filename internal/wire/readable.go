package wire

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/serializer/msgpack"
)

// Readable returns serialized bytes as a value for JSON: raw bytes as text if they are text,
// otherwise in base64. JSON stays as it is, as a json.RawMessage. No bytes are nil. Returns the
// errors of the serializers.
func Readable(contentType string, data []byte) (any, error) {
	if len(data) == 0 {
		return nil, nil
	}
	set, err := serializer.NewSet(msgpack.Serializer{}, serializer.JSON{}, serializer.Raw{})
	if err != nil {
		return nil, err
	}
	s, err := set.For(contentType)
	if err != nil {
		return nil, err
	}
	switch s.ContentType() {
	case serializer.ContentJSON:
		return json.RawMessage(data), nil
	case serializer.ContentRaw:
		if utf8.Valid(data) {
			return string(data), nil
		}
		return data, nil
	}
	var v any
	if err := s.Unmarshal(data, &v); err != nil {
		return nil, err
	}
	return v, nil
}
