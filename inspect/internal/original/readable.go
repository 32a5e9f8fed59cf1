package original

import (
	"encoding/json"

	"github.com/swarmiji/swarmiji/internal/wire"
)

// Readable returns serialized bytes as JSON, see [wire.Readable]. No bytes are nil.
func Readable(contentType string, data []byte) (json.RawMessage, error) {
	v, err := wire.Readable(contentType, data)
	if raw, ok := v.(json.RawMessage); ok || err != nil || len(data) == 0 {
		return raw, err
	}
	return json.Marshal(v)
}
