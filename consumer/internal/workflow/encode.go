package workflow

import (
	"fmt"

	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// Encode encodes the result of a handler with the serializer of contentType, "" for the default
// one. If that serializer is for raw bytes and cannot encode the result, it uses the default one.
// Returns [task.ErrBadResult] if the result cannot be encoded, or is larger than limit in bytes.
func Encode(codec *wire.Codec, contentType string, result any, limit int) (data []byte, ct string, err error) {
	data, ct, err = codec.Marshal(contentType, result)
	if err != nil && contentType == serializer.ContentRaw {
		data, ct, err = codec.Marshal("", result) // raw arguments, typed result
	}
	return checked(data, ct, err, limit)
}

// EncodeJSON returns data, a JSON value, as a result. If codec has no JSON serializer, it encodes
// the value with the serializer of contentType, "" for the default one. Its errors are those of
// Encode.
func EncodeJSON(codec *wire.Codec, contentType string, data []byte, limit int) (result []byte, ct string, err error) {
	if codec.Knows(serializer.ContentJSON) {
		return checked(data, serializer.ContentJSON, nil, limit)
	}
	value, err := wire.ReadJSON(data)
	if err == nil {
		data, contentType, err = codec.Marshal(contentType, value)
	}
	return checked(data, contentType, err, limit)
}

// checked returns its arguments, or [task.ErrBadResult] if err is not nil or data has more bytes
// than limit.
func checked(data []byte, contentType string, err error, limit int) ([]byte, string, error) {
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("%w: %w", task.ErrBadResult, err)
	case len(data) > limit:
		return nil, "", fmt.Errorf("%w: %d bytes, limit %d", task.ErrBadResult, len(data), limit)
	}
	return data, contentType, nil
}
