package serializer

import (
	"encoding/json"
	"errors"
	"fmt"
)

// JSON writes values with encoding/json. The zero value is ready. It is stricter than encoding/json in what it reads: see
// [ScanJSON].
type JSON struct{}

// ContentType returns [ContentJSON].
func (JSON) ContentType() string { return ContentJSON }

// Marshal implements [Serializer]. What it returns passes [ScanJSON], or it returns [ErrValue].
func (JSON) Marshal(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrValue, err)
	}
	if err := ScanJSON(data); err != nil {
		return nil, fmt.Errorf("%w: it would not be read back: %w", ErrValue, err)
	}
	return data, nil
}

// Unmarshal implements [Serializer].
func (JSON) Unmarshal(data []byte, v any) error {
	if err := ScanJSON(data); err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		if _, ok := errors.AsType[*json.SyntaxError](err); ok {
			return fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		return fmt.Errorf("%w: %w", ErrValue, err)
	}
	return nil
}
