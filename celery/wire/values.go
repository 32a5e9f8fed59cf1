package wire

import (
	"fmt"

	"github.com/swarmiji/swarmiji/serializer"
)

// JSONValues is a [serializer.JSON] for results that Python reads: a whole float has a fraction,
// 2.0, so that it stays a float. The zero value is ready to use.
type JSONValues struct{ serializer.JSON }

// Marshal implements [serializer.Serializer]. A []byte is written as encoding/json does. Returns
// the errors of [serializer.JSON].
func (s JSONValues) Marshal(v any) ([]byte, error) {
	data, err := appendJSON(nil, v)
	if err != nil {
		return s.JSON.Marshal(v)
	}
	if err := serializer.ScanJSON(data); err != nil {
		return nil, fmt.Errorf("%w: it could not be decoded again: %w", serializer.ErrValue, err)
	}
	return data, nil
}
