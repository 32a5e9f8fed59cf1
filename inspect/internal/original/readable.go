package original

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/serializer/msgpack"
)

// Readable returns serialized bytes as JSON: raw bytes as text if they are text, otherwise in
// base64. Returns the errors of the serializers.
func Readable(contentType string, data []byte) (json.RawMessage, error) {
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
	var v any = data
	switch s.ContentType() {
	case serializer.ContentJSON:
		return data, nil
	case serializer.ContentRaw:
		if utf8.Valid(data) {
			v = string(data)
		}
	default:
		v = nil
		if err := s.Unmarshal(data, &v); err != nil {
			return nil, err
		}
	}
	return json.Marshal(v)
}
