// Package messagecode holds the checks of a message and the stored form of its headers and
// properties, for brokers whose servers know neither.
package messagecode

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/internal/rawmsgpack"
)

const (
	maxID = 255
	// maxExtras limits the stored headers and properties, in bytes.
	maxExtras = 64 << 10
)

// ValidID reports whether a message may have the id: 1 to maxID visible ASCII characters. The ids
// of tasks are shorter.
func ValidID(id string) bool {
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return false
		}
	}
	return id != "" && len(id) <= maxID
}

// Check returns nil if m can be stored. Returns ErrTooLarge for a body of more than maxBody bytes.
// Returns ErrMalformed for a nil m and for an id that is not valid. It does so too for a Generation
// or Priority beyond 32 bits, for a content type of more than 255 bytes, and as CheckKey does.
func Check(m *broker.Message, maxBody int) error {
	switch {
	case m == nil:
		return fmt.Errorf("%w: no message", broker.ErrMalformed)
	case len(m.Body) > broker.BodyLimit(maxBody, m.Generation):
		return fmt.Errorf("%w: body of %d bytes, the limit is %d", broker.ErrTooLarge, len(m.Body), maxBody)
	case !ValidID(m.ID):
		return fmt.Errorf("%w: the id is not 1 to %d visible ASCII characters", broker.ErrMalformed, maxID)
	case m.Generation < 0 || m.Generation >= math.MaxInt32:
		return fmt.Errorf("%w: generation %d", broker.ErrMalformed, m.Generation)
	case m.Priority < math.MinInt32 || m.Priority > math.MaxInt32:
		return fmt.Errorf("%w: priority %d", broker.ErrMalformed, m.Priority)
	case len(m.ContentType) > math.MaxUint8:
		return fmt.Errorf("%w: content type of %d bytes", broker.ErrMalformed, len(m.ContentType))
	}
	return broker.CheckFairness(m)
}

// SetKey sets the Key and the Weight of m to stored values. It leaves out those that are not valid.
func SetKey(m *broker.Message, key string, weight int64) {
	if naming.ValidKey(key) {
		m.Key = key
	}
	if weight > 0 && weight <= naming.MaxWeight {
		m.Weight = int(weight)
	}
}

// The headers in which the extras have the Key and the Weight of a message. An older version of an
// adapter takes them for foreign headers, which a retry keeps.
const (
	headerKey    = "swj-key"    // string
	headerWeight = "swj-weight" // int64
)

// foreignHeaders returns the headers of m without those that hold a Key and a Weight.
func foreignHeaders(m *broker.Message) map[string]any {
	_, key := m.Headers[headerKey]
	_, weight := m.Headers[headerWeight]
	if !key && !weight {
		return m.Headers
	}
	h := maps.Clone(m.Headers)
	delete(h, headerKey)
	delete(h, headerWeight)
	return h
}

// AppendExtras appends the headers, Key, Weight and properties of m to v, as two msgpack maps. It
// appends nothing if all of them are empty. Returns ErrMalformed for a text that is not UTF-8 or a
// header of another type. Returns ErrTooLarge above 64 KiB.
func AppendExtras(v []byte, m *broker.Message) ([]byte, error) {
	if len(m.Headers)+len(m.Properties)+len(m.Key)+m.Weight == 0 {
		return v, nil
	}
	before := len(v)
	v, err := appendMaps(v, m)
	if size := len(v) - before; err == nil && size > maxExtras {
		return nil, fmt.Errorf("%w: headers of %d bytes, the limit is %d", broker.ErrTooLarge, size, maxExtras)
	}
	return v, err
}

// appendMaps appends the headers, Key, Weight and properties of m to v, as two msgpack maps,
// also if they are empty, and without a limit. Its errors are those of AppendExtras.
//
// Key and Weight are the first headers, in this order. So a script of a server can read them
// without decoding the map.
func appendMaps(v []byte, m *broker.Message) ([]byte, error) {
	headers := foreignHeaders(m)
	own := 0
	if m.Key != "" {
		own++
	}
	if m.Weight != 0 {
		own++
	}
	v = rawmsgpack.AppendMapLen(v, len(headers)+own)
	if m.Key != "" {
		v = rawmsgpack.AppendText(rawmsgpack.AppendText(v, headerKey), m.Key)
	}
	if m.Weight != 0 {
		v = rawmsgpack.AppendInt(rawmsgpack.AppendText(v, headerWeight), int64(m.Weight))
	}
	for _, k := range sortedKeys(headers) {
		if !utf8.ValidString(k) {
			return nil, fmt.Errorf("%w: the name of header %.40q is not UTF-8", broker.ErrMalformed, k)
		}
		v = rawmsgpack.AppendText(v, k)
		switch h := headers[k].(type) {
		case string:
			if !utf8.ValidString(h) {
				return nil, fmt.Errorf("%w: header %.40q is a text that is not UTF-8", broker.ErrMalformed, k)
			}
			v = rawmsgpack.AppendText(v, h)
		case []byte:
			v = rawmsgpack.AppendBytes(v, h)
		case bool:
			v = rawmsgpack.AppendBool(v, h)
		case int64:
			v = rawmsgpack.AppendInt(v, h)
		case float64:
			v = append(v, 0xcb)
			v = binary.BigEndian.AppendUint64(v, math.Float64bits(h))
		default:
			return nil, fmt.Errorf("%w: header %.40q has the type %T, which cannot be sent", broker.ErrMalformed, k, h)
		}
	}
	v = rawmsgpack.AppendMapLen(v, len(m.Properties))
	for _, k := range sortedKeys(m.Properties) {
		if !utf8.ValidString(k) || !utf8.ValidString(m.Properties[k]) {
			return nil, fmt.Errorf("%w: property %.40q is not UTF-8", broker.ErrMalformed, k)
		}
		v = rawmsgpack.AppendText(v, k)
		v = rawmsgpack.AppendText(v, m.Properties[k])
	}
	return v, nil
}

// sortedKeys returns the keys of m in ascending order.
func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// DecodeExtras sets the Headers, Properties, Key and Weight of m to those in data, which
// AppendExtras has written. It returns false if data is damaged, and m is unchanged then.
func DecodeExtras(data []byte, m *broker.Message) bool {
	headers, properties, ok := decodeMaps(data)
	if !ok {
		return false
	}
	key, _ := headers[headerKey].(string)
	weight, _ := headers[headerWeight].(int64)
	SetKey(m, key, weight)
	delete(headers, headerKey)
	delete(headers, headerWeight)
	if len(headers) > 0 {
		m.Headers = headers
	}
	m.Properties = properties
	return true
}

// decodeMaps returns the two maps in data. ok is false if data is damaged.
func decodeMaps(data []byte) (headers map[string]any, properties map[string]string, ok bool) {
	r := rawmsgpack.NewReader(data)
	if n := r.MapLen(); n > 0 && r.Err() == nil {
		headers = make(map[string]any, min(n, len(data)))
		for range n {
			k := string(r.Text())
			v, ok := decodeHeader(&r)
			if !ok || r.Err() != nil {
				return nil, nil, false
			}
			headers[k] = v
		}
	}
	if n := r.MapLen(); n > 0 && r.Err() == nil {
		properties = make(map[string]string, min(n, len(data)))
		for range n {
			k := string(r.Text())
			v := string(r.Text())
			if r.Err() != nil {
				return nil, nil, false
			}
			properties[k] = v
		}
	}
	r.Done()
	return headers, properties, r.Err() == nil
}

// decodeHeader reads the value of one header: a text, bytes, a boolean, a float or an integer. It
// returns false for a damaged float. For a value of another type it sets the error of r.
func decodeHeader(r *rawmsgpack.Reader) (any, bool) {
	switch c := r.Peek(); {
	case r.IsText():
		return string(r.Text()), true
	case r.IsBytes():
		return slices.Clone(r.Bytes()), true
	case c == 0xc2 || c == 0xc3:
		return r.Bool(), true
	case c == 0xcb:
		v := r.Skip()
		if len(v) != 9 {
			return nil, false
		}
		return math.Float64frombits(binary.BigEndian.Uint64(v[1:])), true
	default:
		return r.Int(), true
	}
}
