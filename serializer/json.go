package serializer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// JSON is a [Serializer] that uses encoding/json. It refuses some inputs that encoding/json
// accepts; see [ScanJSON]. The zero value is ready to use.
type JSON struct {
	// DisallowUnknownFields makes Unmarshal return [ErrValue] for a member that a struct has no field
	// for, such as a misspelt one. By default such members are ignored, so that a new field does not
	// fail in consumers of an older version.
	DisallowUnknownFields bool
}

// ContentType returns [ContentJSON].
func (JSON) ContentType() string { return ContentJSON }

// Marshal implements [Serializer]: it returns v as encoding/json writes it. Returns [ErrValue] if v
// cannot be encoded or the result would not pass [ScanJSON].
func (JSON) Marshal(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrValue, err)
	}
	if err := ScanJSON(data); err != nil {
		return nil, fmt.Errorf("%w: it could not be decoded again: %w", ErrValue, err)
	}
	return data, nil
}

// Unmarshal implements [Serializer]: it decodes data into v with encoding/json. Returns
// [ErrMalformed] if data does not pass [ScanJSON], and [ErrValue] if it does not fit v.
func (j JSON) Unmarshal(data []byte, v any) error {
	if err := ScanJSON(data); err != nil {
		return err
	}
	if err := j.decode(data, v); err != nil {
		if _, ok := errors.AsType[*json.SyntaxError](err); ok {
			return fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		return fmt.Errorf("%w: %w", ErrValue, err)
	}
	return nil
}

// decode decodes data, which is one JSON value, into v. With DisallowUnknownFields it refuses a
// member without a field. It returns the error of encoding/json.
func (j JSON) decode(data []byte, v any) error {
	if !j.DisallowUnknownFields {
		return json.Unmarshal(data, v)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(v)
}
