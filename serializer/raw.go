package serializer

import "fmt"

// Raw is a [Serializer] that does not change bytes. It writes []byte, string and *[]byte, and reads
// into *[]byte, *string and *any, which becomes a []byte. Returns [ErrValue] for other types. The
// zero value is ready to use.
type Raw struct{}

// ContentType returns [ContentRaw].
func (Raw) ContentType() string { return ContentRaw }

// Marshal implements [Serializer]: it returns a copy of the bytes of v. A nil v is written as no
// bytes. Returns [ErrValue] if v has another type than those of [Raw].
func (Raw) Marshal(v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return []byte{}, nil
	case []byte:
		return append([]byte{}, v...), nil
	case string:
		return []byte(v), nil
	case *[]byte:
		if v != nil {
			return append([]byte{}, *v...), nil
		}
	}
	return nil, fmt.Errorf("%w: raw bytes from a %T", ErrValue, v)
}

// Unmarshal implements [Serializer]: it stores a copy of data in v. Returns [ErrValue] if v has
// another type than those of [Raw].
func (Raw) Unmarshal(data []byte, v any) error {
	switch v := v.(type) {
	case *[]byte:
		if v != nil {
			*v = append([]byte{}, data...)
			return nil
		}
	case *string:
		if v != nil {
			*v = string(data)
			return nil
		}
	case *any:
		if v != nil {
			*v = append([]byte{}, data...)
			return nil
		}
	}
	return fmt.Errorf("%w: raw bytes into a %T", ErrValue, v)
}
